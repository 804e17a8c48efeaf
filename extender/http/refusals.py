"""The log's lines about callers that are refused: ten at once, then one a second, whoever calls how often."""

import time
from collections.abc import Callable
from typing import Final

import structlog

from extender.access.pace import Pace

logger = structlog.get_logger()

_ALL: Final = ""
"""All callers share one pace."""


class Refusals:
    """Logs refusals.

    Args:
        clock: seconds, from any point.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._pace = Pace(1.0, 10.0, clock)
        self._left_out = 0

    def tell(self, why: str, client: str) -> None:
        """Log a refusal, or only count it if there were many lately."""
        if not self._pace.allows(_ALL):
            self._left_out += 1
            return
        more = {"left_out": self._left_out} if self._left_out else {}
        logger.warning("caller refused", why=why, client=client, **more)
        self._left_out = 0
