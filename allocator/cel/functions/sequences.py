"""cel-go's list extension, version 3: slices, flattening, order, distinct elements."""

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Final, TypeAlias

from allocator.cel.cost import LIST_COST, by_values
from allocator.cel.equality import compare, equal
from allocator.cel.errors import EvaluationError, GivenUpError, no_such_overload
from allocator.cel.functions.declare import Function, Library, free, function, member
from allocator.cel.functions.lists import COMPARABLE
from allocator.cel.functions.sets import check_pairs
from allocator.cel.types import DYN, INT, A, list_of
from allocator.cel.values import Value, size

_MOST_ELEMENTS: Final = 1_000_000
"""Limit on the elements of a range, as upstream."""

_MAKING: Final = LIST_COST + 1

List: TypeAlias = tuple[Value, ...]


def _slice(values: List, start: int, end: int) -> List:
    if not 0 <= start <= end <= len(values):
        raise EvaluationError(f"cannot slice({start}, {end}) a list of length {len(values)}")
    return values[start:end]


def _flatten(values: Value, levels: Value = 1) -> List:
    """Takes any values: upstream checks here, not before the call."""
    if type(values) is not tuple or type(levels) is not int:
        raise no_such_overload()
    if levels < 0:
        raise EvaluationError("level must be non-negative")
    while levels and any(type(value) is tuple for value in values):
        values = tuple(inner for value in values for inner in (value if type(value) is tuple else (value,)))
        levels -= 1
    return tuple(values)


def _range(number: int) -> List:
    if number < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {number}")
    if number > _MOST_ELEMENTS:
        raise EvaluationError(f"lists.range: size {number} exceeds maximum allowed ({_MOST_ELEMENTS})")
    return tuple(range(number))


def _distinct(values: List) -> List:
    check_pairs(values, values)
    found: list[Value] = []
    for value in values:
        if not any(_is_same(value, other) for other in found):
            found.append(value)
    return tuple(found)


def _is_same(value: Value, other: Value) -> bool:
    """Values that cannot be compared are different."""
    try:
        return equal(value, other)
    except EvaluationError:
        return False


def _sort(values: List) -> List:
    return _sorted_by(values, values)


def _sorted_by(values: List, keys: List) -> List:
    if len(values) != len(keys):
        raise EvaluationError(f"{len(values)} elements cannot be sorted by {len(keys)} keys")
    if keys and any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")
    pairs: list[tuple[Value, Value]] = list(zip(keys, values, strict=True))
    pairs.sort(key=cmp_to_key(_by_key))
    return tuple(value for _, value in pairs)


def _by_key(one: tuple[Value, Value], other: tuple[Value, Value]) -> int:
    return compare(one[0], other[0]) or 0


def _by_result(_arguments: Sequence[Value], result: Value) -> int:
    return _MAKING + size(result)


def _by_range(arguments: Sequence[Value], result: Value) -> int:
    """The cost by the requested size, so that it is known before the list is made."""
    number = arguments[0]
    return _MAKING + (number if type(number) is int and 0 <= number <= _MOST_ELEMENTS else size(result))


def _by_levels(arguments: Sequence[Value], _result: Value) -> int:
    levels = arguments[1] if len(arguments) > 1 and type(arguments[1]) is int else 1
    return _MAKING + size(arguments[0]) * (levels if levels >= 0 else 1)


def _by_pairs(keys: int) -> Callable[[Sequence[Value], Value], int]:
    """The cost of comparing every element with every other."""

    def cost(arguments: Sequence[Value], _result: Value) -> int:
        compared: List = arguments[keys]
        if type(compared) is not tuple:
            raise GivenUpError  # upstream expects a list here
        factor = 2.1 if compared and type(compared[0]) in (str, bytes) else 2.0
        return _MAKING + int(len(compared) ** 2 * factor)

    return cost


LIBRARY: Final[Library] = (
    function(
        "slice",
        member(list_of(A), INT, INT, result=list_of(A), call=_slice, grows=True),
        cost=by_values(_by_result, late=True),
    ),
    Function(
        "flatten",
        (
            member(list_of(list_of(A)), result=list_of(A), call=_flatten, grows=True),
            member(list_of(DYN), INT, result=list_of(DYN), call=_flatten, grows=True),
        ),
        cost=by_values(_by_levels),
        guarded=False,
    ),
    # Where the checker knows the list's type, a call costs as its overload says, otherwise 1 like any call.
    Function(
        "sort",
        tuple(member(list_of(t), result=list_of(t), call=_sort, cost=by_values(_by_pairs(0))) for t in COMPARABLE),
        singleton=True,
    ),
    Function(
        "@sortByAssociatedKeys",
        tuple(
            member(list_of(A), list_of(t), result=list_of(A), call=_sorted_by, cost=by_values(_by_pairs(1)))
            for t in COMPARABLE
        ),
        singleton=True,
    ),
    function(
        "lists.range",
        free(INT, result=list_of(INT), call=_range, grows=True),
        cost=by_values(_by_range, late=True),
    ),
    function(
        "reverse",
        member(list_of(A), result=list_of(A), call=lambda values: values[::-1]),
        cost=by_values(_by_result, late=True),
    ),
    function(
        "distinct", member(list_of(A), result=list_of(A), call=_distinct, grows=True), cost=by_values(_by_pairs(0))
    ),
)
