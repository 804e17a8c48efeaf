"""Kubernetes' list functions, and ``includes`` of the device environment."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

from allocator.cel.cost import TRAVERSAL
from allocator.cel.equality import compare, contains
from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Function, Library, Overload, function, member
from allocator.cel.functions.numbers import checked_int, checked_uint
from allocator.cel.functions.times import checked_duration
from allocator.cel.types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, UINT, A, list_of
from allocator.cel.values import Duration, UInt, Value

COMPARABLE: Final = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
"""Types whose values have an order."""


def _is_sorted(values: tuple[Value, ...]) -> bool:
    return all(compare(a, b) != 1 for a, b in pairwise(values))


def _extreme(name: str, wanted: int) -> Callable[[tuple[Value, ...]], Value]:
    def call(values: tuple[Value, ...]) -> Value:
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            if compare(value, best) == wanted:
                best = value
        return best

    return call


def _index_of(values: tuple[Value, ...], wanted: Value) -> int:
    return next((index for index, value in enumerate(values) if contains((value,), wanted)), -1)


def _last_index_of(values: tuple[Value, ...], wanted: Value) -> int:
    return next((index for index in reversed(range(len(values))) if contains((values[index],), wanted)), -1)


def _sum_int(values: tuple[int, ...]) -> int:
    total = 0
    for value in values:
        total = checked_int(total + value)
    return total


def _sum_uint(values: tuple[UInt, ...]) -> UInt:
    total = UInt(0)
    for value in values:
        total = checked_uint(int(total) + int(value))
    return total


def _sum_duration(values: tuple[Duration, ...]) -> Duration:
    total = Duration(0)
    for value in values:
        total = checked_duration(total.nanos + value.nanos)
    return total


_SUMS: Final[Mapping[type, Callable[[tuple[Value, ...]], Value]]] = {
    int: _sum_int,
    UInt: _sum_uint,
    Duration: _sum_duration,
}


def _sum(values: tuple[Value, ...]) -> Value:
    """The sum; the first element determines its type."""
    kind = type(values[0]) if values else int
    if any(type(value) is not kind for value in values):
        raise EvaluationError("no such overload")
    if kind not in _SUMS and kind is not float:
        raise EvaluationError("no such overload")
    if kind is float:
        return sum(values)
    return _SUMS[kind](values)


def _on_lists(name: str, call: Callable[[tuple[Value, ...]], Value], *, result: bool) -> Function:
    """A function on lists of comparable elements that yields a bool (``result``) or an element."""
    overloads = tuple(member(list_of(t), result=BOOL if result else t, call=call) for t in COMPARABLE)
    return Function(name, overloads, cost=TRAVERSAL)


def _sums() -> tuple[Overload, ...]:
    return (
        member(list_of(INT), result=INT, call=_sum),
        member(list_of(UINT), result=UINT, call=_sum),
        member(list_of(DOUBLE), result=DOUBLE, call=lambda values: sum(values, 0.0) if not values else _sum(values)),
        member(list_of(DURATION), result=DURATION, call=lambda values: _sum(values) if values else Duration(0)),
    )


def _includes(value: Value, wanted: Value) -> bool:
    """Whether a list has the element; another value counts as a list of itself."""
    return contains(value, wanted) if type(value) is tuple else contains((value,), wanted)


LIBRARY: Final[Library] = (
    _on_lists("isSorted", _is_sorted, result=True),
    _on_lists("min", _extreme("min", -1), result=False),
    _on_lists("max", _extreme("max", 1), result=False),
    Function("sum", _sums(), cost=TRAVERSAL),
    function("indexOf", member(list_of(A), A, result=INT, call=_index_of), cost=TRAVERSAL),
    function("lastIndexOf", member(list_of(A), A, result=INT, call=_last_index_of), cost=TRAVERSAL),
)

INCLUDES: Final[Library] = (function("includes", member(DYN, DYN, result=BOOL, call=_includes), cost=TRAVERSAL),)
"""Available if attributes can be lists."""
