"""Verbs go first: explanations pause while a verb runs, and background work has a share of the time beside them.

People go before background work, too: it has no more than that share while somebody waits for a page.

Threads share one interpreter, and a computing thread keeps the event loop waiting for up to half a millisecond each
time that the loop continues. A verb continues some twenty times.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SHARE: Final = 0.2
"""Of each second, background work has this part at most while schedulers or people ask, all of it together."""

CREDIT_SECONDS: Final = 0.02
"""What background work has saved at most: so much of it goes on without a rest."""

_MOST_DEBT: Final = 0.02
"""Work that has taken longer than its piece, because it looks at no clock, is rested for as if it were this long."""

LONGEST_WAIT: Final = 0.01
"""After its rest, a piece of background work waits for the end of the verbs that run, for this time at most."""

_LOOK_SECONDS: Final = 0.002
"""Between two looks whether verbs still run."""

ASKED_SECONDS: Final = 1.0
"""Once no verb was called for this long, nobody is kept waiting, and background work needs no rest."""

_SLICE_SECONDS: Final = 0.001
"""Seconds of work between two pauses."""

_YIELD_SECONDS: Final = 0.0001
"""Long enough for the interpreter to switch to a waiting thread."""

_MOST_WAITING_SECONDS: Final = 1.0
"""Total waiting of one explanation for verbs; afterwards it takes turns with them."""


class VerbPriority:
    """Counts the running verbs of the event loop, and delays explanations and background work in other threads.

    Attributes:
        running: verbs that run now. A verb counts itself.
        calls: of verbs until now. A verb that waits more than it works, such as bind, counts only its call.
        reading: pages and tables that are made for people now, or wait for their place.

    Args:
        clock: measures durations, in seconds.
        sleep: lets a thread wait.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self.running = 0
        self.calls = 0
        self.reading = 0
        self._seen = 0
        """How many calls were known at the last look, and when there was a new one."""
        self._asked = -ASKED_SECONDS
        self._lock = threading.Lock()
        self._credit = CREDIT_SECONDS
        self._at = clock()
        """When the credit was worked out."""

    @contextmanager
    def verb(self) -> Iterator[None]:
        """Within, a verb runs."""
        self.calls += 1
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    @contextmanager
    def reader(self) -> Iterator[None]:
        """Within, somebody waits for a page."""
        self.reading += 1
        try:
            yield
        finally:
            self.reading -= 1

    def turn(self) -> Callable[[], None]:
        """The function that one explanation calls between small pieces of work."""
        worked_since = self._clock()
        waiting_left = _MOST_WAITING_SECONDS

        def pause() -> None:
            nonlocal worked_since, waiting_left
            while self.running and waiting_left > 0:
                self._sleep(_SLICE_SECONDS)
                waiting_left -= _SLICE_SECONDS
            if self._clock() - worked_since >= _SLICE_SECONDS:
                self._sleep(_YIELD_SECONDS if not self.running else _SLICE_SECONDS)
                worked_since = self._clock()

        return pause

    def spend(self, seconds: float) -> None:
        """Count the processor time of a piece of background work."""
        with self._lock:
            self._renew()
            self._credit = max(self._credit - seconds, -_MOST_DEBT)

    def rest(self) -> None:
        """Wait until the next piece of background work may begin. Call it in its thread."""
        with self._lock:
            self._renew()
            owed = -self._credit
        if not self._is_asked():
            return
        if owed > 0.0:
            self._sleep(owed / SHARE)
        until = self._clock() + LONGEST_WAIT
        while self.running and self._clock() < until:
            self._sleep(_LOOK_SECONDS)

    def _is_asked(self) -> bool:
        now = self._clock()
        if self.running or self.calls != self._seen:
            self._seen, self._asked = self.calls, now
        return self.reading > 0 or now < self._asked + ASKED_SECONDS

    def _renew(self) -> None:
        now = self._clock()
        self._credit = min(CREDIT_SECONDS, self._credit + SHARE * (now - self._at))
        self._at = now
