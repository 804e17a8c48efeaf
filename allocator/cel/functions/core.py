"""Operators and functions of the language that take all types."""

from collections.abc import Callable
from typing import Final

from allocator.cel.cost import BOTH, ELEMENTS, EQUALITY, SHORTER
from allocator.cel.equality import compare, contains, equal
from allocator.cel.errors import EvaluationError
from allocator.cel.functions import numbers, times
from allocator.cel.functions.declare import Function, Library, Overload, free, function, member
from allocator.cel.functions.strings import check_size
from allocator.cel.keys import ABSENT, find
from allocator.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    Type,
    list_of,
    map_of,
)
from allocator.cel.values import TypeValue, Value, type_name

_ORDERED: Final = (BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)
_COMPARABLE: Final = {INT: (INT, DOUBLE, UINT), UINT: (UINT, DOUBLE, INT), DOUBLE: (DOUBLE, INT, UINT)}


def _relation(name: str, holds: Callable[[int], bool]) -> Function:
    """An order operator: on two of a type, and on numbers of any two types. The overloads are in cel-go's order."""

    def call(left: Value, right: Value) -> bool:
        order = compare(left, right)
        return order is not None and holds(order)

    overloads = [
        free(t, other, result=BOOL, call=call, cost=SHORTER if t in (STRING, BYTES) else None)
        for t in _ORDERED
        for other in _COMPARABLE.get(t, (t,))
    ]
    return Function(name, tuple(overloads), singleton=True)


def _differs(left: Value, right: Value) -> bool:
    """Values that cannot be compared are different, although ``==`` fails for them."""
    try:
        return not equal(left, right)
    except EvaluationError:
        return True


def _not(value: Value) -> bool:
    return not value


def _not_strictly_false(value: Value) -> bool:
    return value is not False


def _in_map(key: Value, container: Value) -> bool:
    """Whether a map has a key, even a map that yields a value for every key."""
    return find(container, key) is not ABSENT


def _size(value: Value) -> int:
    return len(value)


def _sizes() -> tuple[Overload, ...]:
    sized = (BYTES, list_of(A), map_of(A, B), STRING)
    return tuple(declare(t, result=INT, call=_size) for t in sized for declare in (free, member))


def _joined(left: Value, right: Value) -> Value:
    check_size(len(left) + len(right))
    return left + right


def _addition() -> Function:
    return Function(
        "_+_",
        (
            free(BYTES, BYTES, result=BYTES, call=_joined, cost=BOTH),
            numbers.DOUBLE_ADDITION,
            *times.ADDITION,
            numbers.INT_ADDITION,
            free(list_of(A), list_of(A), result=list_of(A), call=lambda a, b: a + b, grows=True),
            free(STRING, STRING, result=STRING, call=_joined, cost=BOTH),
            numbers.UINT_ADDITION,
        ),
        singleton=True,
    )


def _subtraction() -> Function:
    of_durations, of_times = times.SUBTRACTION[0], times.SUBTRACTION[1:]
    whole = (numbers.INT_SUBTRACTION, *of_times, numbers.UINT_SUBTRACTION)
    return Function("_-_", (numbers.DOUBLE_SUBTRACTION, of_durations, *whole), singleton=True)


def _type(kind: Type) -> Type:
    return Type("type", (kind,))


LIBRARY: Final[Library] = (
    function("!_", free(BOOL, result=BOOL, call=_not)),
    function("@not_strictly_false", free(BOOL, result=BOOL, call=_not_strictly_false)),
    function("_==_", free(A, A, result=BOOL, call=equal, cost=EQUALITY)),
    function("_!=_", free(A, A, result=BOOL, call=_differs, cost=SHORTER)),
    _relation("_<_", lambda order: order < 0),
    _relation("_<=_", lambda order: order <= 0),
    _relation("_>_", lambda order: order > 0),
    _relation("_>=_", lambda order: order >= 0),
    _addition(),
    _subtraction(),
    *numbers.LIBRARY,
    Function(
        "@in",
        (
            free(A, list_of(A), result=BOOL, call=lambda value, values: contains(values, value), cost=ELEMENTS),
            free(A, map_of(A, B), result=BOOL, call=_in_map),
        ),
        singleton=True,
    ),
    Function("size", _sizes(), singleton=True),
    function("type", free(A, result=_type(A), call=lambda value: TypeValue(type_name(value)))),
    function("dyn", free(A, result=DYN, call=lambda value: value)),
)
