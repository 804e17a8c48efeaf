"""Work that leaves the event loop, so that health checks and other calls are answered meanwhile."""

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol, TypeVar

import anyio
import anyio.to_thread

_T = TypeVar("_T")

SHORT_SECONDS: Final = 0.005
"""What takes no longer than this never waits for others."""

SLICE_SECONDS: Final = 0.01
"""Of what takes longer, before it is another's turn."""

MOST_THREADS: Final = 128
"""At the same time; most of them would wait for their turn, which costs next to nothing."""


_SWITCH_SECONDS: Final = 0.0005


class Offload(Protocol):
    """A way to have work done off the loop."""

    async def __call__(self, work: Callable[[], _T]) -> _T:
        """What the work returns or raises; who is cancelled no longer waits for it."""
        ...


async def in_thread(work: Callable[[], _T]) -> _T:
    """In a thread of anyio's."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


class Queue:
    """One at a time, first come, first served."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._is_busy = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def enter(self) -> None:
        """Wait for one's turn."""
        with self._lock:
            if not self._is_busy:
                self._is_busy = True
                return
            turn = threading.Event()
            self._waiting.append(turn)
        turn.wait()

    def leave(self) -> None:
        """End one's turn: it is the next one's."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._is_busy = False


class _Piece(threading.local):
    """What the thread that looks is at.

    Attributes:
        until: when it is to let others go first; never, where it is no search.
        is_long: it has taken long, and it is its turn.
    """

    until: float = math.inf
    is_long: bool = False


class Searches:
    """Searches in threads, which share one interpreter: those that take long go on one at a time, in turns.

    So a hard search costs other hard ones time, but neither what is soon done nor the event loop, which would have to
    wait for all threads that compute whenever it wants to go on. A search is known by the clock that it looks at.

    Args:
        clock: seconds, from any point.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._now = clock
        self._piece = _Piece()
        self._long = Queue()
        self._threads = anyio.CapacityLimiter(MOST_THREADS)

    def clock(self) -> float:
        """The time. A search that has taken long waits here for its turn; who is in no search is told at once."""
        now, piece = self._now(), self._piece
        if now < piece.until:
            return now
        if not piece.is_long:
            self._long.enter()
            piece.is_long = True
        elif self._long:
            self._long.leave()
            self._long.enter()
        now = self._now()
        piece.until = now + SLICE_SECONDS
        return now

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        """An `Offload`."""
        call = partial(self._run, work)
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._threads)

    def _run(self, work: Callable[[], _T]) -> _T:
        piece = self._piece
        piece.until = self._now() + SHORT_SECONDS
        try:
            return work()
        finally:
            piece.until = math.inf
            if piece.is_long:
                piece.is_long = False
                self._long.leave()


@contextmanager
def switching_soon() -> Iterator[None]:
    """While this lasts, a thread that computes gives up the interpreter after half a millisecond, if others want it.

    Python's own 5 ms pass each time that the event loop comes back from the network, several times in a call.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
