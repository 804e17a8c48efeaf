"""Arithmetic: 64-bit integers, where overflow is an error, and doubles."""

import math
from collections.abc import Callable
from typing import Final

from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Function, Library, Overload, free
from allocator.cel.types import DOUBLE, INT, UINT, Type
from allocator.cel.values import INT_MAX, INT_MIN, UINT_MAX, UInt


def checked_int(value: int) -> int:
    """The value, if it fits an int.

    Raises:
        EvaluationError: it does not.
    """
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def checked_uint(value: int) -> UInt:
    """The value, if it fits a uint.

    Raises:
        EvaluationError: it does not.
    """
    if 0 <= value <= UINT_MAX:
        return UInt(value)
    raise EvaluationError("unsigned integer overflow")


def _quotient(left: int, right: int) -> int:
    """Division that rounds towards zero."""
    if right == 0:
        raise EvaluationError("division by zero")
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("modulus by zero")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _divide(left: float, right: float) -> float:
    """IEEE division: by zero it is infinite, or not a number."""
    if right != 0.0:
        return left / right
    if left == 0.0 or math.isnan(left):
        return math.nan
    return math.inf * math.copysign(1.0, left) * math.copysign(1.0, right)


def _times(left: float, right: float) -> float:
    return left * right


def integer_overloads(operation: Callable[[int, int], int]) -> tuple[Overload, Overload]:
    """The overloads of an operator on two ints and on two uints.

    The order of overloads matters: an argument of unknown type takes the type of the first.
    """
    return (
        free(INT, INT, result=INT, call=lambda a, b: checked_int(operation(a, b))),
        free(UINT, UINT, result=UINT, call=lambda a, b: checked_uint(operation(int(a), int(b)))),
    )


def _both(kind: Type, call: Callable[[float, float], float]) -> Overload:
    return free(kind, kind, result=kind, call=call)


INT_ADDITION, UINT_ADDITION = integer_overloads(lambda a, b: a + b)
DOUBLE_ADDITION: Final = _both(DOUBLE, lambda a, b: a + b)
INT_SUBTRACTION, UINT_SUBTRACTION = integer_overloads(lambda a, b: a - b)
DOUBLE_SUBTRACTION: Final = _both(DOUBLE, lambda a, b: a - b)

_NEGATION: Final = Function(
    "-_",
    (free(DOUBLE, result=DOUBLE, call=lambda a: -a), free(INT, result=INT, call=lambda a: checked_int(-a))),
    singleton=True,
)

LIBRARY: Final[Library] = (
    Function("_*_", (_both(DOUBLE, _times), *integer_overloads(lambda a, b: a * b)), singleton=True),
    Function("_/_", (_both(DOUBLE, _divide), *integer_overloads(_quotient)), singleton=True),
    Function("_%_", integer_overloads(_remainder), singleton=True),
    _NEGATION,
)
