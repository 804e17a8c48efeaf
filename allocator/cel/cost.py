"""Costs of calls, by the formulas of cel-go and of Kubernetes' cost estimator.

A formula works on sizes. At run time these are the sizes of the values. When an expression compiles, they are upper
bounds, which show whether the expression can become expensive at all.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from allocator.cel.keys import from_key
from allocator.cel.values import Value, is_opaque, size

LIMIT: Final = 1_000_000
"""Limit on the cost of one evaluation (`resource.k8s.io`, CELSelectorExpressionMaxCost)."""

UNCOUNTED_AT_MOST: Final = 50_000
"""An expression that may cost more looks at the clock while it runs; this cost takes some milliseconds."""

FOLDED_AT_MOST: Final = 10_000
"""A constant call that costs more is not computed at compile time, where nothing counts or looks at the clock."""

UNKNOWN_SIZE: Final = 10**12
"""Stands for a size without a bound: a cost that depends on it is beyond the limit."""

LIST_COST: Final = 10
MAP_COST: Final = 30
_PER_CHARACTER: Final = 0.1
_PER_PATTERN_CHARACTER: Final = 0.25


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost formula.

    Attributes:
        of: the cost for arguments and a result.
        bound: an upper bound of the cost for upper bounds of the arguments' sizes.
        late: the cost depends on the result, so it is charged after the call; all others are charged before.
    """

    of: Callable[[Sequence[Value], Value], int]
    bound: Callable[[Sequence[int]], int]
    late: bool = False


def fixed(cost: int) -> Cost:
    """A cost that is the same for all arguments."""
    return Cost(lambda _arguments, _result: cost, lambda _sizes: cost)


def by_sizes(formula: Callable[[Sequence[int]], int]) -> Cost:
    """A cost that depends on the sizes of the arguments; it must not fall as a size grows."""
    return Cost(lambda arguments, _result: formula([size(argument) for argument in arguments]), formula)


def by_values(formula: Callable[[Sequence[Value], Value], int], *, late: bool = False) -> Cost:
    """A cost that depends on the values."""
    return Cost(formula, lambda _sizes: UNKNOWN_SIZE, late)


def characters(count: float) -> int:
    """The cost of reading a number of characters."""
    return math.ceil(count * _PER_CHARACTER)


def pattern(text: int, regex: int) -> int:
    """The cost of a regular expression over a text; both are given by length."""
    return math.ceil((1.0 + text) * _PER_CHARACTER) * math.ceil(regex * _PER_PATTERN_CHARACTER)


def _traversal(value: Value) -> int:
    kind = type(value)
    if kind is str:
        return int(len(value.encode("utf-8", "surrogatepass")) * _PER_CHARACTER)
    if kind is bytes:
        return int(len(value) * _PER_CHARACTER)
    if kind is tuple:
        return sum(map(_traversal, value))
    if isinstance(value, dict):
        return sum(_traversal(from_key(key)) + _traversal(item) for key, item in value.items())
    return 1


def _equality(arguments: Sequence[Value], _result: Value) -> int:
    if is_opaque(arguments[0]):
        return 1
    return characters(min(size(arguments[0]), size(arguments[1])))


ONE: Final = fixed(1)
FIRST: Final = by_sizes(lambda s: characters(s[0]))
SECOND: Final = by_sizes(lambda s: characters(s[1]))
SHORTER: Final = by_sizes(lambda s: characters(min(s[0], s[1])))
BOTH: Final = by_sizes(lambda s: characters(s[0] + s[1]))
TWICE: Final = by_sizes(lambda s: math.ceil(s[0] * 2 * _PER_CHARACTER))
ELEMENTS: Final = by_sizes(lambda s: s[1])
PRODUCT: Final = by_sizes(lambda s: characters(s[0]) * characters(s[1]))
PATTERN: Final = by_sizes(lambda s: pattern(s[0], s[1]))
PAIRS: Final = by_sizes(lambda s: s[0] * s[1] + 1)
PAIRS_BOTH_WAYS: Final = by_sizes(lambda s: 2 * s[0] * s[1] + 1)
TRAVERSAL: Final = by_values(lambda arguments, _result: _traversal(arguments[0]))
RESULT_TWICE: Final = by_values(lambda _arguments, result: math.ceil(size(result) * 2 * _PER_CHARACTER), late=True)
EQUALITY: Final = Cost(_equality, lambda s: max(1, characters(min(s[0], s[1]))))
