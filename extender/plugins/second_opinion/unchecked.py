"""Reasons not to check a selector: known differences of cel-python from CEL as Kubernetes has it, and too much work.

A selector that calls a function, or uses syntax, that cel-python does not have is not checked either; `Unchecked` says
which. A test has an expression for each difference. Any user can write a selector, and cel-python has no limits.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final

from celpy import celtypes


class Difference(Enum):
    """The known differences; each value completes "not checked: ..."."""

    BOOL_TEXT = "it writes booleans and doubles as Python does"
    TWO_TYPES = "it does not compare values of two types"
    TYPES = "it lacks an operation on values of these types"
    NEGATIVE_INDEX = "it counts a negative index from the end of a list"
    EMPTY_LIST = "it evaluates what is looked for in an empty list"
    ERROR_IN_MAP = "it takes an error as a value of a map"
    ERROR_IN_MACRO = "it lets an error within map, filter or exists_one end the whole selector"
    HAS_ERROR = "it takes each error in has() as a missing field"
    NOT_BOOL = "it takes values that are no booleans as conditions"
    MACRO_ON_TEXT = "it runs macros over the characters of a text"
    NULL_SIZE = "it takes the size of what has none"
    ZERO_DIVISOR = "it divides doubles by zero in another way"
    NUMBER_TEXT = "it reads numbers in a text as Python does"
    ROUNDING = "it converts large or negative doubles in another way"
    COMPUTED_QUANTITY = "Kubernetes treats sums and fractions of quantities in another way"
    LARGE_NUMBER = "it reads the least integer as one that is too large, and its sign"
    ESCAPES = "it reads escapes in a text in another way"
    SHADOWED = "it does not tell a variable of a macro from a function of the same name"


class Unchecked(Exception):  # noqa: N818 - it is no error: the answer is withheld
    """The second engine has no answer that may be compared.

    Attributes:
        why: a text that completes "not checked: ...".
    """

    def __init__(self, why: "Difference | str") -> None:
        super().__init__(why)
        self.why = why.value if isinstance(why, Difference) else why


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
