"""Whom a device preemption evicts, and when it evicts nobody."""

import pytest

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.plugins.preemption.choice import choose
from tests.extender.plugins.preemption.scenes import runs
from tests.kit.clusters import (
    GPU,
    Object,
    budget,
    claim,
    device_class,
    local_slice,
    network_slice,
    node,
    parsed,
    pod,
    request,
    snapshot_of,
    solver,
    taint_rule,
)

MINE = pod("p", "c", priority=100)
FOREIGN = {"apiGroup": "example.com", "resource": "experiments", "name": "x", "uid": "uid-x"}


def with_consumer(running: list[Object]) -> list[Object]:
    """The claim is also reserved for something that is no pod."""
    running[1]["status"]["reservedFor"].append(FOREIGN)
    return running


def started(running: list[Object], time: str) -> list[Object]:
    running[0]["status"]["startTime"] = time
    return running


def in_gang(running: list[Object]) -> list[Object]:
    """The pod is one of a group of 16."""
    running[0]["metadata"]["annotations"] = {GROUP: "train", GROUP_SIZE: "16"}
    return running


def nodes(*names: str, devices: int = 1) -> list[Object]:
    return [GPU, *(each for name in names for each in (node(name), local_slice(name, devices)))]


def evicted(asked: Object, *objects: Object) -> tuple[str, list[str]] | None:
    """The node and the victims; None if nobody is evicted."""
    snapshot = snapshot_of(asked, *objects)
    found = choose(parsed(asked), sorted(snapshot.nodes), snapshot, solver())
    return (
        None if found is None or not found.victims else (found.node.name, sorted(each.name for each in found.victims))
    )


NODES = {
    "fewest pods that break a budget": (
        [*runs("x", "a/gpu-0", on="a", labels={"app": "x"}), *runs("y", "b/gpu-0", on="b", priority=90)],
        ("b", ["y"]),
    ),
    "the lowest highest priority": (
        [*runs("x", "a/gpu-0", on="a", priority=50), *runs("y", "b/gpu-0", on="b", priority=49)],
        ("b", ["y"]),
    ),
    "the fewest pods of gangs": (
        [*in_gang(started(runs("x", "a/gpu-0", on="a"), "2026-01-06T00:00:00Z")), *runs("y", "b/gpu-0", on="b")],
        ("b", ["y"]),
    ),
    "the latest start of the most important victim": (
        [
            *started(runs("x", "a/gpu-0", on="a"), "2026-01-05T00:00:00Z"),
            *started(runs("y", "b/gpu-0", on="b"), "2026-01-06T00:00:00Z"),
        ],
        ("b", ["y"]),
    ),
    "the name of the node where nothing else decides": (
        [*runs("x", "a/gpu-0", on="a"), *runs("y", "b/gpu-0", on="b")],
        ("a", ["x"]),
    ),
}


@pytest.mark.parametrize(("running", "chosen"), NODES.values(), ids=NODES)
def test_of_several_nodes_the_one_is_chosen_that_kube_scheduler_would_choose(
    running: list[Object], chosen: tuple[str, list[str]]
) -> None:
    assert evicted(MINE, *nodes("a", "b"), claim("c"), *running, budget("x", {"app": "x"}, 0)) == chosen


def test_more_victims_are_worse_than_fewer_even_if_their_priorities_are_negative() -> None:
    two = [*runs("x", "a/gpu-0", on="a", priority=-10), *runs("y", "a/gpu-1", on="a", priority=-10)]
    one = runs("z", "b/gpu-0", "b/gpu-1", on="b", priority=-10)
    assert evicted(MINE, *nodes("a", "b", devices=2), claim("c", request(count=2)), *two, *one) == ("b", ["z"])


def test_a_pod_on_another_node_is_evicted_for_a_device_that_the_network_attaches() -> None:
    world = [GPU, node("a"), node("b"), network_slice("net"), claim("c")]
    assert evicted(MINE, *world, *runs("v", "net/gpu-0", on="b")) == ("a", ["v"])


def test_a_shared_claim_is_freed_by_evicting_all_its_pods() -> None:
    shared = claim("s", allocated=["a/gpu-0"], at="a", users=["x", "y"])
    users = [pod(name, "s", on="a", priority=1) for name in ("x", "y")]
    assert evicted(MINE, *nodes("a"), claim("c"), shared, *users) == ("a", ["x", "y"])


def test_a_partition_is_freed_whose_siblings_use_up_the_counters() -> None:
    counters = {"counterSet": "gpu", "counters": {"memory": {"value": "1"}}}
    pool = local_slice("a", 3, consumesCounters=[counters])
    shared = local_slice("a", 0)
    for each in (pool, shared):
        each["spec"]["pool"]["resourceSliceCount"] = 2
    shared["metadata"]["name"] = "counters"
    del shared["spec"]["devices"]
    shared["spec"]["sharedCounters"] = [{"name": "gpu", "counters": {"memory": {"value": "2"}}}]
    held = [*runs("x", "a/gpu-0", on="a", priority=2), *runs("y", "a/gpu-1", on="a", priority=1)]
    assert evicted(MINE, GPU, node("a"), pool, shared, claim("c"), *held) == ("a", ["y"])


def test_a_pod_with_an_extended_resource_gets_the_device_of_another_one() -> None:
    whole = device_class("whole", extended="example.com/gpu")
    asked = pod("p", priority=100, resources={"example.com/gpu": "1"})
    assert evicted(asked, whole, *nodes("a"), *runs("v", "a/gpu-0", on="a")) == ("a", ["v"])


NOBODY = {
    "the pod never preempts": (
        MINE | {"spec": MINE["spec"] | {"preemptionPolicy": "Never"}},
        runs("v", "a/gpu-0", on="a"),
    ),
    "the others are as important": (MINE, runs("v", "a/gpu-0", on="a", priority=100)),
    "one of two that share the claim is as important": (
        MINE,
        [
            claim("s", allocated=["a/gpu-0"], at="a", users=["x", "y"]),
            pod("x", "s", on="a"),
            pod("y", "s", on="a", priority=100),
        ],
    ),
    "the device of a terminating pod is waited for": (
        MINE,
        [*runs("gone", "a/gpu-0", on="a", deleting=True), *runs("v", "b/gpu-0", on="b")],
    ),
    "the claim is reserved for something that is no pod, too": (MINE, with_consumer(runs("v", "a/gpu-0", on="a"))),
    "the pod that has the device is not bound yet": (
        MINE,
        [claim("s", allocated=["a/gpu-0"], at="a", users=["v"]), pod("v", "s", priority=1)],
    ),
    "an eviction does not help": (MINE, [*runs("v", "a/gpu-0", on="a"), taint_rule("r")]),
}


@pytest.mark.parametrize(("asked", "running"), NOBODY.values(), ids=NOBODY)
def test_nobody_is_evicted_if(asked: Object, running: list[Object]) -> None:
    assert (
        evicted(asked, *nodes("a", "b"), *runs("boss", "b/gpu-0", on="b", priority=1000), claim("c"), *running) is None
    )
