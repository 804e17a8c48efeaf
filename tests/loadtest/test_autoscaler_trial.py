"""loadtest.autoscaler: what it reads, asks and shows; the shipped files fit the example cluster."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from rich.progress import Progress

from extender.client import AutoscalerClient
from extender.planning.templates import load_templates
from loadtest.autoscaler import InputError, Situation, read, scale_up, tables
from tests.extender.autoscaler.scenes import machine, pod_of
from tests.kit.places import CONFIG


def test_the_shipped_files_are_read() -> None:
    situation = read([CONFIG / "scale-up", CONFIG / "example" / "nodes.yaml"])
    assert [group.name for group in situation.groups] == ["falcon", "sparrow", "general"]
    assert (len(situation.nodes), len(situation.pods)) == (10, 8)


def test_the_shipped_templates_are_of_the_shipped_groups() -> None:
    templates = load_templates((CONFIG / "node-templates.yaml").read_text(), file="t")
    groups = {group.name: group for group in read([CONFIG / "scale-up"]).groups}
    for template in templates:
        labels = groups[template.name].template["metadata"]["labels"]
        assert template.labels.items() <= labels.items()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nodeGroups: [{name: g}]", "a node group needs name, template and limit"),
        ("nodeGroups: [7]", "a node group needs name, template and limit"),
        ("- 1", "expected objects"),
        ("a: [", "line 1: "),
    ],
)
def test_a_file_that_can_not_be_used_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=problem):
        read([path])
    with pytest.raises(InputError, match="cannot be read"):
        read([tmp_path / "missing.yaml"])


def answers(request: httpx.Request) -> httpx.Response:
    """Node "b" suits pods called "small", and best; the rest needs nodes, or is beyond help."""
    verb = request.url.path.rpartition("/")[2]
    body: dict[str, Any] = orjson.loads(request.content)
    if verb == "start":
        return httpx.Response(200, json={"Session": "s"})
    if verb == "estimate":
        nodes = [{"Pods": ["ns/large"]}]
        groups = [{"Name": "g", "Add": 1, "Nodes": nodes, "Devices": "template g"}]
        groups.append({"Name": "h", "Add": 0, "Nodes": [], "Devices": ""})
        return httpx.Response(200, json={"NodeGroups": groups, "FailedPods": {"ns/huge": "1 no"}})
    if verb == "NodeSelected":
        return httpx.Response(200, json={})
    if verb == "prioritize":
        names = [node["metadata"]["name"] for node in body["Nodes"]["items"]]
        return httpx.Response(200, json=[{"Host": name, "Score": int(name == "b")} for name in names])
    suits = body["Pod"]["metadata"]["name"] == "small"
    nodes = body["Nodes"] if suits else {"items": []}
    return httpx.Response(200, json={"Nodes": nodes, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}})


def shown(rows: Iterable[Iterable[str]]) -> list[tuple[str, ...]]:
    return [tuple(row) for row in rows]


def test_pods_go_to_nodes_that_are_there_first_and_the_rest_into_a_plan() -> None:
    situation = Situation((machine("a"), machine("b")), tuple(pod_of(name) for name in ("small", "large", "huge")), ())
    http = httpx.Client(transport=httpx.MockTransport(answers), base_url="http://extender")
    with AutoscalerClient(http) as client, Progress(disable=True) as progress:
        outcome = scale_up(client.start(), situation, "least-waste", progress)
    groups, pods = tables(outcome)
    assert shown(groups.rows) == [("g", "1", "template g"), ("h", "0", "-")]
    assert shown(pods.rows) == [("ns/small", "b"), ("ns/large", "new g 1"), ("ns/huge", "no group helps: 1 no")]
