"""Lists as sets."""

from typing import Final

from allocator.cel.cost import LIMIT, PAIRS, PAIRS_BOTH_WAYS
from allocator.cel.equality import contains
from allocator.cel.errors import CostLimitError
from allocator.cel.functions.declare import Library, free, function
from allocator.cel.types import BOOL, A, list_of
from allocator.cel.values import Value, nested_size

Values = tuple[Value, ...]


def check_pairs(left: Values, right: Values) -> None:
    """Refuse to compare all pairs if the elements are too large for that; the cost counts only the pairs.

    Raises:
        CostLimitError: too much.
    """
    if len(left) * nested_size(right) + len(right) * nested_size(left) > LIMIT:
        raise CostLimitError


def _contains(values: Values, wanted: Values) -> bool:
    check_pairs(values, wanted)
    return all(contains(values, value) for value in wanted)


def _equivalent(left: Values, right: Values) -> bool:
    return _contains(left, right) and _contains(right, left)


def _intersects(left: Values, right: Values) -> bool:
    check_pairs(left, right)
    return any(contains(right, value) for value in left)


_LISTS: Final = (list_of(A), list_of(A))
LIBRARY: Final[Library] = (
    function("sets.contains", free(*_LISTS, result=BOOL, call=_contains, cost=PAIRS)),
    function("sets.equivalent", free(*_LISTS, result=BOOL, call=_equivalent, cost=PAIRS_BOTH_WAYS)),
    function("sets.intersects", free(*_LISTS, result=BOOL, call=_intersects, cost=PAIRS)),
)
