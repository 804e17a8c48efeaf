"""Priority and preemptionPolicy of PodGroups decide about evictions and kept devices, as in kube-scheduler 1.37."""

from typing import Any

import pytest

from allocator import InvalidObjectError
from extender.answers.explain.preemption import preemption_of
from extender.cluster.kinds import Topic
from extender.cluster.objects.pod_groups import parse_pod_group
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import POD_GROUPS, PODS
from tests.extender.plugins.preemption.scenes import Scene, full, runs, waits
from tests.kit.clusters import Object
from tests.kit.objects.parts import api_object


def group(priority: int | None = None, **more: Any) -> Object:
    """A PodGroup whose pods need not run together."""
    spec: Object = {"schedulingPolicy": {"basic": {}}, **more}
    if priority is not None:
        spec["priority"] = priority
    return api_object("PodGroup", "team", apiVersion="scheduling.k8s.io/v1beta1", namespace="ns", spec=spec)


def grouped(objects: list[Object], **more: Any) -> list[Object]:
    """The pods are in the PodGroup."""
    for each in objects:
        if each["kind"] == "Pod":
            each["spec"] |= {"schedulingGroup": {"podGroupName": "team"}, **more}
    return objects


async def left(scene: Scene, *waiting: str) -> list[str]:
    """The pods that are left after these have been rejected."""
    for name in waiting:
        scene.filter(name)
    await scene.turns()
    return list(await scene.pods())


@pytest.mark.parametrize(
    ("own", "of_group", "evicted"),
    [(0, 200, False), (99, 100, False), (1000, 0, True), (50, None, True), (200, None, False)],
)
async def test_a_victim_has_the_priority_of_its_group(own: int, of_group: int | None, evicted: bool) -> None:
    held = grouped(runs("v", "a/gpu-0", on="a", priority=own))
    scene = Scene.of(*waits("p", priority=100), *held, group(of_group))
    assert ("v" not in await left(scene, "p")) is evicted


@pytest.mark.parametrize(("own", "of_group", "evicts"), [(0, 200, True), (1000, 5, False), (200, None, True)])
async def test_a_pod_evicts_by_the_priority_of_its_group(own: int, of_group: int | None, evicts: bool) -> None:
    asking = grouped(waits("p", priority=own))
    scene = Scene.of(*asking, *runs("v", "a/gpu-0", on="a", priority=10), group(of_group))
    assert ("v" not in await left(scene, "p")) is evicts


@pytest.mark.parametrize(("of_group", "passed"), [(50, ("a",)), (100, ()), (200, ())])
async def test_what_is_kept_is_kept_by_the_priority_of_the_group(of_group: int, passed: tuple[str, ...]) -> None:
    asking = grouped(waits("p", priority=500))
    other = waits("q", priority=100, created="2025-01-01T00:00:00Z")
    scene = Scene.of(*asking, *other, *runs("v", "a/gpu-0", on="a", priority=10), group(of_group))
    await left(scene, "p")
    await scene.terminate()
    assert scene.known("p").kept.node == "a"
    assert scene.filter("q").passed == passed


@pytest.mark.parametrize(
    ("policy", "own", "of_mate", "evicts"),
    [
        ("Never", "PreemptLowerPriority", "PreemptLowerPriority", False),
        ("PreemptLowerPriority", "Never", "Never", True),
        (None, "Never", "PreemptLowerPriority", False),
        (None, "PreemptLowerPriority", "Never", False),
        (None, "PreemptLowerPriority", "PreemptLowerPriority", True),
    ],
)
async def test_the_policy_of_the_group_counts_or_else_that_of_each_waiting_pod(
    policy: str | None, own: str, of_mate: str, evicts: bool
) -> None:
    asking = [
        *grouped(waits("p"), preemptionPolicy=own),
        *grouped(waits("mate"), preemptionPolicy=of_mate),
    ]
    more = {} if policy is None else {"preemptionPolicy": policy}
    scene = Scene.of(*asking, *runs("v", "a/gpu-0", on="a", priority=10), group(100, **more))
    assert ("v" not in await left(scene, "p")) is evicts


def test_explain_names_the_group_whose_policy_it_is() -> None:
    asking = grouped(waits("p"))
    scene = Scene.of(*asking, *runs("v", "a/gpu-0", on="a", priority=10), group(100, preemptionPolicy="Never"))
    snapshot = scene.cluster.state.snapshot
    told = preemption_of(scene.known("p"), [snapshot.nodes["a"]], snapshot, scene.solver)
    assert told is not None
    assert "spec.preemptionPolicy of PodGroup team is Never" in str(told.spared)


def test_a_policy_that_is_none_is_a_problem_of_the_group() -> None:
    with pytest.raises(InvalidObjectError, match=r'preemptionPolicy: "Often" is none of PreemptLowerPriority, Never'):
        parse_pod_group(group(1, preemptionPolicy="Often"))


async def test_a_group_that_comes_later_or_goes_changes_the_priority_of_its_pods() -> None:
    cluster = full("a", *grouped(runs("v", "a/gpu-0", on="a", priority=10)))
    state = cluster.state

    def priority() -> int:
        found = state.snapshot.pods[ObjectKey("ns", "v")]
        return found.priority

    assert priority() == 10
    state.apply(Event(EventType.ADDED, POD_GROUPS, group(70)))
    assert priority() == 70
    version = state.snapshot.version
    listed = [*grouped(runs("v", "a/gpu-0", on="a", priority=10))][:1]
    state.replace(PODS, listed, 1000)
    assert priority() == 70
    state.replace(POD_GROUPS, [group(80)], 1000)
    assert priority() == 80
    assert state.since(version).keys(Topic.POD) == {ObjectKey("ns", "v")}
    state.apply(Event(EventType.DELETED, POD_GROUPS, group(80)))
    assert priority() == 10
