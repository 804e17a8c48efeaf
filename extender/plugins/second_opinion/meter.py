"""Limits of the second engine for one selector: any user can write one, and cel-python has no limits."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from celpy import celtypes

from extender.plugins.second_opinion.differences import Unchecked

MOST_STEPS: Final = 30_000
"""The most steps of one evaluation. A step is a node of the syntax tree, or an element that is compared."""

MOST_WEIGHT: Final = 10_000
"""The most elements of one value; 64 characters count as one. What stands in a list twice counts twice."""

MOST_SECONDS: Final = 1.0
"""The longest evaluation."""

_STEPS_BETWEEN_LOOKS: Final = 64


class Meter:
    """Counts the work of an evaluation.

    Args:
        clock: measures durations, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._steps = 0
        self._pause = 0
        self._until = 0.0

    def begin(self) -> None:
        """Begin an evaluation."""
        self._steps, self._pause, self._until = 0, _STEPS_BETWEEN_LOOKS, self._clock() + MOST_SECONDS

    def spend(self, steps: int = 1) -> None:
        """Count steps.

        Raises:
            Unchecked: too many steps, or too much time.
        """
        self._steps += steps
        if self._steps > self._pause:
            self._pause = self._steps + _STEPS_BETWEEN_LOOKS
            if self._steps > MOST_STEPS or self._clock() > self._until:
                raise Unchecked("too much work for the second engine")

    def charge(self, values: Iterable[object]) -> None:
        """Count the elements that a function gets, before it looks at them."""
        for value in values:
            if isinstance(value, str | bytes | list | dict):
                self.spend(weight(value))


def weight(value: Any) -> int:  # noqa: ANN401 - a value of cel-python
    """The number of elements of a value, with those of its elements.

    Raises:
        Unchecked: more than the most.
    """
    if isinstance(value, str | bytes):
        found = 1 + len(value) // 64
    elif isinstance(value, celtypes.ListType | celtypes.MapType):
        found = getattr(value, "weight", 0) or _weighed(value)
    else:
        return 1
    if found > MOST_WEIGHT:
        raise Unchecked("too large a value for the second engine")
    return found


def _weighed(value: Any) -> int:  # noqa: ANN401 - a value of cel-python
    found = 1 + sum(map(weight, value))
    if isinstance(value, dict):
        found += sum(map(weight, value.values()))
    value.weight = found
    return found
