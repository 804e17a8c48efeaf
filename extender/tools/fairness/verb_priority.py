"""Verbs go first: an explanation pauses while a verb runs, and never holds the interpreter for long."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from extender.tools.offload import Offload

_T = TypeVar("_T")

_SLICE_SECONDS: Final = 0.001
"""Seconds of work between two pauses."""

_YIELD_SECONDS: Final = 0.0001
"""Long enough for the interpreter to switch to a waiting thread."""

_MOST_WAITING_SECONDS: Final = 1.0
"""Total waiting of one explanation for verbs; afterwards it takes turns with them."""


class VerbPriority:
    """Counts the running verbs of the event loop, and delays explanations in other threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._running = 0

    @contextmanager
    def verb(self) -> Iterator[None]:
        """Within, a verb runs."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def offload(self, off_loop: Offload) -> Offload:
        """A way to have verbs work off the loop."""

        async def run(work: Callable[[], _T]) -> _T:
            with self.verb():
                return await off_loop(work)

        return run

    def turn(self) -> Callable[[], None]:
        """The function that one explanation calls between small pieces of work."""
        worked_since = self._clock()
        waiting_left = _MOST_WAITING_SECONDS

        def pause() -> None:
            nonlocal worked_since, waiting_left
            while self._running and waiting_left > 0:
                self._sleep(_SLICE_SECONDS)
                waiting_left -= _SLICE_SECONDS
            if self._clock() - worked_since >= _SLICE_SECONDS:
                self._sleep(_YIELD_SECONDS if not self._running else _SLICE_SECONDS)
                worked_since = self._clock()

        return pause
