"""Controller work: what background tasks ask of controllers goes on between the turns of the tasks.

A controller may take minutes for an answer. No task waits for it in a turn: all pods need the other tasks meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from typing import Generic, TypeVar

from extender.tools.faults import Faults

_K = TypeVar("_K", bound=Hashable)


class ControllerWork(Generic[_K]):
    """The work of one background task that waits for controllers: one piece at a time for each object.

    Each controller has a limit of its own, so a controller that hangs keeps no other from work.

    Args:
        faults: gets unexpected errors, each with its object.
        most: the highest number of pieces that wait for one controller at the same time.
    """

    def __init__(self, faults: Faults, most: int) -> None:
        self._faults = faults
        self._most = most
        self._running: dict[_K, tuple[Collection[str], asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, key: _K) -> bool:
        return key in self._running

    @property
    def running(self) -> Sequence[asyncio.Task[None]]:
        """The pieces that run."""
        return [task for _, task in self._running.values()]

    def has_room(self, controllers: Collection[str], most: Callable[[str], int] | None = None) -> bool:
        """Whether work that waits for these controllers may begin.

        Args:
            controllers: by name.
            most: of each controller, the highest number of pieces, where that is lower than the limit for all.
        """
        used = [name for names, _ in self._running.values() for name in names]
        return all(used.count(name) < min(self._most, most(name) if most else self._most) for name in controllers)

    def begin(self, key: _K, subject: str, controllers: Collection[str], work: Callable[[], Awaitable[None]]) -> None:
        """Begin a piece of work.

        Args:
            key: names the object. It has no work that runs.
            subject: the object, as `extender.tools.faults` names it.
            controllers: those that the work may wait for.
            work: does it.
        """
        task = asyncio.create_task(self._run(subject, work))
        self._running[key] = (controllers, task)
        task.add_done_callback(lambda _: self._running.pop(key))

    async def _run(self, subject: str, work: Callable[[], Awaitable[None]]) -> None:
        with self._faults.of(subject):
            await work()
