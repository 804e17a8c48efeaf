"""Turns of decoding: of all that comes from outside, one long input is decoded at a time, and then none for a while.

A parser in C keeps the interpreter until it is done, and one in Python slows all others down. Each source alone may
leave enough time to the verbs, and all of them together none. So they share one pace.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Final, Generic, TypeAlias, TypeVar

from extender.tools.fairness.turns import Turns
from extender.tools.offload import Offload

_T = TypeVar("_T")

SLICE_SECONDS: Final = 0.005
"""Of work in small steps, so much is done in one turn, in seconds of a processor."""

Steps: TypeAlias = Generator[None, None, _T]
"""Work in small steps, of less than a millisecond each; it returns what it makes."""


def at_once(steps: Steps[_T]) -> _T:
    """What work in steps makes, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found


@dataclass(frozen=True, slots=True)
class _Done(Generic[_T]):
    """The result of work in steps."""

    value: _T


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A piece that waits for its turn."""

    source: str
    turn: asyncio.Future[None]


class DecodingTurns:
    """Gives turns to pieces of decoding, one at a time for the whole process. It belongs to the event loop.

    After a piece nothing is decoded for as long as it took, or as its source wants: so all of it together has half of
    the time of one processor at most. Of the sources that wait, the one that has used the least time lately comes next.

    Args:
        clock: measures durations, in seconds.
        worked: the processor time of the current thread, in seconds.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, worked: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._worked = worked
        self._turns = Turns(clock)
        self._is_taken = False
        self._waiting: list[_Waiter] = []
        """In the order of arrival."""

    def __len__(self) -> int:
        """The number of pieces that wait."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, source: str, pause: Callable[[float], float] = float) -> AsyncIterator[None]:
        """Wait for a turn, and have it.

        Args:
            source: whose turn it is.
            pause: seconds in which nothing is decoded after the piece, by the seconds that it took.
        """
        await self._wait(source)
        began = self._clock()
        try:
            yield
        finally:
            took = self._clock() - began
            self._turns.spend(source, took)
            self._end(pause(took))

    async def in_slices(self, source: str, steps: Steps[_T], off_loop: Offload) -> _T:
        """What work in steps makes; each slice of it has a turn, and runs off the loop.

        On a busy machine a slice may take long without working, and the pause after it does not count that.
        """
        while True:
            async with self.turn(source, partial(min, SLICE_SECONDS)):
                done = await off_loop(partial(self._slice, steps))
            if done is not None:
                return done.value

    def _slice(self, steps: Steps[_T]) -> _Done[_T] | None:
        until = self._worked() + SLICE_SECONDS
        while self._worked() < until:
            try:
                next(steps)
            except StopIteration as end:
                return _Done(end.value)
        return None

    async def _wait(self, source: str) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        waiter = _Waiter(source, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            await waiter.turn
        except BaseException:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not waiter.turn.cancelled():  # the turn has come in the same moment
                self._next()
            raise

    def _end(self, pause: float) -> None:
        if pause > 0:
            asyncio.get_running_loop().call_later(pause, self._next)
        else:
            self._next()

    def _next(self) -> None:
        found = next(self._turns.ordered(self._waiting, attrgetter("source")), None)
        self._is_taken = found is not None
        if found is not None:
            self._waiting.remove(found)
            if found.turn.done():  # its caller has left
                self._next()
            else:
                found.turn.set_result(None)
