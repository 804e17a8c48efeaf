"""What happens to other pods while a turn of the preemptor chooses victims for one."""

from extender.framework.filter import filter_nodes
from extender.framework.task import Rejection
from extender.kube.api import ObjectKey
from tests.extender.plugins.preemption.scenes import Scene, runs, waits
from tests.kit.clusters import request


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


async def test_costly_choices_for_one_namespace_leave_the_others_their_turn() -> None:
    """The pods of one namespace have the higher priority, no victims help them, and each choice takes long."""
    hopeless = [f"h{number}" for number in range(10)]
    costly = [
        each | {"metadata": each["metadata"] | {"namespace": "hostile"}}
        for number, name in enumerate(hopeless)
        for each in waits(name, request(count=5 + number), priority=1000)
    ]
    scene = Scene.of(*costly, *waits("mine"), *runs("x", "a/gpu-0", on="a", priority=1))
    scene.search_seconds = 0.2
    snapshot = scene.cluster.state.snapshot
    for name in hopeless:
        pod = snapshot.pods[ObjectKey("hostile", name)]
        scene.task.on_rejected(Rejection(pod, ["a"], filter_nodes(pod, ["a"], snapshot, scene.solver), snapshot))
    scene.filter("mine")
    await scene.turns(1)
    assert scene.known("mine").kept.node == "a"
