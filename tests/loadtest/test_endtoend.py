"""loadtest.endtoend: its workloads, configurations and figures; and the extender that decides nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from httpx import ASGITransport, AsyncClient

from extender.cluster.api import CLAIMS, PODS, ObjectKey
from extender.cluster.reservation import FINALIZER
from loadtest.endtoend.figures import Run, Sightings, processor_table, table, verdicts
from loadtest.endtoend.subjects import CALLS_PER_SECOND, IDLE, IN_TREE, OURS, in_tree, with_extender
from loadtest.endtoend.workloads import NAMESPACE, RESIDENTS, WORKLOADS, batch
from loadtest.idle_extender import IdleExtender
from tests.cluster.harness.scheduler import SHIPPED
from tests.extender.clusters import NOW, Cluster, claim, node, pod, request

NODES = [f"node-{number}" for number in range(20)]


# --- workloads


@pytest.mark.parametrize(
    ("name", "templates", "claims", "hopeless", "residents"),
    [
        ("claims", 0, 50, 0, 0),
        ("none", 0, 0, 0, 0),
        ("templates", 1, 0, 0, 0),
        ("mixed", 0, 50, 0, 0),
        ("churn", 0, 50, 0, 0),
        ("crowded", 0, 100, 50, RESIDENTS),
    ],
)
def test_what_a_workload_consists_of(name: str, templates: int, claims: int, hopeless: int, residents: int) -> None:
    made = batch(WORKLOADS[name], 50, NODES)
    found = (len(made.templates), len(made.claims), len(made.hopeless), len(made.residents))
    assert found == (templates, claims, hopeless, residents)
    assert len(made.fitting) == 50


def test_each_pod_refers_to_what_is_made_for_it() -> None:
    for workload in WORKLOADS.values():
        made = batch(workload, 7, NODES)
        there = {each["metadata"]["name"] for each in (*made.claims, *made.templates)}
        for each in (*made.fitting, *made.hopeless):
            for entry in each["spec"]["resourceClaims"]:
                assert (entry.get("resourceClaimName") or entry["resourceClaimTemplateName"]) in there
        assert {each["metadata"]["namespace"] for each in (*made.claims, *made.fitting)} == {NAMESPACE}


def test_mixed_pods_have_twenty_shapes_in_turn() -> None:
    shapes = [orjson.dumps(each["spec"]) for each in batch(WORKLOADS["mixed"], 40, NODES).claims]
    assert len(set(shapes)) == 20
    assert shapes[:20] == shapes[20:]


def test_a_starting_scheduler_meets_the_hopeless_first() -> None:
    made = batch(WORKLOADS["crowded"], 5, NODES)
    names = [[each["metadata"]["name"] for each in pods] for pods in (made.hopeless, made.fitting)]
    assert max(names[0]) < min(names[1])


# --- subjects


def test_all_schedulers_look_at_all_nodes_and_may_call_as_often() -> None:
    ours = with_extender(SHIPPED.read_text(), "http://127.0.0.1:1", Path("k"))
    theirs = in_tree(Path("k"))
    limits = {"kubeconfig": "k", "qps": CALLS_PER_SECOND, "burst": CALLS_PER_SECOND}
    for config in (ours, theirs):
        assert config["clientConnection"] == limits
        (profile,) = config["profiles"]
        assert (profile["schedulerName"], profile["percentageOfNodesToScore"]) == ("dra-scheduler", 100)
    assert "extenders" not in theirs
    assert [each["urlPrefix"] for each in ours["extenders"]] == ["http://127.0.0.1:1"]


# --- figures


def seen(*sightings: tuple[str, str, float]) -> Sightings:
    found = Sightings(frozenset({"a", "b", "c"}))
    for name, on, now in sightings:
        found.see(pod(name, on=on), now)
    return found


@pytest.mark.parametrize(
    ("sightings", "rate"),
    [
        ([], 0.0),
        ([("a", "n", 5.0)], 0.0),
        ([("a", "n", 5.0), ("b", "n", 5.5)], 2.0),
        ([("a", "n", 5.0), ("b", "n", 5.5), ("b", "n", 9.0)], 2.0),
        ([("a", "n", 5.0), ("b", "", 5.1), ("x", "n", 5.2), ("b", "n", 5.5), ("c", "n", 6.0)], 2.0),
    ],
)
def test_a_rate_is_from_the_first_binding_to_the_last(sightings: Sequence[tuple[str, str, float]], rate: float) -> None:
    assert seen(*sightings).rate == rate


def test_a_pod_that_was_bound_twice_is_told() -> None:
    assert seen(("a", "n", 1.0), ("a", "n", 2.0)).moved == []
    assert seen(("a", "n", 1.0), ("a", "m", 2.0)).moved == ["pod a was bound to node n, and then to node m"]


def runs(**rates: Sequence[float]) -> list[Run]:
    names = {"in_tree": IN_TREE, "ours": OURS, "idle": IDLE}
    return [Run(names[subject], rate, 0.01, 0.0) for subject, each in rates.items() for rate in each]


def test_medians_and_ratios_in_the_table() -> None:
    found = {"claims": runs(in_tree=[50, 40, 60], ours=[100], idle=[200]), "crowded": runs(ours=[90])}
    columns = [list(column.cells) for column in table(500, 1000, found).columns]
    assert columns[:4] == [["claims", "crowded"], ["50.0\n40 to 60", "-"], ["100.0", "90.0"], ["200.0", "-"]]
    assert columns[4:] == [["2.00x", "-"], ["50%", "-"]]


def test_processor_time_for_a_pod_is_in_milliseconds() -> None:
    columns = [list(column.cells) for column in processor_table({"claims": runs(ours=[1, 2])}).columns]
    assert columns == [["claims"], ["-"], ["10.0\n10 to 10"], ["-"]]


def test_goals_that_were_measured_are_met_or_missed() -> None:
    found = {
        "claims": runs(in_tree=[40], ours=[100], idle=[200]),
        "none": runs(ours=[19], idle=[20]),
        "crowded": runs(ours=[70]),
    }
    claims = ["claims: 50% of the idle extender, goal 85%: MISSED"]
    others = ["none: 95% of the idle extender, goal 90%: met", "crowded: 70% of claims, goal 80%: MISSED"]
    assert list(verdicts(500, found)) == ["claims: 2.50x of the in-tree plugin, goal 2.20x: met", *claims, *others]
    assert list(verdicts(100, found)) == [*claims, *others]


def test_a_run_with_anything_wrong_does_not_count() -> None:
    found = {"claims": [Run(OURS, 100.0, 0.01, 0.0, ("a device twice",)), *runs(idle=[100])]}
    assert list(table(500, 1, found).columns[2].cells) == ["-"]
    assert list(verdicts(500, found)) == []


# --- the extender that decides nothing


def idle(cluster: Cluster, *known: Any) -> AsyncClient:
    app: Any = IdleExtender(cluster.api, known, lambda: NOW)
    return AsyncClient(transport=ASGITransport(app=app), base_url="http://idle")


async def call(http: AsyncClient, verb: str, **args: Any) -> Any:
    return (await http.post(f"/{verb}", json=args)).raise_for_status().json()


async def test_every_node_will_do_and_all_the_same() -> None:
    async with idle(Cluster.of()) as http:
        asked = {"Pod": pod("p", "c"), "NodeNames": ["a", "b"]}
        assert await call(http, "filter", **asked) == {"NodeNames": ["a", "b"]}
        assert await call(http, "prioritize", **asked) == [{"Host": "a", "Score": 0}, {"Host": "b", "Score": 0}]
        victims = {"a": {"Pods": [{"UID": "u"}]}}
        assert await call(http, "preempt", NodeNameToMetaVictims=victims) == {"NodeNameToMetaVictims": victims}
        assert (await http.get("/readyz")).status_code == 200


async def test_a_pod_whose_claim_has_no_name_yet_waits() -> None:
    raw = pod("p")
    raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    async with idle(Cluster.of()) as http:
        reply = await call(http, "filter", Pod=raw, NodeNames=["a"])
        assert reply["NodeNames"] == []
        assert list(reply["FailedAndUnresolvableNodes"]) == ["a"]


@pytest.mark.parametrize("is_known", [True, False])
async def test_it_writes_what_we_write(*, is_known: bool) -> None:
    cluster = Cluster.of(node("a"), claim("c", request("x", count=2), request("y")), pod("p", "c"))
    key = ObjectKey("ns", "c")
    known = [await cluster.api.get(CLAIMS, key)] if is_known else []
    async with idle(cluster, *known) as http:
        await call(http, "filter", Pod=await cluster.api.get(PODS, ObjectKey("ns", "p")), NodeNames=["a"])
        assert await call(http, "bind", PodName="p", PodNamespace="ns", PodUID="uid-p", Node="a") == {}
    written = await cluster.api.get(CLAIMS, key)
    assert written["metadata"]["finalizers"] == [FINALIZER]
    results = written["status"]["allocation"]["devices"]["results"]
    assert [each["request"] for each in results] == ["x", "x", "y"]
    assert len({each["device"] for each in results}) == 3
    assert [each["uid"] for each in written["status"]["reservedFor"]] == ["uid-p"]
    assert await cluster.node_of("p") == "a"


async def test_a_write_that_is_refused_is_told() -> None:
    async with idle(Cluster.of(node("a"))) as http:
        reply = await call(http, "bind", PodName="p", PodNamespace="ns", PodUID="uid-p", Node="a")
        assert "not found" in reply["Error"].lower() or "404" in reply["Error"]
