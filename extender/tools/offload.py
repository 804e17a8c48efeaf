"""Work off the event loop, so that health checks and other calls are answered meanwhile.

Work runs on a call stack in one piece, where a loop is as fast at each depth of calls. CPython keeps the frames of
calls in chunks of 16 KiB. A loop whose calls begin at the end of a chunk gets a new chunk from the operating system for
each call, and gives it back; measured: 25 µs instead of 0.1 µs a call (2026-11-30, a virtual machine). Late versions of
3.13 and 3.14 keep one chunk (python/cpython issue 142183). A frame that needs much room gets a chunk that is larger
than its need, and all calls below it use the rest of the chunk.
"""

import asyncio
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast

import anyio
import anyio.to_thread

from extender.tools.verb_priority import VerbPriority

_T = TypeVar("_T")

_SLOTS: Final = 1 << 15
"""Words that the frame asks for: 256 KiB, which nobody touches. The chunk has 512 KiB: room for about 2,000 calls."""


def _called(work: Callable[[], Any]) -> Any:  # noqa: ANN401  # its code is made anew, and its types are those of `in_one_piece`
    return work()


_with_room: Final = FunctionType(_called.__code__.replace(co_stacksize=_SLOTS), {})


def in_one_piece(work: Callable[[], _T]) -> _T:
    """The result or the error of work; the calls below this one stay in one chunk of the stack.

    No frame of it holds the result: an error that is returned would be in a cycle then.
    """
    return cast("_T", _with_room(work))


SHORT_SECONDS: Final = 0.005
"""A search that takes no longer than this never waits for other searches."""

SLICE_SECONDS: Final = 0.01
"""A turn of a longer search."""

BACKGROUND_SECONDS: Final = 0.001
"""A piece of background work: then it rests (`VerbPriority.rest`)."""

HOLD_SECONDS: Final = 0.25
"""Who waits for a turn waits so long for one that goes on: the longest rest of background work, and more."""

MOST_THREADS: Final = 128
"""At the same time. Most of them wait for their turn, and a waiting thread costs almost nothing."""

MOST_IN_BACKGROUND: Final = 32
"""Threads of background work at the same time. They take no place of a verb's search."""

_SWITCH_SECONDS: Final = 0.0005


class Offload(Protocol):
    """A way to have work done off the loop."""

    async def __call__(self, work: Callable[[], _T]) -> _T:
        """The work's result or error. A caller that is cancelled no longer waits for it, unless it is `waited_for`."""
        ...


async def at_once(work: Callable[[], _T]) -> _T:
    """An `Offload` on the loop itself: for short work, or for a program that has nothing else to do meanwhile."""
    return work()


async def in_thread(work: Callable[[], _T]) -> _T:
    """An `Offload` to a thread of anyio."""
    return await _in_thread(work, None)


async def _in_thread(work: Callable[[], _T], limiter: anyio.CapacityLimiter | None) -> _T:
    """Run work in a thread. Its error is in no cycle of objects.

    Otherwise the future of the work would hold the error, the error the frames that wait for the future, and these the
    snapshot that was worked on, until Python looks for cycles, which may take an hour.
    """
    call = partial(in_one_piece, partial(_caught, work, (Exception,)))
    return _result(await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter))


