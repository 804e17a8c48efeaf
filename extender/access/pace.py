"""How often each of many callers may ask: a token bucket for each (as in API servers' own flow control)."""

from collections.abc import Callable, Hashable
from typing import Final

from allocator.tools import Recent

_KEPT: Final = 4096
"""Callers whose pace is known. One that was forgotten begins anew with a full bucket."""


class Pace:
    """Lets each caller ask so often.

    Args:
        rate: questions a second, in the long run.
        burst: questions at once.
        clock: seconds, from any point.
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left: Recent[tuple[float, float]] = Recent(_KEPT)

    def allows(self, caller: Hashable) -> bool:
        """Whether a caller may ask one question more now; if so, the question counts."""
        now = self._clock()
        left, at = self._left.find(caller) or (self._burst, now)
        left = min(self._burst, left + (now - at) * self._rate)
        may = left >= 1.0
        self._left.keep(caller, (left - may, now))
        return may
