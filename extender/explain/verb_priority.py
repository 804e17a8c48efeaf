"""Verbs go first: an explanation waits while one is under way, and never keeps the interpreter for long."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_SLICE_SECONDS: Final = 0.001
"""Work between two times that others may go on."""

_BREATH_SECONDS: Final = 0.0001
"""Enough for the interpreter to change to another thread that waits for it."""

_PATIENCE_SECONDS: Final = 1.0
"""For all verbs that one explanation makes way for; from then on it takes turns with them."""


class VerbPriority:
    """Counts the verbs under way on the event loop, and holds back those that explain in other threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._under_way = 0

    @contextmanager
    def verb(self) -> Iterator[None]:
        """Within, a verb is under way."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def turn(self) -> Callable[[], None]:
        """What one explanation is to call between small pieces of work."""
        worked_since = self._clock()
        patience = _PATIENCE_SECONDS

        def pause() -> None:
            nonlocal worked_since, patience
            while self._under_way and patience > 0:
                self._sleep(_SLICE_SECONDS)
                patience -= _SLICE_SECONDS
            if self._clock() - worked_since >= _SLICE_SECONDS:
                self._sleep(_BREATH_SECONDS if not self._under_way else _SLICE_SECONDS)
                worked_since = self._clock()

        return pause
