"""What a decision may cost, and has cost: devices tried, and time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from allocator.cel import OutOfTimeError
from allocator.cel.selectors import Selectors
from allocator.errors import SearchLimitError
from allocator.model.devices import AttributeValue, Device

Clock = Callable[[], float]
"""Seconds that only ever grow."""

_CLOCK_EVERY: Final = 256
"""Steps between looks at the clock, which costs about as much as a step."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to give up: devices tried, and seconds."""

    steps: int = 100_000
    seconds: float = 1.0


DEFAULT_LIMITS: Final = Limits()


class SearchBudget:
    """Counts the steps of one decision and watches its time, from now on.

    Attributes:
        steps: devices tried for a place of a request.
    """

    __slots__ = ("_clock", "_limits", "_until", "steps")

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._until = clock() + limits.seconds
        self.steps = 0

    def step(self) -> None:
        """Count a step.

        Raises:
            SearchLimitError: one too many, or time is up.
        """
        if self.steps >= self._limits.steps:
            raise SearchLimitError(self.steps, "steps")
        self.steps += 1
        if self.steps % _CLOCK_EVERY == 0:
            self.look()

    def look(self) -> None:
        """Look at the clock: to be done before anything that may take long.

        Raises:
            SearchLimitError: time is up.
        """
        if self._clock() > self._until:
            raise self.timeout()

    def expired(self) -> bool:
        """Whether time is up."""
        return self._clock() > self._until

    def timeout(self) -> SearchLimitError:
        """What to raise when time is up."""
        return SearchLimitError(self.steps, "time")


class TimedSelectors:
    """Selectors on the time of one decision, which ends an evaluation as well."""

    __slots__ = ("_effort", "_expired", "_selectors")

    def __init__(self, selectors: Selectors, effort: SearchBudget) -> None:
        self._selectors = selectors
        self._effort = effort
        self._expired = effort.expired

    def matches(self, expression: str, device: Device) -> bool:
        """As `Selectors.matches`.

        Raises:
            CompileError, EvaluationError: as there.
            SearchLimitError: time is up.
        """
        self._effort.look()
        try:
            return self._selectors.matches(expression, device, self._expired)
        except OutOfTimeError:
            raise self._effort.timeout() from None

    def derive(self, expression: str, device: Device) -> AttributeValue:
        """As `Selectors.derive`.

        Raises:
            CompileError, EvaluationError: as there.
            SearchLimitError: time is up.
        """
        self._effort.look()
        try:
            return self._selectors.derive(expression, device, self._expired)
        except OutOfTimeError:
            raise self._effort.timeout() from None
