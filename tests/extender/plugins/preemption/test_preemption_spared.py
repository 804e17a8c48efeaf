"""No pod is evicted for a pod that fits without evictions, however late that turns out."""

from tests.extender.plugins.preemption.scenes import MARK, Scene, runs, waits
from tests.kit.servers.memory import Fault


def two_nodes() -> Scene:
    """The pod p waits. Pod v of lower priority has the device of node a; pod boss has that of node b."""
    boss = runs("boss", "b/gpu-0", on="b", priority=200)
    return Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"), *boss, nodes="ab")


async def test_a_device_that_becomes_free_before_the_choice_spares_the_victim() -> None:
    scene = two_nodes()
    assert not scene.filter("p").passed
    await scene.end({"boss"})
    await scene.turns()
    assert await scene.pods() == ["p", "v"]
    assert scene.known("p").kept.node == ""


async def test_a_device_that_becomes_free_after_the_nomination_spares_the_victim_and_ends_the_nomination() -> None:
    scene = two_nodes()
    scene.transport.script(MARK, Fault(before=lambda: scene.end({"boss"})))
    scene.filter("p")
    await scene.turns()
    assert await scene.pods() == ["p", "v"]
    assert scene.known("p").kept.node == ""
    assert scene.filter("p").passed == ("b",)


async def test_a_device_on_a_node_that_the_scheduler_was_not_asked_about_spares_no_victim() -> None:
    scene = two_nodes()
    scene.filter("p", names="a")
    await scene.end({"boss"})
    await scene.turns()
    assert await scene.pods() == ["p"]


async def test_a_pod_that_filter_lets_pass_while_its_victims_are_checked_evicts_no_pod() -> None:
    scene = two_nodes()

    async def passes() -> None:
        if scene.known("p").kept.node:
            await scene.end({"boss"})
            assert scene.filter("p").passed == ("b",)

    scene.meanwhile = passes
    scene.filter("p")
    await scene.turns()
    assert await scene.pods() == ["p", "v"]


async def test_devices_that_victims_of_another_pod_leave_over_are_waited_for() -> None:
    """The first pod needs one of the two devices of its victim. The second pod gets the other one."""
    held = [*runs("large", "b/gpu-0", "b/gpu-1", on="b", priority=1), *runs("small", "a/gpu-0", on="a", priority=2)]
    more = runs("other", "a/gpu-1", on="a", priority=200)
    scene = Scene.of(*waits("first", priority=101), *waits("second"), *held, *more, nodes="ab", devices=2)
    for name in ("first", "second"):
        assert not scene.filter(name).passed
    await scene.turns()
    assert await scene.pods() == ["first", "other", "second", "small"]
