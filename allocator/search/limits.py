"""Limits: how many devices a decision may try, and how long it may take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from allocator.cel import OutOfTimeError
from allocator.cel.selectors import Selectors
from allocator.errors import SearchLimitError
from allocator.model.devices import AttributeValue
from allocator.model.slices.device import Device

Clock = Callable[[], float]
"""Returns seconds, monotonic."""

_CLOCK_EVERY: Final = 256
"""Steps between readings of the clock; a reading costs about as much as a step."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a search: devices tried, and seconds."""

    steps: int = 100_000
    seconds: float = 1.0


DEFAULT_LIMITS: Final = Limits()


class SearchBudget:
    """Counts the steps of one decision, and its time from now on.

    Attributes:
        steps: devices tried for a place of a request.
    """

    __slots__ = ("_clock", "_most", "_until", "steps")

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._most = limits.steps
        self._clock = clock
        self._until = clock() + limits.seconds
        self.steps = 0

    @contextmanager
    def keeping(self, share: float) -> Iterator[None]:
        """Within, a share of the steps and of the time that are left counts as used up."""
        most, until = self._most, self._until
        self._most -= int(share * (most - self.steps))
        self._until -= share * (until - self._clock())
        try:
            yield
        finally:
            self._most, self._until = most, until

    def step(self) -> None:
        """Count a step.

        Raises:
            SearchLimitError: a limit was reached.
        """
        if self.steps >= self._most:
            raise SearchLimitError(self.steps, "steps")
        self.steps += 1
        if self.steps % _CLOCK_EVERY == 0:
            self.look()

    def look(self) -> None:
        """Read the clock, before anything that may take long.

        Raises:
            SearchLimitError: time is up.
        """
        if self._clock() > self._until:
            raise self.timeout()

    def expired(self) -> bool:
        """Whether time is up."""
        return self._clock() > self._until

    def timeout(self) -> SearchLimitError:
        """The error to raise when time is up."""
        return SearchLimitError(self.steps, "time")


class TimedSelectors:
    """`Selectors` whose evaluations end when the time of a decision is up: they raise SearchLimitError, too."""

    __slots__ = ("_budget", "_expired", "_selectors")

    def __init__(self, selectors: Selectors, budget: SearchBudget) -> None:
        self._selectors = selectors
        self._budget = budget
        self._expired = budget.expired

    def matches(self, expression: str, device: Device) -> bool:
        """Like `Selectors.matches`."""
        self._budget.look()
        try:
            return self._selectors.matches(expression, device, self._expired)
        except OutOfTimeError:
            raise self._budget.timeout() from None

    def derive(self, expression: str, device: Device) -> AttributeValue:
        """Like `Selectors.derive`."""
        self._budget.look()
        try:
            return self._selectors.derive(expression, device, self._expired)
        except OutOfTimeError:
            raise self._budget.timeout() from None
