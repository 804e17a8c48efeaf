"""A real Prometheus scrapes the service, which reads its own past there after a restart.

``make test-prometheus PROMETHEUS=path`` runs it; the answers in test_past.py are recorded.
"""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from extender.answers.usage.amounts import MINUTE
from extender.answers.usage.usage import PLACED, STEP
from extender.tools.metrics import full_name
from tests.console.service import Served, over_manifests
from tests.kit.places import ROOT
from tests.kit.process import Process, answers, free_port
from tests.kit.waiting import wait_until

SEEN: Final = 60.0
"""Seconds for which the service is scraped, at least."""


def scraped(url: str) -> bool:
    """Whether a Prometheus has the counter of pods that got nodes. What it had counted before then does not grow."""
    query = {"query": f"{full_name(PLACED)}_bucket"}
    return bool(httpx.get(f"{url}/api/v1/query", params=query, trust_env=False).json()["data"]["result"])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A service over the example cluster, and the Prometheus that scrapes it each second, and has begun to."""
    prometheus = os.environ.get("PROMETHEUS")
    if not prometheus:
        pytest.skip("PROMETHEUS names no Prometheus")
    port, own = free_port(), free_port()
    url = f"http://127.0.0.1:{own}"
    job = {"job_name": "dra-extender", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    config = tmp_path / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    options = {"config.file": config, "storage.tsdb.path": tmp_path / "data", "web.listen-address": f"127.0.0.1:{own}"}
    command = [prometheus, *(f"--{name}={value}" for name, value in options.items())]
    program = Process("prometheus", command, answers(f"{url}/-/ready"), tmp_path / "prometheus.log")
    program.start(within=60)
    try:
        environment = {"DRA_EXTENDER__USAGE__PROMETHEUS": url}
        with over_manifests(tmp_path, ROOT / "config" / "example", port=port, environment=environment) as found:
            wait_until(lambda: scraped(url), "Prometheus has scraped the service", within=60)
            yield found
    finally:
        program.stop()


def usage(served: Served, **query: str) -> tuple[Mapping[str, Any], str]:
    """The rows by their first column, and the note."""
    headers = {"accept": "application/json"}
    reply = httpx.get(f"{served.url}/usage", params=query, headers=headers, timeout=30, trust_env=False).json()
    return {next(iter(row.values())): row for row in reply["items"]}, reply.get("note", "")


def test_what_prometheus_has_outlives_a_restart(served: Served) -> None:
    assert served.filter("demo", "newest-model") == []
    served.bind("demo", "inference", served.filter("demo", "inference")[0])
    step = STEP * MINUTE / 1000
    recorded = ((time.time() + SEEN) // step + 1) * step  # a mean of Prometheus ends here
    wait_until(lambda: time.time() > recorded + 1, "a step of five minutes has ended", within=step + SEEN + 10)
    questions = [{"by": by} for by in ("namespace", "class", "model", "driver")]
    before = [usage(served, **query) for query in (*questions, {"waits": "true"})]
    served.process.stop()
    served.process.start(within=60)
    wait_until(lambda: "as Prometheus has it" in usage(served)[1], "the past was read", within=60)
    after = [usage(served, **query) for query in (*questions, {"waits": "true"})]
    for (rows, _), (restored, note) in zip(before[:-1], after[:-1], strict=True):
        assert set(rows) <= set(restored)
        for name, row in rows.items():
            assert restored[name]["hours"] == pytest.approx(row["hours"], rel=0.15, abs=0.01), (name, row)
            assert restored[name]["of"] == pytest.approx(row["of"], rel=0.15)
        assert "when this replica began to watch, as Prometheus has it" in note
    (waits, _), (restored, _) = before[-1], after[-1]
    assert waits["demo"]["placed"] == 1
    assert restored["demo"]["waiting"] == pytest.approx(waits["demo"]["waiting"], rel=0.15)
    assert restored["demo"]["placed"] == 1
    assert after[3][0]["gpu.example.com"]["inPieces"] is not None
