"""The CPU of nodes and pods, as kube-scheduler counts it."""

from typing import Any

import pytest

from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic
from extender.cluster.resources import cpu_of, cpu_request
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import NODES, PODS, RESOURCES
from tests.kit.clusters import Object, node, pod


def asking(**resources: Any) -> Object:
    return {"resources": resources}


def container(cpu: str | int, **more: Any) -> Object:
    return asking(requests={"cpu": cpu}) | more


SPECS: dict[str, tuple[object, int]] = {
    "no containers": ({}, 0),
    "no requests": ({"containers": [{}]}, 0),
    "requests are summed": ({"containers": [container("1"), container("250m")]}, 1250),
    "parts of a thousandth count as one": ({"containers": [container("1u")]}, 1),
    "a number": ({"containers": [container(2)]}, 2000),
    "a limit without a request": ({"containers": [asking(limits={"cpu": "2"})]}, 2000),
    "a limit above a request": ({"containers": [asking(limits={"cpu": "2"}, requests={"cpu": "1"})]}, 1000),
    "an init container that needs more": ({"initContainers": [container("4")], "containers": [container("1")]}, 4000),
    "a sidecar": (
        {"initContainers": [container("1", restartPolicy="Always"), container("1")], "containers": [container("2")]},
        3000,
    ),
    "requests of the whole pod": (asking(requests={"cpu": "3"}) | {"containers": [container("1")]}, 3000),
    "overhead": ({"containers": [container("1")], "overhead": {"cpu": "100m"}}, 1100),
    "an amount that is none": ({"containers": [container("much"), container("-1"), container("1")]}, 1000),
    "fields of another type": ({"containers": "c", "initContainers": [1], "resources": [], "overhead": 3}, 0),
    "no spec": (None, 0),
}


@pytest.mark.parametrize(("spec", "expected"), SPECS.values(), ids=SPECS)
def test_pod_requests_the_cpu_that_a_scheduler_reserves(spec: object, expected: int) -> None:
    assert cpu_request(spec) == expected


@pytest.mark.parametrize(
    ("amounts", "expected"), [({"cpu": "8"}, 8000), ({"cpu": "x"}, None), ({}, None), (None, None)]
)
def test_amount_of_cpu_is_in_thousandths(amounts: object, expected: int | None) -> None:
    assert cpu_of(amounts) == expected


def counting(*objects: Object, counts_cpu: bool = True, of_all_pods: bool = True) -> ClusterState:
    state = ClusterState(counts_cpu=counts_cpu, cpu_of_all_pods=of_all_pods)
    for each in objects:
        state.apply(Event(EventType.ADDED, RESOURCES[each["kind"]], each))
    return state


NODE = node("n", allocatable={"cpu": "4"})
PLAIN = pod("plain", on="n", resources={"cpu": "1"})
WITH_DEVICES = pod("p", "claim", on="n", resources={"cpu": "500m"})


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([NODE], 4000, id="no pods"),
        pytest.param([NODE, PLAIN], 3000, id="a pod without devices"),
        pytest.param([NODE, PLAIN, WITH_DEVICES], 2500, id="a pod with devices"),
        pytest.param([NODE, PLAIN, PLAIN], 3000, id="a pod that is told twice"),
        pytest.param([NODE, pod("plain", resources={"cpu": "1"})], 4000, id="a pod that waits for a node"),
        pytest.param([NODE, {**PLAIN, "status": {"phase": "Succeeded"}}], 4000, id="a pod that has ended"),
        pytest.param([PLAIN], None, id="a node that is not known"),
        pytest.param([node("n")], None, id="a node that does not tell its CPU"),
    ],
)
def test_node_has_left_what_no_pod_requests(objects: list[Object], expected: int | None) -> None:
    assert counting(*objects).snapshot.cpu_left("n") == expected


def test_cpu_of_a_pod_is_free_when_the_pod_ends_moves_or_is_gone() -> None:
    state = counting(NODE, PLAIN, WITH_DEVICES)
    state.apply(Event(EventType.MODIFIED, PODS, {**PLAIN, "status": {"phase": "Failed"}}))
    assert state.snapshot.cpu_left("n") == 3500
    state.apply(Event(EventType.DELETED, PODS, WITH_DEVICES))
    assert state.snapshot.cpu_left("n") == 4000
    assert not state.snapshot.requested
    assert not state.snapshot.others


def test_pod_that_a_list_lacks_requests_nothing_any_more() -> None:
    state = counting(NODE, PLAIN)
    state.replace(PODS, [], 5)
    assert state.snapshot.cpu_left("n") == 4000


def test_fork_without_a_pod_has_its_cpu_left() -> None:
    snapshot = counting(NODE, PLAIN, WITH_DEVICES).snapshot
    assert snapshot.without_pod(ObjectKey("ns", "p")).cpu_left("n") == 3000
    assert snapshot.cpu_left("n") == 2500


@pytest.mark.parametrize("of_all_pods", [False, True])
def test_who_counts_no_cpu_keeps_no_pods_without_devices(of_all_pods: bool) -> None:
    state = counting(NODE, PLAIN, WITH_DEVICES, counts_cpu=False, of_all_pods=of_all_pods)
    snapshot = state.snapshot
    assert (snapshot.requested, snapshot.others, snapshot.cpu_left("n")) == (None, None, None)
    assert not state.reads_all_pods


def test_who_counts_pods_with_devices_keeps_no_others() -> None:
    state = counting(NODE, PLAIN, WITH_DEVICES, of_all_pods=False)
    assert (state.snapshot.others, state.snapshot.cpu_left("n")) == (None, 3500)
    assert not state.reads_all_pods
    state.apply(Event(EventType.DELETED, PODS, PLAIN))
    state.apply(Event(EventType.DELETED, PODS, WITH_DEVICES))
    assert state.snapshot.cpu_left("n") == 4000


def test_change_of_cpu_names_the_node() -> None:
    state = counting(NODE)
    version = state.snapshot.version
    state.apply(Event(EventType.ADDED, PODS, PLAIN))
    state.apply(Event(EventType.MODIFIED, PODS, {**PLAIN, "status": {"phase": "Running", "message": "well"}}))
    assert state.since(version).changed == {Topic.CPU: {"n"}}
    state.apply(Event(EventType.MODIFIED, NODES, node("n", allocatable={"cpu": "8"})))
    assert state.snapshot.cpu_left("n") == 7000
