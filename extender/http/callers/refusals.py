"""Callers that are refused: all are counted, and the log has ten lines at once, then one a second."""

import time
from collections.abc import Callable
from typing import Final

import structlog

from extender.access.gate import Pace, RefusalReason

logger = structlog.get_logger()

_ALL: Final = ""
"""All callers share one pace."""


class Refusals:
    """Counts and logs refusals.

    Args:
        count: is called for each refusal.
        clock: seconds, from any point.
    """

    def __init__(
        self, count: Callable[[RefusalReason], None] = lambda _: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count
        self._pace = Pace(1.0, 10.0, clock)
        self._left_out = 0

    def tell(self, reason: RefusalReason, why: str, client: str) -> None:
        """Count a refusal, and log it unless there were many lately."""
        self._count(reason)
        if not self._pace.allows(_ALL):
            self._left_out += 1
            return
        more = {"left_out": self._left_out} if self._left_out else {}
        logger.warning("caller refused", why=why, client=client, **more)
        self._left_out = 0
