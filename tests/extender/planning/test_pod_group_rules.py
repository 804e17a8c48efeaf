"""Pods that contradict their PodGroup: kube-scheduler 1.37 tries none of the group, and every answer says so."""

from typing import Any

import pytest

from extender import Cluster as Simulated
from extender.cluster.objects.pods import GangKey
from extender.planning.kube_scheduler import contradiction
from tests.extender.answers.defragmentation.scenes import advice, moves, spared, waits
from tests.extender.answers.observe.scenes import items
from tests.kit.clusters import GPU, Cluster, Object, claim, client_of, local_slice, node, pod, snapshot_of
from tests.kit.objects.parts import api_object

BEGIN = "kube-scheduler tries no pod of PodGroup team: "
TEAM = GangKey("ns", "team", is_pod_group=True)


def group(**more: Any) -> Object:
    spec = {"schedulingPolicy": {"basic": {}}, **more}
    return api_object("PodGroup", "team", apiVersion="scheduling.k8s.io/v1beta1", namespace="ns", spec=spec)


def member(name: str, *, on: str = "", **spec: Any) -> Object:
    found = pod(name, name, on=on)
    found["spec"] |= {"schedulingGroup": {"podGroupName": "team"}, "schedulerName": "dra", **spec}
    return found


def as_member(objects: list[Object]) -> list[Object]:
    """The first object, a pod, is of the group."""
    objects[0]["spec"] |= {"schedulingGroup": {"podGroupName": "team"}, "schedulerName": "dra", "priority": 7}
    return objects


CASES: dict[str, tuple[list[Object], str]] = {
    "as the group": ([group(priority=7), member("a", priority=7), member("b", priority=7)], ""),
    "another priority": (
        [group(priority=7), member("a", priority=7), member("b", priority=0)],
        "pod b has priority 0, and the group has 7: give both the same priorityClassName",
    ),
    "a pod that has a node": ([group(priority=7), member("a", priority=7), member("b", priority=0, on="n")], ""),
    "a group of 1.36": ([group(), member("a", priority=7), member("b", priority=0)], ""),
    "another scheduler": (
        [group(), member("a"), member("b", schedulerName="default-scheduler")],
        "pods a and b have different schedulerNames",
    ),
    "no scheduler is the default scheduler": (
        [group(), member("a", schedulerName=""), member("b", schedulerName="default-scheduler")],
        "",
    ),
    "another policy than the group": (
        [group(priority=0, preemptionPolicy="Never"), member("a")],
        "pod a has preemptionPolicy PreemptLowerPriority, and the group has Never",
    ),
    "different policies": (
        [group(priority=0), member("a", preemptionPolicy="Never"), member("b")],
        "pods a and b have different preemptionPolicies",
    ),
    "no such group": ([member("a", priority=7), member("b", priority=0)], ""),
}


@pytest.mark.parametrize(("objects", "why"), CASES.values(), ids=CASES)
def test_what_contradicts_the_group_is_named(objects: list[Object], why: str) -> None:
    found = contradiction(TEAM, snapshot_of(GPU, node("n"), *objects))
    assert found == (f"kube-scheduler tries no pod of PodGroup team: {why}" if why else "")


async def test_explain_and_problems_say_so() -> None:
    objects, why = CASES["another priority"]
    cluster = Cluster.of(GPU, node("n"), local_slice("n", 2), claim("a"), claim("b"), *objects)
    async with client_of(cluster.app()) as client:
        (problem,) = await items(client, "/problems")
        told = (await client.get("/explain/ns/a")).text
    assert (problem["cause"], problem["kind"], problem["object"]) == ("gang", "PodGroup", "ns/team")
    assert why in problem["problem"]
    assert told.startswith(f"pod ns/a cannot be placed: kube-scheduler tries no pod of PodGroup team: {why}")


@pytest.mark.parametrize("case", ["as the group", "another priority"])
def test_simulate_places_no_pod_of_a_group_that_is_contradicted(case: str) -> None:
    objects, why = CASES[case]
    there = [GPU, node("n"), local_slice("n", 2), claim("a"), claim("b"), *objects]
    placed = Simulated.from_objects(there).schedule()
    assert [each.node for each in placed] == (["", ""] if why else ["n", "n"])
    assert all(why in each.reason for each in placed)


@pytest.mark.parametrize("case", ["as the group", "another priority"])
async def test_the_table_of_pods_and_what_if_say_so(case: str) -> None:
    objects, why = CASES[case]
    cluster = Cluster.of(GPU, node("n"), local_slice("n", 2), claim("a"), claim("b"), *objects)
    edit = {"pod": "ns/a", "request": "gpu", "count": 1}
    async with client_of(cluster.app()) as client:
        rows = await items(client, "/pods")
        reply = await client.post("/what-if", json={"edits": [edit]}, headers={"accept": "application/json"})
    assert {each["reason"].startswith(BEGIN) for each in rows} == {bool(why)}
    told = {each["pod"]: each["then"] for each in reply.json()["pods"]}
    assert told["ns/a"]["node"] == (None if why else "n")
    assert told["ns/a"]["reasons"] == ([{"reason": f"{BEGIN}{why}", "nodes": 0}] if why else [])


def test_no_pod_moves_for_a_group_that_is_contradicted_nor_leaves_it() -> None:
    """Two nodes with a free device each: a move makes room for a pod with two, unless its group is not tried."""
    groups = [group(priority=7), member("a", priority=7), member("b", priority=0)]
    there = [GPU, *(made for name in "mn" for made in (node(name), local_slice(name, 2)))]
    mover = moves("x", "m/gpu-0", on="m"), moves("y", "n/gpu-0", on="n")
    for pods, found in ((waits("w", 2), 1), (as_member(waits("a", 2)), 0)):
        others = [each for each in groups if each["metadata"]["name"] != pods[0]["metadata"]["name"]]
        told = advice(*there, *mover[0], *mover[1], *pods, *others)
        assert len(told.shapes) == found
    inside = moves("x", "m/gpu-0", on="m")
    told = advice(*there, *as_member(inside), *mover[1], *waits("w", 2), *groups)
    assert spared(told)[f"{BEGIN}{CASES['another priority'][1]}"] == ("pod ns/x",)


async def test_no_node_is_planned_for_a_group_that_is_contradicted() -> None:
    objects, why = CASES["another priority"]
    cluster = Cluster.of(GPU, claim("a"), claim("b"), *objects)
    groups = [{"Name": "big", "Limit": 3, "Template": node("new", labels={"machine": "big"})}]
    pods = [each for each in objects if each["kind"] == "Pod"]
    body = {"Pods": {"items": pods}, "NodeGroups": groups}
    async with client_of(cluster.app()) as client:
        plan = (await client.post("/autoscaler/estimate", json=body)).json()
    assert plan["FailedPods"] == {f"ns/{name}": f"{BEGIN}{why}" for name in "ab"}
