"""Pods that contradict their PodGroup: kube-scheduler 1.37 tries none of the group; explain and /problems say so."""

from typing import Any

import pytest

from extender import Cluster as Simulated
from extender.cluster.objects.pods import GangKey
from extender.planning.pod_group_rules import contradiction
from tests.extender.answers.observe.scenes import items
from tests.kit.clusters import GPU, Cluster, Object, claim, client_of, local_slice, node, pod, snapshot_of
from tests.kit.objects.parts import api_object

TEAM = GangKey("ns", "team", is_pod_group=True)


def group(**more: Any) -> Object:
    spec = {"schedulingPolicy": {"basic": {}}, **more}
    return api_object("PodGroup", "team", apiVersion="scheduling.k8s.io/v1beta1", namespace="ns", spec=spec)


def member(name: str, *, on: str = "", **spec: Any) -> Object:
    found = pod(name, name, on=on)
    found["spec"] |= {"schedulingGroup": {"podGroupName": "team"}, "schedulerName": "dra", **spec}
    return found


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
