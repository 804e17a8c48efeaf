"""kill -9 at any point of a preemption: what is left on the API server, and that the next process carries it on.

The rows of the table in docs/explanation/preemption.md.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from extender.kube.api import Event, RawObject
from extender.kube.resources import Resource
from extender.plugins.preemption.nominations import KEPT_SECONDS
from tests.extender.framework.bind.mortal import End, Mortal, killed
from tests.extender.plugins.preemption.scenes import Scene, runs, slow, waits
from tests.kit.clusters import request
from tests.kit.servers.memory import Fault, Transport

FREE_ENDED = End(5, done=False)


@dataclass(frozen=True)
class Row:
    """A state in which a preemption by the pod p, with the victims v and w, can end.

    Attributes:
        end: of the process.
        kept: devices are kept for p.
        marked: victims with a condition that says that they are evicted.
        deleted: victims that are deleted.
    """

    end: End
    kept: bool
    marked: str = ""
    deleted: str = ""


ROWS = {
    "before the nomination": Row(End(0, done=False), kept=False),
    "after the nomination": Row(End(0, done=True), kept=True),
    "after the first DisruptionTarget": Row(End(1, done=True), kept=True, marked="v"),
    "after the first delete": Row(End(2, done=True), kept=True, marked="v", deleted="v"),
    "after the last DisruptionTarget": Row(End(3, done=True), kept=True, marked="vw", deleted="v"),
    "after the last delete": Row(End(4, done=True), kept=True, marked="vw", deleted="vw"),
}


def scene() -> Scene:
    """The pod p needs two devices; those of v and w on node a are the choice, and those of other on node b are not."""
    victims = [*slow(runs("v", "a/gpu-0", on="a")), *slow(runs("w", "a/gpu-1", on="a"))]
    other = runs("other", "b/gpu-0", "b/gpu-1", on="b", priority=50)
    return Scene.of(*waits("p", request(count=2)), *waits("equal"), *victims, *other, nodes="ab", devices=2)


async def crashed(row: Row) -> Scene:
    """The cluster after a process has died."""
    found = scene()
    await die(found, row.end)
    return found


async def die(found: Scene, end: End) -> None:
    """A process starts, begins a preemption for p, and dies."""
    mortal = Mortal(found.cluster.api, end)
    deleted = Deleted("v")
    found.cluster.api.follow(deleted)
    # So v is marked and deleted before w is.
    mortal.script("get pods", Fault(), Fault(), Fault(before=lambda: wait(deleted)))
    found.start(mortal)
    found.filter("p")

    await turns_until(found, mortal)


async def turns_until(found: Scene, mortal: Mortal) -> None:
    """The task has turns until its process dies."""

    async def turns() -> str:
        await found.turns()
        return ""

    task = asyncio.create_task(turns())
    await mortal.died.wait()
    await killed(task)


async def wait(event: asyncio.Event) -> None:
    await event.wait()


class Deleted(asyncio.Event):
    """A follower of the API server, set once a pod is deleted."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def apply(self, event: Event) -> None:
        metadata = event.object["metadata"]
        if metadata["name"] == self._name and "deletionTimestamp" in metadata:
            self.set()

    def replace(self, _resource: Resource, _objects: Iterable[RawObject], _at: int) -> bool:
        return True


def is_marked(raw: RawObject) -> bool:
    return any(each["type"] == "DisruptionTarget" for each in raw["status"].get("conditions", ()))


async def left(found: Scene) -> tuple[bool, str, str]:
    victims = {name: await found.pod(name) for name in "vw"}
    marked = [name for name, raw in victims.items() if is_marked(raw)]
    deleted = [name for name, raw in victims.items() if "deletionTimestamp" in raw["metadata"]]
    return found.known("p").kept.node == "a", "".join(marked), "".join(deleted)


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
async def test_what_is_left_the_next_process_carries_on(row: Row) -> None:
    found = await crashed(row)
    assert await left(found) == (row.kept, row.marked, row.deleted)
    found.start(Transport(found.cluster.api))
    found.filter("p")
    await found.turns()
    assert await left(found) == (True, "vw", "vw")
    await found.terminate()
    assert await found.pods() == ["equal", "other", "p"]
    assert not found.filter("equal").passed
    assert found.filter("p").passed == ("a",)
    assert await found.bind("p", "a") == ""


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
async def test_the_next_process_evicts_nobody_else_if_the_first_victim_has_gone_meanwhile(row: Row) -> None:
    """Also if nobody asks it about the pod: the devices of victims that live are theirs."""
    found = await crashed(row)
    found.start(Transport(found.cluster.api))
    await found.terminate()
    await found.turns()
    assert await found.pods() == sorted({"equal", "other", "p", "v", "w"} - set(row.deleted))


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.kept], ids=[n for n, r in ROWS.items() if r.kept])
async def test_the_next_process_ends_the_nomination_in_time(row: Row) -> None:
    found = await crashed(row)
    found.start(Transport(found.cluster.api))
    await found.terminate()
    await found.turns()
    assert found.known("p").kept.node == "a"
    found.now += KEPT_SECONDS + 1
    await found.turns()
    assert found.known("p").kept.node == ""


async def test_a_process_that_dies_before_it_ends_the_nomination_leaves_that_to_the_next() -> None:
    found = scene()
    mortal = Mortal(found.cluster.api, FREE_ENDED)
    found.start(mortal)
    found.filter("p")
    await found.turns()
    await found.terminate()
    await found.turns()
    found.now += KEPT_SECONDS + 1
    await turns_until(found, mortal)
    assert found.known("p").kept.node == "a"
    found.start(Transport(found.cluster.api))
    await found.turns()
    found.now += KEPT_SECONDS + 1
    await found.turns()
    assert found.known("p").kept.node == ""
    assert not found.filter("p").failed


async def test_processes_that_die_one_after_the_other_evict_nobody_else() -> None:
    found = scene()
    for row in ROWS.values():
        if row.kept and not row.deleted:
            await die(found, End(0, done=True))
    found.start(Transport(found.cluster.api))
    found.filter("p")
    await found.turns()
    await found.terminate()
    assert await found.pods() == ["equal", "other", "p"]
