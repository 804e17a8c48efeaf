"""CCI drivers of tests, and a node part that knows them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from extender.node.cci import Ask, End, Grant, RefusedError, Start, serving
from extender.node.cci.admissions import SECONDS
from extender.node.topology import Cpu, Topology
from tests.extender.node.compute_scenes import Node, connected
from tests.kit.nri_runtime import FakeRuntime

EIGHT = Topology.of([Cpu(number, number % 4, 0, 0) for number in range(8)], {0: 2**30})
"""Four cores of two CPUs: 0 and 4, 1 and 5, ..."""

DRIVER = "one.example.com"


def lowest(ask: Ask) -> Grant:
    return Grant(frozenset(sorted(ask.numbers)[: ask.cores]))


@dataclass
class Scripted:
    """A driver that does what a test says.

    Attributes:
        choose: what CCIAdmit answers.
        refusing: the methods that it refuses.
        hanging: set, it answers; cleared, it hangs.
        heard: what it was told, in order.
    """

    name: str = DRIVER
    choose: Callable[[Ask], Grant] = lowest
    refusing: set[str] = field(default_factory=set)
    hanging: Event = field(default_factory=Event)
    heard: list[Ask | Start | End] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hanging.set()

    def admit(self, ask: Ask) -> Grant:
        self._hear("admit", ask)
        return self.choose(ask)

    def add(self, start: Start) -> None:
        self._hear("add", start)

    def remove(self, end: End) -> None:
        self._hear("remove", end)

    def _hear(self, method: str, what: Ask | Start | End) -> None:
        self.heard.append(what)
        self.hanging.wait(30)
        if method in self.refusing:
            raise RefusedError(f"no {method} today")

    @property
    def ended(self) -> list[str]:
        """The containers of which it was told that they have ended."""
        return [each.container_id for each in self.heard if isinstance(each, End)]


@asynccontextmanager
async def running(
    folder: Path, runtime: FakeRuntime, *drivers: Scripted, seconds: float = SECONDS
) -> AsyncIterator[Node]:
    """A node part that was just started, and follows the runtime; the drivers run already."""
    async with AsyncExitStack() as stack:
        for each in drivers:
            await stack.enter_async_context(serving(each, folder / "cci"))
        node = Node.started(folder, EIGHT, seconds)
        await node.manager.registry.look()
        await stack.enter_async_context(connected(node, runtime, folder))
        yield node
        for each in drivers:
            each.hanging.set()