async def to_the_end(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of work that a thread does. A caller that is cancelled ends only after the work.

    So the caller gives back nothing that the thread still uses, such as room for what it decodes.
    """
    return _result(await _end_of(work))


async def _end_of(work: Coroutine[Any, Any, _T]) -> "_T | _Failed":
    task = asyncio.create_task(_caught_later(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        raise


async def _caught_later(work: Coroutine[Any, Any, _T]) -> "_T | _Failed":
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - raised again in the caller, without a cycle; see `_in_thread`
        return _Failed(error)


def waited_for(off_loop: Offload) -> Offload:
    """The same way to run work, but a caller that is cancelled ends only after the work; see `to_the_end`."""

    async def run(work: Callable[[], _T]) -> _T:
        return await to_the_end(off_loop(work))

    return run


@dataclass(frozen=True, slots=True)
class _Failed:
    """What came of work that has failed."""

    error: Exception


def _caught(work: Callable[[], _T], kinds: tuple[type[Exception], ...]) -> _T | _Failed:
    try:
        return work()
    except kinds as error:
        return _Failed(error)


def _bare(work: Callable[[], _T], kinds: tuple[type[Exception], ...]) -> _T | _Failed:
    """The same, but an error comes alone: without its traceback, whose frames hold what was worked on."""
    found = _caught(work, kinds)
    if isinstance(found, _Failed):
        found.error.__cause__ = found.error.__context__ = None
        found.error.__traceback__ = None
    return found


def _result(found: _T | _Failed) -> _T:
    if not isinstance(found, _Failed):
        return found
    try:
        raise found.error
    finally:
        del found  # this frame is in the error's traceback from now on


def frameless(off_loop: Offload, *kinds: type[Exception]) -> Offload:
    """The same, but errors of these kinds come without their tracebacks: whoever keeps them keeps nothing else."""

    async def run(work: Callable[[], _T]) -> _T:
        return _result(await off_loop(partial(_bare, work, kinds)))

    return run


@dataclass(frozen=True, slots=True)
class Of(Generic[_T]):
    """Work of a namespace. Where works take turns, the namespaces do."""

    namespace: str
    work: Callable[[], _T]

    def __call__(self) -> _T:
        """Do the work."""
        return self.work()


def namespace_of(work: Callable[[], object]) -> str:
    """Whose work it is; empty: it is not said."""
    return work.namespace if isinstance(work, Of) else ""


Turn: TypeAlias = threading.Event
"""Is set when the turn begins."""


class Queue:
    """Turns: one at a time, the namespaces one after the other, and in a namespace in the order of arrival.

    A turn ends for the others once it has taken `hold_seconds`: its thread may do work that never looks at the clock.

    Args:
        hold_seconds: the time.
    """

    def __init__(self, hold_seconds: float = HOLD_SECONDS) -> None:
        self._hold_seconds = hold_seconds
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Turn]] = {}
        """By namespace; the one whose turn is next comes first. None is empty."""
        self._turn: Turn | None = None
        """The turn that goes on."""

    def __len__(self) -> int:
        """The number of threads that wait."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def enter(self, namespace: str = "") -> Turn:
        """Wait for a turn, and return it."""
        turn = Turn()
        with self._lock:
            before = self._turn
            if before is None:
                self._turn = turn
                return turn
            self._waiting.setdefault(namespace, deque()).append(turn)
        while not turn.wait(self._hold_seconds):
            with self._lock:
                if self._turn is before:
                    self._begin_next()
                before = self._turn
        return turn

    def leave(self, turn: Turn) -> None:
        """End a turn, unless it has ended for the others already; a thread of the next namespace gets one."""
        with self._lock:
            if self._turn is turn:
                self._begin_next()

    def is_to_end(self, turn: Turn) -> bool:
        """Whether others wait for the end of a turn, or another one goes on instead."""
        with self._lock:
            return bool(self._waiting) or self._turn is not turn

    def _begin_next(self) -> None:
        namespace = next(iter(self._waiting), None)
        if namespace is None:
            self._turn = None
            return
        turns = self._waiting.pop(namespace)
        self._turn = turns.popleft()
        self._turn.set()
        if turns:
            self._waiting[namespace] = turns


class _Piece(threading.local):
    """The search that the current thread runs.

    Attributes:
        until: the end of its time without a turn, or of its turn; infinite if the thread runs no search.
        turn: the turn that it has; None: it has none.
        is_background: it is background work.
        worked: the processor time of the thread when the piece of background work began.
        rested: seconds for which the search has rested. They do not count as its time.
        namespace: whose search it is.
    """

    until: float = math.inf
    turn: Turn | None = None
    is_background: bool = False
    worked: float = 0.0
    rested: float = 0.0
    namespace: str = ""


class Searches:
    """Searches in threads. Threads share one interpreter, so long searches take turns: one runs at a time.

    A hard search delays other hard searches. It delays neither short ones nor the event loop, which would otherwise
    wait for all computing threads each time it continues. A search takes its turn when it looks at the clock, which it
    does before each selector, and within a selector that is costly. If it does not look, the others go on beside it
    after `HOLD_SECONDS`. The turns go round the namespaces (`Of`): however many hard searches one of them has, another
    one waits for one turn of these.

    Background work has turns of its own, which are shorter, and rests between them. So all of it together has a share
    of the interpreter at most while verbs are called, and verbs never wait for it.

    Attributes:
        verbs: says how long background work rests.

    Args:
        clock: seconds, from any point.
        verbs: the same; None: one with this clock.
        worked: the processor time of the current thread, in seconds.
        hold_seconds: the longest turn for which the others wait; see `Queue`.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        verbs: VerbPriority | None = None,
        worked: Callable[[], float] = time.thread_time,
        hold_seconds: float = HOLD_SECONDS,
    ) -> None:
        self._now = clock
        self.verbs = verbs or VerbPriority(clock)
        self._worked = worked
        self._piece = _Piece()
        self._long, self._background = Queue(hold_seconds), Queue(hold_seconds)
        self._threads = anyio.CapacityLimiter(MOST_THREADS)
        self._background_threads = anyio.CapacityLimiter(MOST_IN_BACKGROUND)

    @property
    def waiting(self) -> int:
        """The number of long searches that wait for their turn."""
        return len(self._long)

    @property
    def waiting_in_background(self) -> int:
        """The number of background works that wait for their turn."""
        return len(self._background)

    def clock(self) -> float:
        """The time. A long search waits here for its turn; any other caller gets the time at once."""
        now, piece = self._now(), self._piece
        if now < piece.until:
            return now - piece.rested
        if piece.is_background:
            self._end_piece()
            self._begin_piece()
            return self._now() - piece.rested
        if piece.turn is None:
            piece.turn = self._long.enter(piece.namespace)
        elif self._long.is_to_end(piece.turn):
            self._long.leave(piece.turn)
            piece.turn = self._long.enter(piece.namespace)
        now = self._now()
        piece.until = now + SLICE_SECONDS
        return now

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        """An `Offload`."""
        return await _in_thread(partial(self._run, work), self._threads)

    async def in_background(self, work: Callable[[], _T]) -> _T:
        """An `Offload` for background work."""
        return await _in_thread(partial(self._run_in_background, work), self._background_threads)

    def _run(self, work: Callable[[], _T]) -> _T:
        piece = self._piece
        piece.namespace = namespace_of(work)
        piece.until = self._now() + SHORT_SECONDS
        try:
            return work()
        finally:
            piece.until = math.inf
            if piece.turn is not None:
                self._long.leave(piece.turn)
                piece.turn = None

    def _run_in_background(self, work: Callable[[], _T]) -> _T:
        piece = self._piece
        piece.is_background, piece.namespace = True, namespace_of(work)
        self._begin_piece()
        piece.rested = 0.0
        try:
            return work()
        finally:
            self._end_piece()
            piece.until, piece.is_background, piece.rested = math.inf, False, 0.0

    def _begin_piece(self) -> None:
        """Wait for a turn of background work, and rest in it."""
        piece, before = self._piece, self._now()
        piece.turn = self._background.enter(piece.namespace)
        self.verbs.rest()
        now = self._now()
        piece.rested += now - before
        piece.until, piece.worked = now + BACKGROUND_SECONDS, self._worked()

    def _end_piece(self) -> None:
        piece = self._piece
        self.verbs.spend(self._worked() - piece.worked)
        if piece.turn is not None:
            self._background.leave(piece.turn)
            piece.turn = None


@contextmanager
def switching_soon() -> Iterator[None]:
    """Within the context, a computing thread gives up the interpreter after 0.5 ms if another thread wants it.

    With Python's 5 ms the event loop would wait 5 ms after each wait for the network, several times in a call.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
