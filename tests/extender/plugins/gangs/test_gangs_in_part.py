"""What is left of a gang after some of its pods have gone: the others are told and run on, and a successor joins."""

from extender.answers.explain.explainer import Explainer
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.framework.asked import Asked
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from extender.plugins.gangs.in_part import (
    IN_PART,
    LOOK_SECONDS,
    MOST_TOLD,
    PATIENCE_SECONDS,
    WHOLE,
    GangsInPart,
    gauge_of_gangs_in_part,
)
from tests.extender.plugins.gangs.scenes import Scene, member, members, nodes
from tests.kit.clusters import Object

LEFT = "2 of 3 pods have a node, and keep it with their devices"
ALONE = f"group x runs in part: {LEFT}; no pod of the group waits for the rest"
WAITED_FOR = f"group x runs in part: {LEFT}; 1 more pod waits"


class Told(Scene):
    """A scene with the task that tells pods of their gangs.

    Attributes:
        told: who was told, why, and what, in order.
    """

    def __init__(self, *objects: Object, is_asked: bool = True) -> None:
        super().__init__(*objects)
        self.told: list[tuple[str, str, str]] = []
        asked, note_number = Asked(lambda: self.now), gauge_of_gangs_in_part(self.registry).set
        self.in_part = GangsInPart(self.cluster.state, self._tell, note_number, asked, lambda: self.now)
        if is_asked:
            asked.note(self.known("x0"))

    def _tell(self, pod: Pod, note: Note) -> None:
        self.told.append((pod.name, note.reason, note.text))

    async def wait(self, seconds: float = PATIENCE_SECONDS + LOOK_SECONDS) -> list[tuple[str, str, str]]:
        """What was told in this time."""
        self.told.clear()
        until = self.now + seconds
        while self.now < until:
            self.now += LOOK_SECONDS
            await self.in_part.tick()
        return list(self.told)

    def add(self, *objects: Object) -> None:
        """Objects come."""
        for each in objects:
            self.cluster.load(each)

    def explained(self, name: str) -> str:
        """What explain says of a pod."""
        found = Explainer.alone(self.cluster.state.snapshot, self.solver).explain(self.known(name))
        return "\n".join((found.summary, *found.notes))


async def running(size: int = 3, *, is_asked: bool = True) -> Told:
    """A gang that runs whole, each pod on a node of its own."""
    names = "abcdefghijklmnop"[:size]
    scene = Told(*nodes(names), *members("x", size), is_asked=is_asked)
    await scene.run()
    assert len(scene.bound()) == size
    assert await scene.wait() == []
    return scene


async def test_the_pods_that_are_left_are_told_that_one_has_gone() -> None:
    scene = await running()
    await scene.end("x1")
    assert await scene.wait() == [("x0", IN_PART, ALONE), ("x2", IN_PART, ALONE)]
    assert await scene.wait(600.0) == [], "once"
    assert scene.counted("gangs_in_part") == 1
    assert sorted(scene.bound()) == ["x0", "x2"], "what is left runs on"


async def test_the_successor_joins_and_the_gang_is_told_to_be_whole() -> None:
    scene = await running()
    freed = scene.bound()["x1"]
    await scene.end("x1")
    await scene.wait()
    scene.add(*member("x3", "x", 3))
    assert scene.reason("x3") == "waiting for devices for 1 of the 3 pods of group x: 2 have a node"
    await scene.turns()
    assert scene.known("x3").kept.node == freed
    assert await scene.wait() == [], "it has no node yet"
    await scene.schedule()
    assert scene.bound()["x3"] == freed
    whole = "3 pods of group x have a node again"
    assert await scene.wait() == [("x0", WHOLE, whole), ("x2", WHOLE, whole)]
    assert scene.counted("gangs_in_part") == 0


async def test_a_successor_that_comes_soon_is_nothing_to_tell() -> None:
    scene = await running()
    await scene.end("x1")
    await scene.wait(PATIENCE_SECONDS / 2)
    scene.add(*member("x3", "x", 3))
    await scene.run()
    assert len(scene.bound()) == 3
    assert await scene.wait() == []


async def test_a_successor_that_finds_no_device_is_told_of() -> None:
    scene = await running()
    freed = scene.bound()["x1"]
    await scene.end("x1")
    scene.add(*member("other", "y", 1))
    await scene.run()
    assert scene.bound()["other"] == freed
    scene.add(*member("x3", "x", 3))
    assert await scene.wait() == [("x0", IN_PART, WAITED_FOR), ("x2", IN_PART, WAITED_FOR)]
    waits = "waiting for devices for 1 of the 3 pods of group x: 2 have a node"
    cause = f"{waits}: 2 of 3 get devices; the third finds none: all 3 devices are in use"
    assert scene.explained("x3") == f"pod ns/x3 cannot be placed: {cause}"
    assert scene.explained("x0") == f"pod ns/x0 is bound to node {scene.bound()['x0']}\n{WAITED_FOR}"


async def test_a_gang_that_is_deleted_is_not_told_of() -> None:
    scene = await running()
    await scene.end("x0", "x1")
    await scene.wait(PATIENCE_SECONDS / 2)
    await scene.end("x2")
    assert await scene.wait() == []


async def test_pods_that_succeed_are_nothing_to_tell() -> None:
    scene = await running()
    await scene.cluster.api.patch_status(PODS, ObjectKey("ns", "x1"), {"status": {"phase": "Succeeded"}})
    assert await scene.wait() == []
    assert scene.explained("x0") == f"pod ns/x0 is bound to node {scene.bound()['x0']}"
    await scene.cluster.api.patch_status(PODS, ObjectKey("ns", "x2"), {"status": {"phase": "Failed"}})
    text = "group x runs in part: 1 of 3 pods have a node, and keep it with their devices"
    assert await scene.wait() == [("x0", IN_PART, f"{text}; no pod of the group waits for the rest")]


async def test_a_few_pods_of_a_large_gang_are_told() -> None:
    scene = await running(MOST_TOLD + 3)
    await scene.end("x1")
    assert len(await scene.wait()) == MOST_TOLD


async def test_a_replica_that_no_scheduler_asks_tells_nobody() -> None:
    scene = await running(is_asked=False)
    await scene.end("x1")
    assert await scene.wait() == []
    assert scene.counted("gangs_in_part") == 1


async def test_a_gang_that_has_more_pods_than_its_size_lacks_none() -> None:
    scene = Told(*nodes("abcd"), *members("x", 3), *member("x3", "x", 3))
    await scene.run()
    assert len(scene.bound()) == 4
    await scene.end("x1")
    assert await scene.wait() == []
