"""A real OpenTelemetry collector, which COLLECTOR names, receives the spans of a bind: ``make test-collector``.

It needs the receiver ``otlp`` and the exporter ``debug``, which each distribution of the collector has.
"""

import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.scenario import add_pod, bound
from tests.kit.controlplane.service import extender_with, grant_rights
from tests.kit.controlplane.verbs import connect_verbs
from tests.kit.process import Process, free_port, running
from tests.kit.waiting import wait_for_answer

START_SECONDS = 30.0
SPAN = re.compile(r"^Span #\d+$", re.MULTILINE)
FIELD = re.compile(r"^    (Trace ID|Parent ID|ID|Name|Kind) *: (.*)$", re.MULTILINE)
ATTRIBUTE = re.compile(r"^     -> ([\w.]+): \w+\((.*)\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Span:
    """A span as the collector writes it: its fields by their names there, and its attributes."""

    fields: Mapping[str, str]
    attributes: Mapping[str, str]


def read(text: str) -> Iterator[Span]:
    """The spans in what the exporter ``debug`` has written."""
    for part in SPAN.split(text)[1:]:
        yield Span(dict(FIELD.findall(part)), dict(ATTRIBUTE.findall(part)))


@asynccontextmanager
async def collector(folder: Path) -> AsyncIterator[tuple[str, Path]]:
    """A collector that writes all spans into its log; where it listens, and its log."""
    program = os.environ.get("COLLECTOR")
    if not program:
        pytest.skip("COLLECTOR names no OpenTelemetry collector")
    address = f"127.0.0.1:{free_port()}"
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
        "exporters": {"debug": {"verbosity": "detailed"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["debug"]}},
        },
    }
    (folder / "collector.yaml").write_text(yaml.safe_dump(config))
    log = folder / "collector.log"
    command = (program, f"--config={folder / 'collector.yaml'}")
    process = Process("collector", command, lambda: "Everything is ready" in log.read_text(), log)
    async with running(process, within=START_SECONDS):
        yield f"http://{address}", log


async def test_a_collector_receives_the_spans_of_a_bind_as_one_trace(
    client: Client, plane: ControlPlane, namespace: str, nodes: Sequence[str], tmp_path: Path
) -> None:
    await grant_rights(client)
    made = await add_pod(client, namespace, "traced", scheduler="nobody")
    port = free_port()
    async with collector(tmp_path) as (url, log):
        settings = {"server": {"port": port}, "tracing": {"endpoint": url}}
        async with extender_with(plane, settings), connect_verbs(f"http://127.0.0.1:{port}") as verbs:
            await verbs.wait_in_step(client)
            assert await verbs.bind(made, nodes[0]) == ""
            assert await bound(client, ObjectKey(namespace, "traced")) == nodes[0]

        async def spans() -> list[Span]:
            return [*read(log.read_text())]

        found = await wait_for_answer(
            spans, lambda all_: any(each.fields["Name"] == "bind" for each in all_), "the span of the bind", within=30
        )
    [bind] = [each for each in found if each.fields["Name"] == "bind"]
    assert bind.fields["Kind"] == "Server"
    told = {name: bind.attributes[f"k8s.{name}.name"] for name in ("namespace", "pod", "node")}
    assert told == {"namespace": namespace, "pod": "traced", "node": nodes[0]}
    assert bind.attributes["dra_extender.outcome"] == "ok"
    below = [each for each in found if each.fields["Trace ID"] == bind.fields["Trace ID"] and each is not bind]
    assert {each.fields["Name"] for each in below} >= {"update resourceclaims/status", f"create {PODS.plural}/binding"}
    ids = {each.fields["ID"] for each in (bind, *below)}
    assert {each.fields["Parent ID"] for each in below} <= ids
