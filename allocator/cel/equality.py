"""Equality and order of values, and whether a list has a value."""

import math
from collections.abc import Callable, Hashable
from typing import Final

from allocator.cel.amounts import Computed
from allocator.cel.errors import EvaluationError, GivenUpError, no_such_overload
from allocator.cel.keys import ABSENT, UNHASHABLE, find_named
from allocator.cel.values import (
    INT_MIN,
    NUMBERS,
    PLAIN,
    QUANTITIES,
    Duration,
    OptionalValue,
    Timestamp,
    UInt,
    Value,
    is_opaque,
)

_ORDERED: Final = frozenset({bool, int, UInt, float, str, bytes, Timestamp, Duration})


def equal(left: Value, right: Value) -> bool:
    """CEL's ``==``: numbers compare across types, other types differ.

    Raises:
        EvaluationError: the left value has a type of Kubernetes, and the right value has another (as upstream).
    """
    kind, other = type(left), type(right)
    if kind is other:
        if kind in PLAIN or kind is bool:
            return bool(left == right)
        if kind is tuple:
            return len(left) == len(right) and all(map(_same, left, right))
        if kind is OptionalValue:
            return left.present == right.present and (not left.present or equal(left.value, right.value))
        if kind is Computed:
            raise no_such_overload()
    elif kind in QUANTITIES and other in QUANTITIES and other is not Computed:
        return bool(left == right)
    elif is_opaque(left) and right is not None:
        raise no_such_overload()
    elif kind in NUMBERS and other in NUMBERS:
        return compare(left, right) == 0
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(_holds(right, name, value) for name, value in left.items())
    return bool(kind is other and left == right)


def _same(left: Value, right: Value) -> bool:
    """Equality within lists and maps, where values that cannot be compared count as equal."""
    try:
        return equal(left, right)
    except EvaluationError:
        return True


def _holds(container: dict[Hashable, Value], name: Hashable, value: Value) -> bool:
    found = find_named(container, name)
    return found is not ABSENT and _same(value, found)


def membership(values: tuple[Value, ...]) -> Callable[[Value], bool]:
    """Whether a value is in one list of strings, bools and numbers, prepared for many calls.

    As in cel-go, this differs from `contains`. A double is in a list of integers if one of them rounds to the double.
    An integer is in a list of doubles only if one of them is exactly this integer. The list is a Go map there: a type
    that cannot be a key ends the evaluation.
    """
    strings = frozenset(value for value in values if type(value) is str)
    bools = frozenset(value for value in values if type(value) is bool)
    doubles = frozenset(value for value in values if type(value) is float and not math.isnan(value))
    whole = frozenset(int(value) for value in values if type(value) in (int, UInt))
    rounded = doubles | frozenset(map(float, whole))
    exact = whole | frozenset(int(value) for value in doubles if value.is_integer() and value != INT_MIN)

    def has(wanted: Value) -> bool:
        kind = type(wanted)
        if kind is str:
            return wanted in strings
        if kind is bool:
            return wanted in bools
        if kind is float:
            return wanted in rounded
        if kind in UNHASHABLE:
            raise GivenUpError
        return (kind is int or kind is UInt) and wanted in exact

    return has


def contains(values: tuple[Value, ...], wanted: Value) -> bool:
    """Whether a list has an equal element."""
    for value in values:
        try:
            if equal(value, wanted):
                return True
        except EvaluationError:
            continue
    return False


def compare(left: Value, right: Value) -> int | None:
    """-1, 0 or 1; None if a NaN is compared.

    As in cel-go, an integer that is compared with a double is rounded to a double.

    Raises:
        EvaluationError: the types have no order, or are different.
    """
    kind, other = type(left), type(right)
    if kind not in _ORDERED or (kind is not other and not (kind in NUMBERS and other in NUMBERS)):
        raise no_such_overload()
    if kind is not other and float in (kind, other):
        left, right = float(left), float(right)
    if left == right:
        return 0
    return -1 if left < right else 1 if left > right else None
