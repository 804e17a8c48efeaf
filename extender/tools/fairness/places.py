"""Places: a few works for people go on at a time, in fair turns of their callers.

Verbs go before all of them (`extender.tools.verb_priority`).
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter
from types import TracebackType
from typing import Final, TypeVar

from extender.tools.fairness.turns import Turns
from extender.tools.offload import Offload, to_the_end

_T = TypeVar("_T")

WAITING_SECONDS: Final = 15.0
"""The longest wait for a place. The longest work has 10 s, and who has used nothing comes next after it."""

MOST_WAITING: Final = 16
"""Works of one caller that wait for a place. Others are refused: the caller would wait for minutes."""


class CrowdedError(Exception):
    """There is no place in time: others have them all, or the caller waits with too many works."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A work that waits for a place."""

    caller: str
    turn: asyncio.Future[None]


class Places:
    """A few places for works, with shares by caller.

    Threads share one interpreter: with 64 of them, the event loop would get a 64th of the time. Of the callers that
    wait, the one that has used the least time lately comes next (`Turns`). No caller waits without an end. The places
    belong to the event loop.

    Args:
        most: works at a time.
        of_caller: works of one caller at a time. Less than ``most``, so that somebody else finds a place at once.
        clock: measures durations, in seconds.
    """

    def __init__(self, most: int, of_caller: int, clock: Callable[[], float]) -> None:
        self._free = most
        self._of_caller = of_caller
        self._clock = clock
        self._turns = Turns(clock)
        self._working: Counter[str] = Counter()
        self._waiting: list[_Waiter] = []
        """In the order of arrival."""

    @property
    def waiting(self) -> int:
        """The number of works that wait for a place."""
        return len(self._waiting)

    async def take(self, caller: str) -> "Place":
        """A place for one work of a caller, which has to be left.

        Raises:
            CrowdedError: there is none in time.
        """
        if sum(each.caller == caller for each in self._waiting) >= MOST_WAITING:
            raise CrowdedError(f"{MOST_WAITING} other requests of yours wait for their turn; try again")
        waiter = _Waiter(caller, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._serve()
        try:
            async with asyncio.timeout(WAITING_SECONDS):
                await waiter.turn
        except BaseException as error:
            self._give_up(waiter)
            if isinstance(error, TimeoutError):
                raise CrowdedError("the requests of others take long; try again") from None
            raise
        return Place(self._leave, caller, self._clock())

    def offload(self, off_loop: Offload, caller: str) -> Offload:
        """A way to have works of a caller done, each in a place.

        The place of a caller that is cancelled is free once its work has ended.
        """

        async def run(work: Callable[[], _T]) -> _T:
            with await self.take(caller):
                return await to_the_end(off_loop(work))

        return run

    def _serve(self) -> None:
        while self._free and (waiter := self._next()):
            self._waiting.remove(waiter)
            self._working[waiter.caller] += 1
            self._free -= 1
            waiter.turn.set_result(None)

    def _next(self) -> _Waiter | None:
        may = [each for each in self._waiting if not each.turn.done() and self._working[each.caller] < self._of_caller]
        return next(self._turns.ordered(may, attrgetter("caller")), None)

    def _give_up(self, waiter: _Waiter) -> None:
        """End waiting. A place that was found in the same moment is left."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        else:
            self._leave(waiter.caller, self._clock())

    def _leave(self, caller: str, since: float) -> None:
        self._turns.spend(caller, self._clock() - since)
        self._working[caller] -= 1
        if not self._working[caller]:
            del self._working[caller]
        self._free += 1
        self._serve()


class Place(AbstractContextManager["Place"]):
    """A place that a work has; it is left at the end of the context.

    Args:
        leave: is told the caller, and since when it has had the place.
    """

    def __init__(self, leave: Callable[[str, float], None], caller: str, since: float) -> None:
        self._leave = leave
        self._caller = caller
        self._since = since

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Leave the place, once."""
        self._leave(self._caller, self._since)
