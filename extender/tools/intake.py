"""One account for the memory and the time of everything that comes from outside, while it is read and worked on.

Each source of input has a share, which is less than the whole: so no source takes all of the budget from the others.

One long input is decoded at a time, and then none for a while. A parser in C keeps the interpreter until it is done,
and one in Python slows all others down. Each source alone may leave enough time to the verbs, and all of them together
none. So they share one pace.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Final, Generic, TypeAlias, TypeVar

from extender.tools.fairness import Turns
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


class CycleTurns:
    """Gives turns to pieces of work that take a part of a millisecond, and of which hundreds may come at once.

    One piece begins in each cycle of the event loop, and all other calls of the loop go on in between. A caller with
    many pieces delays another one by one piece. A piece that is alone never waits.
    """

    def __init__(self) -> None:
        self._is_taken = False
        """The turn of this cycle."""
        self._waiting: dict[str, deque[Callable[[], bool]]] = {}
        """What begins each piece, by caller; the caller whose turn is next comes first."""

    def __len__(self) -> int:
        """The number of pieces that wait."""
        return sum(map(len, self._waiting.values()))

    def is_free(self) -> bool:
        """Whether a piece may begin in this cycle. If so, the cycle is taken now."""
        if self._is_taken:
            return False
        self._is_taken = True
        asyncio.get_running_loop().call_soon(self._begin_cycle)
        return True

    def wait(self, caller: str, begin: Callable[[], bool]) -> None:
        """Begin a piece in a later cycle, since this one is taken.

        Args:
            caller: whose piece it is.
            begin: begins it; False if there is nothing to do any more. Then another piece begins in that cycle.
        """
        self._waiting.setdefault(caller, deque()).append(begin)

    async def turn(self, caller: str) -> None:
        """Wait for a turn. The piece is what the caller does until it waits for something else."""
        if self.is_free():
            return
        turn = asyncio.get_running_loop().create_future()
        self.wait(caller, partial(_grant, turn))
        await turn

    def _begin_cycle(self) -> None:
        self._is_taken = False
        while self._waiting and not self._is_taken:
            self._begin(self._next())

    def _begin(self, begin: Callable[[], bool]) -> None:
        """Begin a piece. If it was begun, or failed, it has the cycle: what it wakes runs before the next turn."""
        self._is_taken = True
        try:
            self._is_taken = begin()
        finally:
            if self._is_taken:
                asyncio.get_running_loop().call_soon(self._begin_cycle)

    def _next(self) -> Callable[[], bool]:
        """What begins the next piece. The caller goes behind all others that wait."""
        caller = next(iter(self._waiting))
        begins = self._waiting.pop(caller)
        begin = begins.popleft()
        if begins:
            self._waiting[caller] = begins
        return begin


def _grant(turn: asyncio.Future[None]) -> bool:
    """Give a turn; False if the caller has left."""
    if turn.done():
        return False
    turn.set_result(None)
    return True


BUDGET_SHARE: Final = 4
"""The budget is a quarter of the memory that the process may take. What is known of a large cluster takes half of a
gibibyte, and answers, remembered decisions and sessions take the rest."""

DEFAULT_BYTES: Final = 256 * 1024 * 1024
"""The budget of a process with one gibibyte."""

_COPY: Final = 4
"""For each byte: the text itself, what the parser keeps of it meanwhile, and the strings that are made of it. One emoji
makes each character of its text take four bytes."""

_VALUE: Final = 40
"""For each comma: a number or a string beside its characters, and its place in a list or an object."""

_LIST: Final = 64
_OBJECT: Final = 160
"""An object with one field takes 232 bytes, an empty one 64."""


class Source(Enum):
    """A source of input, and its share: so many eighths of the budget, some of which nothing else may take."""

    SCHEDULERS = "schedulers", 5, 1
    """Bodies of the verbs of kube-scheduler. A part is kept for them: they must not wait for people."""
    REQUESTS = "requests", 5
    """Bodies of all other requests on all HTTP listeners."""
    GRPC = "grpc", 3
    """Messages of gRPC."""
    CONTROLLERS = "controllers", 3
    """Answers of controllers."""
    REPLICAS = "replicas", 2
    """Answers of other replicas."""
    API_SERVER = "api_server", 2, 2
    """Objects in lists and watch events of the API server. This share is kept for them: what is known of the cluster
    must not become old because of requests."""

    def __init__(self, label: str, eighths: int, kept: int = 0) -> None:
        self.label = label
        self.eighths = eighths
        self.kept = kept


_MARKS: Final = b",[{"
_UNMARKED: Final = bytes(set(range(256)) - set(_MARKS))


def marks_of(text: bytes) -> bytes:
    """The commas and opening brackets of a text. One of them precedes each value but the outermost.

    One pass takes a third of the time of three counts.
    """
    return text.translate(None, _UNMARKED)


def json_weight(text: bytes) -> int:
    """Bytes that the text and its decoded value take, about: 0.5 to 5 times as many as they do.

    Brackets and commas in strings count, too. Pods and nodes of a cluster weigh 7 to 11 times as much as they are
    long, empty lists and objects up to 70 times.
    """
    marks = marks_of(text)
    return _COPY * len(text) + _VALUE * marks.count(b",") + _LIST * marks.count(b"[") + _OBJECT * marks.count(b"{")


class Room:
    """The room that one input takes of the budget. It grows while the input is read, and is given back as a whole."""

    __slots__ = ("_budget", "_source", "size")

    def __init__(self, budget: "Budget", source: Source) -> None:
        self._budget = budget
        self._source = source
        self.size = 0

    def grow(self, size: int) -> bool:
        """Take more bytes; False, and nothing is taken, if they are not left."""
        is_left = self._budget.take(self._source, size)
        self.size += size if is_left else 0
        return is_left

    def close(self) -> None:
        """Give back all that was taken."""
        if self.size:
            self._budget.give_back(self._source, self.size)
            self.size = 0


class Budget:
    """The account. It belongs to the event loop.

    Args:
        limit: bytes of all sources together.
        clock: measures how long sources decode, in seconds.

    Attributes:
        decoding: the turns in which all sources decode what is long.
        pieces: the turns in which pieces of long inputs are looked at on the event loop.
        refused: how many inputs of each source were refused because there was no room.
    """

    def __init__(self, limit: int = DEFAULT_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.decoding = DecodingTurns(clock)
        self.pieces = CycleTurns()
        self.refused = dict.fromkeys(Source, 0)
        self._taken = dict.fromkeys(Source, 0)
        self._waiting: deque[tuple[asyncio.Future[None], Source, int]] = deque()

    @property
    def taken(self) -> Mapping[Source, int]:
        """Bytes that each source takes now."""
        return self._taken

    def share(self, source: Source) -> int:
        """The most bytes that a source may take."""
        return self.limit * source.eighths // 8

    def take(self, source: Source, size: int) -> bool:
        """Take bytes; False, and nothing is taken, if they are not left."""
        is_left = self._is_left(source, size)
        if is_left:
            self._taken[source] += size
        else:
            self.refused[source] += 1
        return is_left

    def give_back(self, source: Source, size: int) -> None:
        """Give back bytes that were taken; who waits for room may get it."""
        self._taken[source] -= size
        self._serve()

    @contextmanager
    def room(self, source: Source) -> Iterator[Room]:
        """Room for one input, empty at first; all of it is given back when the context is left."""
        room = Room(self, source)
        try:
            yield room
        finally:
            room.close()

    @asynccontextmanager
    async def waiting(self, source: Source, size: int) -> AsyncIterator[None]:
        """Room for an input that can wait; first come, first served. More than the whole share counts as the share."""
        size = min(size, self.share(source))
        if self._waiting or not self._is_left(source, size):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((turn, source, size))
            try:
                await turn
            except BaseException:
                self._leave(turn, source, size)
                raise
        else:
            self._taken[source] += size
        try:
            yield
        finally:
            self.give_back(source, size)

    def _leave(self, turn: asyncio.Future[None], source: Source, size: int) -> None:
        """End waiting. If there was room in the same moment, it is given back."""
        if turn.done() and not turn.cancelled():
            self.give_back(source, size)
            return
        self._waiting = deque(each for each in self._waiting if each[0] is not turn)
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            turn, source, size = self._waiting[0]
            if not self._is_left(source, size):
                return
            self._waiting.popleft()
            if not turn.done():
                self._taken[source] += size
                turn.set_result(None)

    def _is_left(self, source: Source, size: int) -> bool:
        taken = self._taken[source] + size
        if taken > self.share(source):
            return False
        if taken <= self._reserve_of(source):
            return True
        others = sum(max(0, self._taken[each] - self._reserve_of(each)) for each in Source if each is not source)
        return others + taken - self._reserve_of(source) <= self.limit - sum(map(self._reserve_of, Source))

    def _reserve_of(self, source: Source) -> int:
        """Bytes that only this source may take."""
        return self.limit * source.kept // 8
