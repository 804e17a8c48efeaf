"""Device preemption from the rejected pod to the bound one, in a cluster in memory."""

import pytest

from allocator import DeviceId
from extender.cluster.objects.pods import Keeping
from extender.cluster.writes.pods import ATTEMPTS, Evictor
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import NODES, PODS, SLICES, Resource
from extender.plugins.preemption.eviction_limits import EvictionCaps
from extender.plugins.preemption.nominations import KEPT_SECONDS
from extender.plugins.preemption.preemptor import PATIENCE_SECONDS
from tests.extender.plugins.preemption.scenes import DELETE, MARK, Scene, full, runs, slow, waits
from tests.kit.clusters import DRIVER, GPU, NOW, Cluster, Object, local_slice, node, request
from tests.kit.objects.parts import api_object
from tests.kit.servers.memory import Fault, Transport

FORBIDDEN = Fault(refused=ApiError(403, "Forbidden", "not allowed"))


async def test_the_pod_of_lower_priority_goes_and_its_device_is_kept_for_the_pod() -> None:
    scene = Scene.of(*waits("p"), *waits("equal"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    await scene.turns()
    assert await scene.pods() == ["equal", "p"]
    await scene.cluster.settle()
    assert scene.filter("p").passed == ("a",)
    assert not scene.filter("equal").passed
    assert (await scene.pod("p"))["status"]["nominatedNodeName"] == "a"
    text = "preempted by pod ns/p of priority 100, which needs the devices on node a"
    assert scene.told == [("v", text)]


async def test_a_victim_is_marked_before_it_is_deleted() -> None:
    scene = Scene.of(*waits("p"), *slow(runs("v", "a/gpu-0", on="a")))
    scene.filter("p")
    await scene.turns()
    victim = await scene.pod("v")
    mark = victim["status"]["conditions"][0]
    assert "deletionTimestamp" in victim["metadata"]
    assert (mark["type"], mark["reason"]) == ("DisruptionTarget", "PreemptionByScheduler")


async def test_nobody_is_evicted_for_a_pod_that_a_quota_refuses() -> None:
    limits = [{"name": "all", "deviceClassName": "gpu", "devices": 0}]
    quota = api_object("DeviceQuota", "none", namespace="ns", spec={"limits": limits})
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"), quota)
    scene.filter("p")
    await scene.turns()
    assert await scene.pods() == ["p", "v"]


async def test_a_scheduler_that_forgets_the_nomination_does_not_give_away_the_device() -> None:
    scene = Scene.of(*waits("p"), *waits("equal"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    await scene.turns()
    await scene.cluster.api.patch_status(PODS, ObjectKey("ns", "p"), {"status": {"nominatedNodeName": None}})
    await scene.cluster.settle()
    assert not scene.filter("equal").passed


async def test_two_pods_choose_different_victims() -> None:
    held = [*runs("x", "a/gpu-0", on="a", priority=1), *runs("y", "b/gpu-0", on="b", priority=2)]
    scene = Scene.of(*waits("p"), *waits("q"), *held, nodes="ab")
    scene.filter("p")
    scene.filter("q")
    await scene.turns()
    assert await scene.pods() == ["p", "q"]
    assert scene.counted("preemptions_total") == scene.counted("preemption_victims_total") == 2


LARGE = f"device.attributes['{DRIVER}'].large"


def mixed() -> Object:
    """Node a has a large device and a small one."""
    found = local_slice("a", 2)
    for device, large in zip(found["spec"]["devices"], (True, False), strict=True):
        device["attributes"] = {"large": {"bool": large}}
    return found


def contenders(**priorities: int) -> Scene:
    """The pod any needs any device, and the pod large a large one; small is held by x, and large by y, both slow."""
    holders = [*slow(runs("x", "a/gpu-1", on="a", priority=1)), *slow(runs("y", "a/gpu-0", on="a", priority=2))]
    asking = [*waits("any", priority=priorities["any"]), *waits("large", request(selectors=[LARGE]), priority=100)]
    return Scene(Cluster.of(GPU, node("a"), mixed(), *asking, *holders))


async def test_each_pod_gets_the_device_that_is_freed_for_it_whichever_is_free_first() -> None:
    scene = contenders(any=200)
    for name in ("any", "large"):
        scene.filter(name)
    await scene.turns()
    assert sorted(victim for victim, _ in scene.told) == ["x", "y"]
    await scene.terminate(["y"])
    assert (scene.filter("any").passed, scene.filter("large").passed) == ((), ("a",))
    await scene.terminate(["x"])
    assert scene.filter("any").passed == ("a",)
    assert await scene.bind("any", "a") == await scene.bind("large", "a") == ""


async def test_a_pod_of_higher_priority_takes_what_is_kept_for_another_only_if_it_finds_nothing_else() -> None:
    scene = contenders(any=200)
    scene.filter("large")
    await scene.turns()
    await scene.cluster.api.delete(PODS, ObjectKey("ns", "x"))
    await scene.terminate()
    assert await scene.bind("any", "a") == ""
    assert scene.filter("large").passed == ("a",)


async def test_a_victim_whose_device_a_pod_of_higher_priority_takes_does_not_die_in_vain() -> None:
    scene = contenders(any=200)
    scene.filter("large")
    await scene.turns()
    await scene.terminate()
    assert await scene.bind("any", "a") == ""
    scene.filter("large")
    await scene.turns()
    assert scene.known("large").kept.node == ""
    assert scene.counted("preemption_victims_in_vain_total") == 0


@pytest.mark.parametrize(("priority", "passed"), [(50, ()), (100, ()), (200, ("a",))])
async def test_a_nomination_by_a_scheduler_gives_kept_devices_to_pods_of_higher_priority_alone(
    priority: int, passed: tuple[str, ...]
) -> None:
    other = waits("other", priority=priority, created="2025-01-01T00:00:00Z")
    scene = Scene.of(*waits("p"), *other, *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    await scene.turns()
    await scene.cluster.settle()
    await scene.cluster.api.patch_status(PODS, ObjectKey("ns", "other"), {"status": {"nominatedNodeName": "a"}})
    assert scene.filter("other").passed == passed
    assert bool(scene.filter("p").passed) != bool(passed)


TAKEN_AWAY: dict[str, tuple[Resource, str, RawObject, str]] = {
    "the node is cordoned": (NODES, "a", {"spec": {"unschedulable": True}}, "b"),
    "the device is not published any more": (SLICES, "slice-a", {"spec": {"devices": []}}, "ab"),
}


@pytest.mark.parametrize(("kind", "name", "change", "asked"), TAKEN_AWAY.values(), ids=TAKEN_AWAY)
async def test_victims_do_not_die_in_vain_if_others_have_taken_away_what_they_died_for(
    kind: Resource, name: str, change: RawObject, asked: str
) -> None:
    boss = runs("boss", "b/gpu-0", on="b", priority=200)
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"), *boss, nodes="ab")
    scene.filter("p")
    await scene.turns()
    await scene.terminate()
    await scene.cluster.api.patch(kind, ObjectKey("", name), change)
    scene.filter("p", names=asked)
    await scene.turns()
    assert scene.known("p").kept.node == ""
    assert scene.counted("preemption_victims_total") == 1
    assert scene.counted("preemption_victims_in_vain_total") == 0


async def test_the_nomination_names_the_devices_that_are_kept() -> None:
    scene = contenders(any=50)
    scene.filter("large")
    await scene.turns()
    assert scene.known("large").kept == Keeping("a", (DeviceId(DRIVER, "a", "gpu-0"),), ("uid-y",))


async def test_others_are_chosen_if_the_kept_device_is_gone() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", "a/gpu-1", on="a"), devices=2)
    scene.transport.script(DELETE, FORBIDDEN)
    scene.filter("p")
    await scene.turns()
    (kept,) = scene.known("p").kept.devices
    published = await scene.cluster.api.get(SLICES, ObjectKey("", "slice-a"))
    published["spec"]["devices"] = [each for each in published["spec"]["devices"] if each["name"] != kept.device]
    await scene.cluster.api.update(SLICES, published)
    for _ in range(2):
        scene.filter("p")
        await scene.turns()
    assert await scene.pods() == ["p"]
    assert scene.known("p").kept.devices != (kept,)


async def test_what_a_pod_waits_for_is_not_counted_on_for_a_pod_of_lower_priority() -> None:
    held = [*slow(runs("gone", "a/gpu-0", on="a")), *runs("x", "a/gpu-1", on="a"), *runs("y", "a/gpu-2", on="a")]
    scene = Scene.of(*waits("p", priority=100), *waits("q", request(count=2), priority=50), *held, devices=3)
    await scene.cluster.api.delete(PODS, ObjectKey("ns", "gone"))
    scene.filter("p")
    scene.filter("q")
    await scene.turns()
    assert await scene.pods() == ["gone", "p", "q"]


async def test_nobody_is_evicted_twice_for_one_pod() -> None:
    held = [*runs("x", "a/gpu-0", on="a", priority=1), *runs("y", "b/gpu-0", on="b", priority=2)]
    scene = Scene.of(*waits("p"), *held, nodes="ab")
    for _ in range(4):
        scene.filter("p")
        await scene.turns()
    assert await scene.pods() == ["p", "y"]


CHANGED = {
    "the device is free": (["v"], ["p"]),
    "the pod is gone": (["p"], ["v"]),
}


@pytest.mark.parametrize(("gone", "left"), CHANGED.values(), ids=CHANGED)
async def test_the_choice_is_checked_again_before_anybody_is_evicted(gone: list[str], left: list[str]) -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    found = scene.cluster.state.snapshot
    assert ObjectKey("ns", "v") in found.pods
    for name in gone:
        await scene.cluster.api.delete(PODS, ObjectKey("ns", name))
    await scene.cluster.settle()
    await scene.turns()
    assert (await scene.pods(), scene.told) == (left, [])


async def test_a_victim_that_became_as_important_lives() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    raw = await scene.pod("v")
    raw["spec"]["priority"] = 100
    await scene.cluster.api.update(PODS, raw)
    await scene.turns()
    assert await scene.pods() == ["p", "v"]


async def test_the_device_is_kept_until_time_is_up() -> None:
    scene = Scene.of(*waits("p"), *waits("equal"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    await scene.turns()
    await scene.cluster.settle()
    await scene.turns(1)
    for seconds, is_kept in ((KEPT_SECONDS - 1, True), (2, False)):
        scene.now += seconds
        await scene.turns(1)
        assert bool(scene.filter("equal").passed) != is_kept
    assert scene.counted("preemption_victims_in_vain_total") == 1


async def test_a_slow_victim_is_waited_for() -> None:
    scene = Scene.of(*waits("p"), *slow(runs("v", "a/gpu-0", on="a")))
    scene.filter("p")
    await scene.turns()
    scene.now += 10 * KEPT_SECONDS
    await scene.turns()
    assert scene.known("p").kept.node == "a"


async def test_a_new_process_ends_a_nomination_in_time() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    await scene.turns()
    await scene.cluster.settle()
    scene.start(Transport(scene.cluster.api))
    await scene.turns(1)
    scene.now += KEPT_SECONDS + 1
    await scene.turns(1)
    assert not scene.known("p").kept.node


async def test_a_bound_pod_ends_its_preemption() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    await scene.turns()
    await scene.terminate()
    scene.now += 3
    assert await scene.bind("p", "a") == ""
    await scene.turns(1)
    assert scene.counted("preemption_duration_seconds_sum") == 3 + PATIENCE_SECONDS
    assert scene.counted("preemption_victims_in_vain_total") == 0


async def test_a_pod_whose_bind_runs_evicts_nobody() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    scene.binding.add("uid-p")
    await scene.turns()
    assert await scene.pods() == ["p", "v"]


async def test_a_pod_that_can_not_be_nominated_evicts_nobody() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.transport.script(MARK, FORBIDDEN)
    scene.filter("p")
    await scene.turns()
    assert await scene.pods() == ["p", "v"]


async def test_a_victim_that_can_not_be_deleted_is_told_nothing_and_not_counted() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.transport.script(DELETE, FORBIDDEN)
    scene.filter("p")
    await scene.turns()
    assert (await scene.pods(), scene.told) == (["p", "v"], [])
    assert scene.counted("preemptions_total") == scene.counted("preemption_victims_total") == 0


async def test_a_victim_that_changes_meanwhile_is_read_again() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))

    async def changed() -> None:
        await scene.cluster.api.patch(PODS, ObjectKey("ns", "v"), {"metadata": {"labels": {"a": "b"}}})

    scene.transport.script(DELETE, Fault(before=changed), Fault(reply_lost=True))
    scene.filter("p")
    await scene.turns()
    assert await scene.pods() == ["p"]


async def test_a_pod_that_gets_a_node_while_its_victim_is_marked_evicts_nobody() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))

    async def bound() -> None:
        await scene.cluster.api.bind_pod(ObjectKey("ns", "p"), "b", uid=scene.known("p").uid)

    scene.transport.script("patch_status pods", Fault(), Fault(before=bound))
    scene.filter("p")
    await scene.turns()
    assert await scene.pods() == ["p", "v"]
    victim = await scene.cluster.api.get(PODS, ObjectKey("ns", "v"))
    marks = [each["status"] for each in victim["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert marks == ["False"]


async def test_an_eviction_whose_outcome_stays_unknown_says_so() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.transport.script(DELETE, *[Fault(lost=True)] * ATTEMPTS)
    evictor = Evictor(scene.transport, lambda: NOW, lambda _pod, _note: None)
    victim, preemptor = scene.known("v"), scene.known("p")
    failed = await evictor.evict([victim], preemptor, lambda: True)
    assert "outcome unknown" in failed[victim.uid]


async def test_a_pod_that_its_scheduler_has_nominated_meanwhile_evicts_nobody() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))

    async def nominate() -> None:
        await scene.cluster.api.patch_status(PODS, ObjectKey("ns", "p"), {"status": {"nominatedNodeName": "b"}})

    scene.transport.script("get pods", Fault(before=nominate))
    scene.filter("p")
    await scene.turns()
    assert await scene.pods() == ["p", "v"]


async def test_a_scheduler_that_evicts_others_itself_is_left_to_it() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    scene.task.on_victims(scene.known("p"))
    await scene.turns()
    assert await scene.pods() == ["p", "v"]


async def test_a_nomination_whose_answer_was_lost_is_carried_on_when_the_pod_is_rejected_again() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.transport.script(MARK, Fault(reply_lost=True))
    scene.filter("p")
    await scene.turns()
    assert await scene.pods() == ["p", "v"]
    scene.filter("p")
    await scene.turns()
    assert await scene.pods() == ["p"]


async def test_a_preemption_is_carried_on_with_the_victims_of_its_nomination() -> None:
    """Although a pod of lower priority runs there now: somebody may be evicting those victims at this moment."""
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a", priority=5), nodes="ab")
    scene.transport.script(DELETE, FORBIDDEN)
    scene.filter("p", names="a")
    await scene.turns()
    for each in runs("lower", "b/gpu-0", on="b", priority=1):
        scene.cluster.load(each)
    scene.start(Transport(scene.cluster.api))
    scene.filter("p")
    await scene.turns()
    assert await scene.pods() == ["lower", "p"]


async def test_evictions_for_a_pod_that_could_not_be_nominated_count_for_no_cap() -> None:
    held = [*runs("v", "a/gpu-0", on="a"), *runs("w", "b/gpu-0", on="b")]
    scene = Scene(full("ab", *held, *waits("p", priority=200), *waits("q")), caps=EvictionCaps(9, 9, 1))
    scene.transport.script(MARK, FORBIDDEN)
    for name in "pq":
        scene.filter(name)
    await scene.turns()
    assert len(scene.told) == 1
    assert not scene.cluster.state.snapshot.keeping
