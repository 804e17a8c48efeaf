"""Containers come and go, drivers fail, and node part and driver are killed: nobody has CPUs of others."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from extender.node import cpu_list
from extender.node.cci import Ask, Grant, Start, serving
from extender.node.store import ResourceStore
from tests.extender.node.cci_scenes import DRIVER, EIGHT, Scripted, running
from tests.extender.node.compute_scenes import Node, given
from tests.kit.nri_runtime import FakeRuntime, container
from tests.kit.waiting import wait_for_answer

EXAMPLES = int(os.environ.get("CCI_EXAMPLES", "10"))
CLAIM = frozenset({1, 2, 5, 6})
BUILT_IN = frozenset({3})

ANSWERS = st.sampled_from(["right", "shared", "foreign", "few", "refuses", "fails to add"])
CREATE = st.tuples(st.just("create"), ANSWERS | st.sampled_from(["right", "shared"]), st.integers(1, 2))
OTHERS = st.tuples(
    st.sampled_from(["stop", "kill node part", "kill driver", "start driver"]), st.just(""), st.integers(0, 9)
)
OPERATIONS = st.lists(CREATE | CREATE | OTHERS, min_size=6, max_size=20)


class World:
    """A node with a claim of a driver, a claim without one, and a plain container."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = FakeRuntime({"plain": container("plain")})
        self.driver = Scripted()
        self.serving: AsyncExitStack | None = None
        self.made = 0

    async def drive(self) -> None:
        """Start the driver, if it does not run."""
        if self.serving is None:
            self.serving = AsyncExitStack()
            await self.serving.enter_async_context(serving(self.driver, self.folder / "cci"))

    async def kill_driver(self) -> None:
        if self.serving is not None:
            await self.serving.aclose()
            self.serving = None

    async def do(self, node: Node, cdi: Sequence[str], operation: str, answer: str, number: int) -> None:
        match operation:
            case "create":
                self.made += 1
                self.driver.choose = lambda ask: chosen(ask, answer)
                self.driver.refusing = {"refuses": {"admit"}, "fails to add": {"add"}}.get(answer, set())
                with suppress(AssertionError):
                    await self.runtime.create(f"c{self.made}", *cdi, cores=number)
            case "stop":
                names = sorted(self.runtime.containers.keys() - {"plain", "other"})
                if names:
                    await self.runtime.stop(names[number % len(names)])
            case "kill driver":
                await self.kill_driver()
            case "start driver":
                await self.drive()
                await node.manager.registry.look()

    def check(self, node: Node) -> None:
        """Each container has its own CPUs, and the file of the store says so."""
        cpus = {uid: cpu_list.parse(text) for uid, text in self.runtime.cpus().items()}
        assert cpus.pop("other") == BUILT_IN
        assert not cpus.pop("plain") & (CLAIM | BUILT_IN)
        (held,) = (each for each in node.store.sets.values() if each.driver)
        assert {uid: portion.cpus for uid, portion in held.portions.items()} == cpus
        assert all(found <= CLAIM for found in cpus.values())
        for uid, portion in held.portions.items():
            others = frozenset[int]().union(*(each for other, each in cpus.items() if other != uid))
            assert not (portion.exclusive and portion.cpus & others)
        saved = ResourceStore(EIGHT.numbers)
        saved.load(self.folder / "state")
        assert (saved.sets, saved.removals) == (node.store.sets, node.store.removals)


def chosen(ask: Ask, answer: str) -> Grant:
    found = sorted(ask.numbers)
    match answer:
        case "foreign":
            return Grant(frozenset({*found[1:], 7}))
        case "few":
            return Grant(frozenset(found[: ask.cores - 1]))
        case _:
            return Grant(frozenset(found[: ask.cores]), exclusive=answer != "shared")


async def run(operations: Sequence[tuple[str, str, int]]) -> tuple[World, Node]:
    with tempfile.TemporaryDirectory(prefix="cci") as name:
        world, rest = World(Path(name)), list(operations)
        try:
            return world, await lived(world, rest)
        finally:
            await world.kill_driver()


async def lived(world: World, rest: list[tuple[str, str, int]]) -> Node:
    """The last node part, after all operations and the end of all containers."""
    cdi: list[str] = []
    await world.drive()
    while True:
        async with running(world.folder, world.runtime) as node:
            if not cdi:
                cdi = await given(node, "a", *(f"cpu-{each}" for each in sorted(CLAIM)), driver=DRIVER)
                await world.runtime.create("other", *await given(node, "b", "cpu-3"))
            world.check(node)
            while rest:
                operation, answer, number = rest.pop(0)
                if operation == "kill node part":
                    break
                await world.do(node, cdi, operation, answer, number)
                world.check(node)
            else:
                await end(world, node)
                return node


async def end(world: World, node: Node) -> None:
    """All containers end, and the driver is back."""
    for uid in sorted(world.runtime.containers.keys() - {"plain", "other"}):
        await world.runtime.stop(uid)
    world.driver.refusing = set()
    await world.drive()

    async def owed() -> int:
        await node.manager.registry.look()
        return len(node.store.removals)

    await wait_for_answer(owed, lambda found: not found, "the driver knows of every end", within=10)
    await node.cpus.unprepare("uid-a")
    await node.cpus.unprepare("uid-b")


@settings(max_examples=EXAMPLES, deadline=None)
@examples(OPERATIONS)
async def test_law_nobody_has_cpus_of_others_and_the_driver_is_told_of_every_end(
    operations: Sequence[tuple[str, str, int]],
) -> None:
    world, node = await run(operations)
    started = {each.container_id for each in world.driver.heard if isinstance(each, Start)}
    assert started <= {*world.driver.ended}
    assert world.runtime.cpus()["plain"] == "0-7"
    assert node.store.available_resources() == EIGHT.numbers - {0}
