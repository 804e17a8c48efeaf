"""Device preemption on several nodes: where room is made, in a cluster in memory."""

from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import NODES
from tests.extender.plugins.preemption.scenes import DELETE, Scene, runs, waits
from tests.kit.clusters import request
from tests.kit.servers.memory import Fault

FORBIDDEN = Fault(refused=ApiError(403, "Forbidden", "not allowed"))


async def test_others_are_chosen_once_the_scheduler_rejects_the_node() -> None:
    held = [*runs("x", "a/gpu-0", on="a", priority=1), *runs("y", "b/gpu-0", on="b", priority=2)]
    scene = Scene.of(*waits("p"), *held, nodes="ab")
    scene.transport.script(DELETE, FORBIDDEN)
    scene.filter("p")
    await scene.turns()
    assert scene.known("p").kept.node == "a"
    await scene.cluster.api.patch(NODES, ObjectKey("", "a"), {"spec": {"unschedulable": True}})
    scene.filter("p", names="b")
    await scene.turns()
    assert (scene.known("p").kept.node, await scene.pods()) == ("", ["p", "x", "y"])
    scene.filter("p", names="b")
    await scene.turns()
    assert (scene.known("p").kept.node, await scene.pods()) == ("b", ["p", "x"])


async def test_nobody_is_evicted_on_a_node_that_the_scheduler_has_not_asked_about_this_time() -> None:
    scene = Scene.of(
        *waits("p"), *runs("v", "a/gpu-0", on="a"), *runs("boss", "b/gpu-0", on="b", priority=200), nodes="ab"
    )
    scene.transport.script(DELETE, FORBIDDEN)
    scene.filter("p")
    await scene.turns()
    scene.filter("p", names="b")
    await scene.turns()
    assert (scene.known("p").kept.node, await scene.pods()) == ("a", ["boss", "p", "v"])


async def test_two_gpus_of_one_node_are_freed_by_two_pods_or_by_one_that_has_both() -> None:
    one_each = [*runs("x", "a/gpu-0", on="a", priority=1), *runs("y", "a/gpu-1", on="a", priority=1)]
    both = runs("z", "b/gpu-0", "b/gpu-1", on="b", priority=1)
    scene = Scene.of(*waits("p", request(count=2)), *one_each, *both, nodes="ab", devices=2)
    scene.filter("p")
    await scene.turns()
    assert await scene.pods() == ["p", "x", "y"]
