"""A pod for which others are evicted waits for their devices: it takes no other ones, and no victim dies in vain."""

from dataclasses import replace

import pytest

from extender.answers.explain.explainer import Explainer
from extender.cluster.objects.pods import KEPT
from extender.framework.cycle import refreshed
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, NODES, SLICES, Resource
from extender.plugins.preemption.nominations import CHECK_SECONDS, WAITING_SECONDS
from tests.extender.plugins.preemption.scenes import Scene, runs, slow, waits
from tests.kit.binders import devices_of

ON_A = "devices are kept for the pod on node a"


async def evicted(other: str = "b/gpu-0") -> Scene:
    """Pod p has evicted v, which had device gpu-0 of node a and is terminating. Pod boss holds the other device."""
    node, _, device = other.partition("/")
    held = [*slow(runs("v", "a/gpu-0", on="a")), *runs("boss", other, on=node, priority=200)]
    nodes, devices = sorted({"a", node}), 1 + int(device[-1])
    scene = Scene.of(*waits("p"), *waits("equal"), *held, nodes="".join(nodes), devices=devices)
    scene.filter("p")
    await scene.turns()
    assert "deletionTimestamp" in (await scene.pod("v"))["metadata"]
    return scene


async def test_a_device_that_becomes_free_on_another_node_is_left_to_another_pod() -> None:
    scene = await evicted()
    await scene.end({"boss"})
    found = scene.filter("p")
    assert (found.passed, found.unresolvable.in_words()) == ((), {"b": ON_A})
    assert list(found.failed) == ["a"]
    assert scene.filter("equal").passed == ("b",)
    await scene.terminate()
    assert scene.filter("p").passed == ("a",)
    assert await scene.bind("p", "a") == await scene.bind("equal", "b") == ""


async def test_a_device_that_becomes_free_on_the_same_node_is_left_to_another_pod() -> None:
    scene = await evicted("a/gpu-1")
    await scene.end({"boss"})
    assert scene.filter("p").passed == ()
    assert "waiting for devices of terminating pods" in await scene.bind("p", "a")
    assert await scene.bind("equal", "a") == ""
    await scene.terminate()
    assert await scene.bind("p", "a") == ""
    assert devices_of(await scene.cluster.api.get(CLAIMS, ObjectKey("ns", "p-c"))) == ["a/gpu-0"]


async def test_explain_says_what_the_pod_waits_for() -> None:
    scene = await evicted()
    await scene.end({"boss"})
    found = Explainer.alone(scene.cluster.state.snapshot, scene.solver).explain(scene.known("p"))
    where = "the devices that are kept for it on node a, until terminating pods have gone"
    assert found.summary == f"pod ns/p cannot be placed: it waits for {where}"


async def test_a_pod_takes_another_device_if_its_victims_take_long_to_terminate() -> None:
    scene = await evicted()
    await scene.end({"boss"})
    await scene.turns(1)
    scene.now += WAITING_SECONDS - 1
    await scene.turns(1)
    assert scene.filter("p").passed == ()
    scene.now += 1
    await scene.turns(1)
    assert scene.filter("p").passed == ("b",)
    assert not scene.filter("equal", names="a").passed, "the device is still kept"
    assert await scene.bind("p", "b") == ""
    await scene.turns(1)
    assert scene.counted("preemption_victims_in_vain_total") == 1


async def test_a_pod_that_waits_no_longer_still_gets_its_own_device_if_nothing_else_is_free() -> None:
    scene = await evicted()
    await scene.turns(1)
    scene.now += WAITING_SECONDS + 1
    await scene.turns(1)
    assert scene.filter("p").passed == ()
    await scene.terminate()
    assert scene.filter("p").passed == ("a",)


async def test_a_pod_does_not_wait_for_a_node_that_the_scheduler_does_not_ask_about() -> None:
    scene = await evicted()
    await scene.end({"boss"})
    assert scene.filter("p", names="b").passed == ("b",)


async def test_a_pod_waits_also_if_its_scheduler_has_not_heard_of_the_nomination() -> None:
    scene = await evicted()
    old = replace(scene.known("p"), kept=scene.known("equal").kept, nominated_node="", resource_version="1")
    assert refreshed(old, scene.cluster.state.snapshot).kept.node == "a"
    new = replace(old, resource_version="1000000")
    assert refreshed(new, scene.cluster.state.snapshot) is new


async def checked(scene: Scene) -> None:
    """The task checks twice what is kept."""
    for _ in range(2):
        await scene.turns(1)
        scene.now += CHECK_SECONDS
    await scene.turns(1)


LOST: dict[str, tuple[Resource, str, RawObject]] = {
    "the device is not published any more": (SLICES, "slice-a", {"spec": {"devices": []}}),
    "the node is cordoned": (NODES, "a", {"spec": {"unschedulable": True}}),
}


@pytest.mark.parametrize(("kind", "name", "change"), LOST.values(), ids=LOST)
async def test_a_nomination_for_lost_devices_ends_without_another_filter_call(
    kind: Resource, name: str, change: RawObject
) -> None:
    scene = await evicted()
    before = await scene.cluster.api.get(kind, ObjectKey("", name))
    await scene.cluster.api.patch(kind, ObjectKey("", name), change)
    await scene.turns(1)
    scene.now += CHECK_SECONDS
    await scene.turns(1)
    assert scene.known("p").kept.node == "a", "the driver may publish its devices anew"
    await scene.cluster.api.update(kind, {**await scene.cluster.api.get(kind, ObjectKey("", name)), **spec(before)})
    await checked(scene)
    assert scene.known("p").kept.node == "a"
    await scene.cluster.api.patch(kind, ObjectKey("", name), change)
    await checked(scene)
    assert scene.known("p").kept.node == ""
    assert scene.counted("preemption_victims_in_vain_total") == 0


async def test_a_nomination_ends_after_a_pod_of_higher_priority_has_taken_the_device() -> None:
    scene = await evicted()
    for each in waits("chief", priority=150):
        scene.cluster.load(each)
    await scene.terminate()
    assert await scene.bind("chief", "a") == ""
    await checked(scene)
    assert scene.known("p").kept.node == ""
    assert scene.counted("preemption_victims_in_vain_total") == 0


async def test_a_nomination_does_not_end_because_of_a_rival() -> None:
    """Another replica has kept the same devices for another pod at the same moment, and that replica has stopped."""
    scene = await evicted()
    rival = waits("rival", created="2025-01-01T00:00:00Z")
    rival[0]["status"]["conditions"] = [kept(await scene.pod("p"))]
    for each in rival:
        scene.cluster.load(each)
    await checked(scene)
    assert scene.known("rival").kept.devices == scene.known("p").kept.devices != ()


def kept(raw: RawObject) -> RawObject:
    """The condition that names what is kept for a pod."""
    found: RawObject = next(each for each in raw["status"]["conditions"] if each["type"] == KEPT)
    return found


def spec(raw: RawObject) -> RawObject:
    return {"spec": raw.get("spec", {})}
