"""The log's lines about callers that are refused: at most one a second, whoever calls how often."""

import time
from collections.abc import Callable
from typing import Final

import structlog

logger = structlog.get_logger()

_PAUSE: Final = 1.0


class Refusals:
    """Logs refusals.

    Args:
        clock: seconds, from any point.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._not_before = float("-inf")
        self._left_out = 0

    def tell(self, why: str, client: str) -> None:
        """Log a refusal, or only count it if the one before was less than a second ago."""
        now = self._clock()
        if now < self._not_before:
            self._left_out += 1
            return
        more = {"left_out": self._left_out} if self._left_out else {}
        logger.warning("caller refused", why=why, client=client, **more)
        self._left_out, self._not_before = 0, now + _PAUSE
