"""What happens to other pods while a turn of the preemptor chooses victims for one."""

from tests.extender.preempting import Scene, runs, waits


async def test_a_pod_that_gets_a_node_while_victims_are_chosen_for_another_pod_is_left_alone() -> None:
    held = [*runs("x", "a/gpu-0", on="a", priority=1), *runs("y", "b/gpu-0", on="b", priority=2)]
    scene = Scene.of(*waits("p"), *waits("q", priority=50), *held, nodes="ab")
    scene.filter("p")
    scene.filter("q")

    async def q_gets_a_node() -> None:
        scene.task.on_passed(scene.known("q"))

    scene.meanwhile = q_gets_a_node
    await scene.turns(1)
    assert await scene.pods() == ["p", "q", "y"], "the turn goes on to its end"


async def test_a_pod_that_is_rejected_again_while_victims_are_chosen_for_another_pod_has_a_turn_later() -> None:
    held = [*runs("x", "a/gpu-0", on="a", priority=1), *runs("y", "b/gpu-0", on="b", priority=2)]
    scene = Scene.of(*waits("p"), *waits("q", priority=50), *held, nodes="ab")
    scene.filter("p")
    scene.filter("q")

    async def q_is_rejected_on_a() -> None:
        scene.meanwhile = None
        scene.filter("q", names=["a"])

    scene.meanwhile = q_is_rejected_on_a
    await scene.turns()
    assert await scene.pods() == ["p", "q", "y"], "the latest call counts, and it is too young"
    await scene.turns()
    assert await scene.pods() == ["p", "q", "y"], "the latest call is about node a alone"


async def test_victims_are_chosen_half_a_second_after_the_first_of_many_rejections() -> None:
    """While plain pods come and go, a scheduler tries the pod again several times a second."""
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    for _ in range(6):
        scene.filter("p")
        await scene.task.tick()
        scene.now += 0.1
    await scene.task.tick()
    assert await scene.pods() == ["p"]


async def test_a_choice_is_void_if_the_scheduler_makes_room_meanwhile() -> None:
    scene = Scene.of(*waits("p"), *runs("v", "a/gpu-0", on="a"))
    scene.filter("p")

    async def makes_room() -> None:
        scene.task.on_victims(scene.known("p"))

    scene.meanwhile = makes_room
    await scene.turns()
    assert (await scene.pods(), scene.searches) == (["p", "v"], 1)
