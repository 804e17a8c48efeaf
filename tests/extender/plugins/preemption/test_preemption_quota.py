"""DeviceQuotas bound preemption: no more pods are evicted than the quota lets their preemptors use."""

import pytest

from extender.framework.filter import filter_nodes
from extender.framework.task import Found, Rejection
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS
from tests.extender.plugins.preemption.scenes import Scene, full, runs, waits
from tests.kit.clusters import DRIVER, GPU, Cluster, Object, claim, local_slice, node, request
from tests.kit.objects.quotas import limited, quota

LARGE = f"device.attributes['{DRIVER}'].large"


def elsewhere(running: list[Object]) -> list[Object]:
    """What runs, in another namespace."""
    for each in running:
        each["metadata"]["namespace"] = "other"
    return running


def others(count: int) -> list[Object]:
    """On each of some nodes, a pod of another namespace that holds the only device."""
    return [each for n in range(count) for each in elsewhere(runs(f"v{n}", f"n{n}/gpu-0", on=f"n{n}"))]


@pytest.mark.parametrize("allowed", [0, 1, 3])
@pytest.mark.parametrize("turns", [1, 6])
async def test_a_namespace_evicts_as_many_pods_as_it_may_have_devices(allowed: int, turns: int) -> None:
    nodes = [f"n{n}" for n in range(8)]
    waiting = [each for n in range(8) for each in waits(f"p{n}")]
    scene = Scene(full(nodes, *waiting, *others(8), quota(limited(devices=allowed))))
    for _ in range(4):
        for number in range(8):
            name = f"p{number}"
            if scene.is_pending(name) and (passed := scene.filter(name).passed):
                assert await scene.bind(name, passed[0]) == ""
        await scene.turns(turns)
        await scene.cluster.settle()
    assert len(scene.told) == allowed
    assert sum(not scene.is_pending(f"p{number}") for number in range(8)) == allowed


@pytest.mark.parametrize(
    ("allowed", "told"), [(0, Found.KNOWN), (1, Found.ASK)], ids=["over its quota", "within its quota"]
)
async def test_a_pod_that_nobody_remembers_is_asked_about_unless_its_quota_is_in_the_way(
    allowed: int, told: Found
) -> None:
    scene = Scene(full(["n0"], *waits("p"), *others(1), quota(limited(devices=allowed))))
    scene.filter("p")
    scene.start(scene.transport)
    snapshot = scene.cluster.state.snapshot
    assert scene.task.on_found(snapshot.pods[ObjectKey("ns", "p")], snapshot) is told


RAISED = {"spec": {"limits": [limited(devices=1)]}}


@pytest.mark.parametrize("is_late", [False, True], ids=["before the change", "by filter, which had an older snapshot"])
async def test_a_pod_is_asked_about_again_once_its_quota_lets_it_evict_others(is_late: bool) -> None:
    """Nothing else would: requeue wakes those that fit without evictions."""
    scene = Scene(full(["n0"], *waits("p"), *others(1), quota(limited(devices=0))))
    pod = scene.known("p")
    before = scene.cluster.state.snapshot
    if not is_late:
        scene.filter("p")
    await scene.turns(1)
    assert scene.task.missed() == set()
    await scene.cluster.api.patch(DEVICE_QUOTAS, ObjectKey("ns", "gold"), RAISED)
    if is_late:
        assert scene.task.missed() == set()
        result = filter_nodes(pod, ["n0"], before, scene.solver)
        scene.task.on_rejected(Rejection(pod, ["n0"], result, before))
    assert scene.task.missed() == {"ns"}
    assert scene.task.missed() == set(), "once"
    assert scene.task.on_found(pod, scene.cluster.state.snapshot) is Found.ASK


async def test_a_quota_that_was_used_up_and_has_room_again_between_two_looks_is_not_overlooked() -> None:
    scene = Scene(full(["n0", "n1"], *waits("p"), claim("own"), *others(1), quota(limited(devices=1))))
    pod, key, taken = scene.known("p"), ObjectKey("ns", "own"), claim("own", allocated=["n1/gpu-0"], at="n1")["status"]
    assert scene.task.missed() == set()
    await scene.cluster.api.patch_status(CLAIMS, key, {"status": taken})
    assert not scene.filter("p").passed
    await scene.cluster.api.patch_status(CLAIMS, key, {"status": {"allocation": None}})
    assert scene.task.missed() == {pod.namespace}


async def test_a_pod_that_its_quota_still_refuses_is_looked_for_after_the_next_change() -> None:
    scene = Scene(full(["n0"], *waits("p"), *others(1), quota(limited(devices=0))))
    scene.filter("p")
    scene.start(scene.transport)
    pod = scene.known("p")
    assert scene.task.on_found(pod, scene.cluster.state.snapshot) is Found.KNOWN
    await scene.cluster.api.patch(DEVICE_QUOTAS, ObjectKey("ns", "gold"), RAISED)
    assert scene.task.missed() == {"ns"}
    assert scene.task.on_found(pod, scene.cluster.state.snapshot) is Found.ASK


def site(*large: bool) -> list[Object]:
    """Nodes with a device each, all in use by pods of another namespace."""
    found: list[Object] = [GPU]
    for number, is_large in enumerate(large):
        name = f"n{number}"
        slice_ = local_slice(name)
        slice_["spec"]["devices"][0]["attributes"] = {"large": {"bool": is_large}}
        found += [node(name), slice_]
    return [*found, *others(len(large))]


@pytest.mark.parametrize(
    ("large", "limit", "evicted"),
    [
        ((True, True, True), quota(limited(devices=0, selectors=[{"cel": {"expression": LARGE}}])), set()),
        ((True, False, True), quota(limited(devices=0, selectors=[{"cel": {"expression": LARGE}}])), {"v1"}),
        (
            (True, False, True),
            quota(limited(devices=1, selectors=[{"cel": {"expression": LARGE}}])),
            {"v0", "v1", "v2"},
        ),
    ],
)
async def test_pods_over_a_limit_of_some_devices_evict_only_for_devices_that_they_may_have(
    large: tuple[bool, ...], limit: Object, evicted: set[str]
) -> None:
    waiting = [each for n in range(len(large)) for each in waits(f"p{n}", request())]
    scene = Scene(Cluster.of(*site(*large), *waiting, limit))
    for number in range(len(large)):
        scene.filter(f"p{number}")
    await scene.turns()
    assert {victim for victim, _ in scene.told} <= evicted
    assert len(scene.told) == (2 if limit["spec"]["limits"][0]["devices"] else len(evicted))
