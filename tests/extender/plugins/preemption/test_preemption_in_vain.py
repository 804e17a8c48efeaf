"""Evictions in vain: when they count, how long a pod waits after them, and the caps of evictions."""

import pytest

from extender.framework.bind_errors import BindError, ControllerRefusesError, ResourceQuotaRefusesError
from extender.kube.api import ObjectKey
from extender.kube.resources import NODES, PODS
from extender.plugins.preemption.eviction_limits import LONGEST_PAUSE_SECONDS, MOST_REFUSALS, EvictionCaps
from extender.plugins.preemption.nominations import KEPT_SECONDS, RETRY_SECONDS
from tests.extender.plugins.preemption.scenes import Scene, full, runs, waits

REFUSES = ControllerRefusesError("node a: controller c: it is busy")


async def test_victims_of_a_pod_that_is_deleted_were_evicted_in_vain() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    await scene.turns()
    await scene.cluster.api.delete(PODS, ObjectKey("ns", "p"))
    await scene.task.tick()
    assert scene.counted("preemption_victims_in_vain_total") == 1


async def test_a_pod_whose_binds_are_refused_has_evicted_in_vain_and_waits_before_it_evicts_again() -> None:
    held = [*runs("v", "a/gpu-0", on="a", priority=1), *runs("w", "b/gpu-0", on="b", priority=2)]
    scene = Scene.of(*waits("p"), *held, nodes="ab")
    scene.filter("p")
    await scene.turns()
    await scene.terminate()
    for number in range(MOST_REFUSALS):
        assert scene.known("p").kept.node == "a", "its devices are kept for the next try"
        assert scene.counted("preemption_victims_in_vain_total") == 0
        scene.task.on_bind_failed("uid-p", "a", BindError(f"out of time {number}"))
        scene.task.on_bind_failed("uid-p", "a", REFUSES)
        await scene.task.tick()
    assert scene.counted("preemption_victims_in_vain_total") == 1
    await scene.cluster.api.delete(NODES, ObjectKey("", "a"))
    for _ in range(3):
        scene.filter("p", names="b")
        await scene.turns()
    assert await scene.pods() == ["p", "w"], "the pause is not over"
    scene.now += LONGEST_PAUSE_SECONDS
    scene.filter("p", names="b")
    await scene.turns()
    assert await scene.pods() == ["p", "w"], "the cause is the same, and so are the victims"


async def test_what_is_kept_outlasts_a_bind_that_fails_until_the_next_try() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    await scene.turns()
    await scene.terminate()
    await scene.task.tick()
    scene.now += KEPT_SECONDS - 1
    scene.task.on_bind_failed("uid-p", "a", BindError("out of time"))
    scene.now += RETRY_SECONDS - 1
    await scene.task.tick()
    assert scene.known("p").kept.node == "a"
    scene.now += 2
    await scene.task.tick()
    assert scene.known("p").kept.node == ""


@pytest.mark.parametrize("error", [REFUSES, ResourceQuotaRefusesError("claim ns/p-c is not made: exceeded quota")])
async def test_nothing_is_kept_any_more_for_a_pod_whose_binds_are_refused_again_and_again(error: BindError) -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")
    await scene.turns()
    await scene.terminate()
    for _ in range(MOST_REFUSALS):
        assert scene.known("p").kept.node == "a"
        scene.task.on_bind_failed("uid-p", "a", error)
        await scene.task.tick()
        scene.now += RETRY_SECONDS / 2
    assert scene.known("p").kept.node == ""


async def test_caps_hold_for_pods_that_are_chosen_for_in_one_turn() -> None:
    nodes = [f"n{number}" for number in range(5)]
    held = [each for name in nodes for each in runs(f"v-{name}", f"{name}/gpu-0", on=name)]
    waiting = [each for number in range(5) for each in waits(f"p{number}")]
    scene = Scene(full(nodes, *held, *waiting), caps=EvictionCaps(9, 2, 9))
    for number in range(5):
        scene.filter(f"p{number}")
    await scene.turns()
    assert len(scene.told) == 2
    assert scene.registry.get_sample_value("dra_extender_evictions_refused_total", {"by": "victims"}) == 3
    scene.now += 60.0
    for number in range(5):
        scene.filter(f"p{number}")
    await scene.turns()
    assert len(scene.told) == 4
