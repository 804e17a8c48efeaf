"""Waiting budget: how long schedulers wait for one thing that is slow, such as the answers of a controller.

kube-scheduler filters one pod at a time. So the pods of all tenants wait while filter waits for one of them. Without a
bound, what is slow but always in time would stop the scheduling of pods that do not need it.
"""

from dataclasses import dataclass
from typing import Final

SAVED_SECONDS: Final = 10.0
"""What is not spent is saved for this long. With a share of 0.1, one second of waiting is saved."""

QUICK_SECONDS: Final = 0.01
"""So much of each wait is free: an ordinary pod takes kube-scheduler about as long."""

_IDLE_SECONDS: Final = 10.0
"""A namespace that has not asked for this long leaves its part to the others."""

_MOST_NAMESPACES: Final = 1024


@dataclass(slots=True)
class _Part:
    """The seconds that one namespace has spent, as of a time; and when the namespace has asked last."""

    spent: float
    at: float


class WaitingBudget:
    """Seconds that schedulers may wait for one thing, with equal parts for the namespaces that ask.

    Args:
        share: of each second that may be waited, from 0 to 1. With 0, nobody waits.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._most = share * SAVED_SECONDS
        self._total = _Part(0.0, 0.0)
        self._parts: dict[str, _Part] = {}

    def left(self, namespace: str, now: float) -> float:
        """Return how long filter may wait now for a pod of a namespace, in seconds.

        The namespace counts as one that asks. So if all asked in the last seconds, each has an equal part.
        """
        if not self._share:
            return 0.0
        self._forget_idle(now)
        part = self._parts.pop(namespace, _Part(0.0, now))
        self._parts[namespace] = part  # the last one of the dictionary has asked last
        number = len(self._parts)
        self._restore(part, now, self._share / number)
        self._restore(self._total, now, self._share)
        left = min(self._most / number - part.spent, self._most - self._total.spent)
        return max(0.0, left) + QUICK_SECONDS

    def spend(self, namespace: str, seconds: float) -> None:
        """Count a wait of a namespace that `left` was asked about."""
        costs = max(0.0, seconds - QUICK_SECONDS)
        for part in (self._total, self._parts.get(namespace)):
            if part is not None:
                part.spent += costs

    def _restore(self, part: _Part, now: float, rate: float) -> None:
        part.spent = max(0.0, part.spent - rate * max(0.0, now - part.at))
        part.at = now

    def _forget_idle(self, now: float) -> None:
        while self._parts:
            namespace, oldest = next(iter(self._parts.items()))
            if now <= oldest.at + _IDLE_SECONDS and len(self._parts) < _MOST_NAMESPACES:
                return
            del self._parts[namespace]
