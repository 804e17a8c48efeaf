"""The smallest set of candidates that is enough, and the best of several such sets: a search without its domain.

A candidate is an index. "Enough" is asked of the caller and costs time, so the search asks as seldom as it can: a set
that is not enough is extended until every further candidate would make it enough. Then each set that is enough has a
candidate outside of the extended set, and sets without one are left out. More candidates are never less enough.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from typing import Any, Final, TypeAlias

Members: TypeAlias = tuple[int, ...]
"""Some candidates, in ascending order."""

MOST_SETS: Final = 2**16
"""The most sets that are compared: all sets of 16 candidates. Of candidates of one kind, fewer sets differ."""


def irreducible_set(candidates: int, is_enough: Callable[[Members], bool]) -> Members | None:
    """A set from which no candidate can be left out; the last ones are left out first. None if all are not enough.

    Asks ``candidates + 1`` times at most.
    """
    found = tuple(range(candidates))
    if not is_enough(found):
        return None
    for left_out in reversed(range(candidates)):
        rest = tuple(each for each in found if each != left_out)
        if is_enough(rest):
            found = rest
    return found


def smallest_set(
    kinds: Sequence[Hashable],
    is_enough: Callable[[Members], bool],
    rank: Callable[[Members], Any],
    most_members: int,
    look: Callable[[], None] = lambda: None,
    *,
    least_members: int = 1,
) -> Members | None:
    """The smallest set that is enough. If there are several such sets, the one with the lowest rank.

    Args:
        kinds: the kind of each candidate. Candidates of one kind can replace each other in a set. An earlier
            candidate of a kind never ranks higher than a later one.
        is_enough: may raise any error, which ends the search.
        rank: the rank of a set. Only ranks of sets of one size are compared.
        most_members: the size of a set that is known to be enough, or the number of candidates.
        look: called about every millisecond; raises any error to end the search.
        least_members: the size of the smallest sets that are searched.

    Returns:
        None if no such set is enough, or if there are more than `MOST_SETS` sets to compare.
    """
    groups = _groups(kinds)
    if sum(_counts(groups, most_members)[least_members:]) > MOST_SETS:
        return None
    everyone = (1 << len(kinds)) - 1
    needed: list[int] = []

    def may_be_enough(candidates: int) -> bool:
        look()
        return all(map(candidates.__and__, needed))

    for sets in _by_size(groups, most_members)[least_members:]:
        for each in sorted(filter(may_be_enough, sets), key=lambda each: rank(_members(each))):
            if may_be_enough(each):
                if is_enough(_members(each)):
                    return _members(each)
                needed.append(everyone & ~_extended(each, groups, is_enough))
    return None


def _groups(kinds: Sequence[Hashable]) -> list[list[int]]:
    """The sets of the first candidates of each kind, as bits: none, the first, the first two, and so on.

    Only such sets are compared: with other candidates of a kind, a set does not have a lower rank.
    """
    by_kind: dict[Hashable, list[int]] = {}
    for number, kind in enumerate(kinds):
        by_kind.setdefault(kind, []).append(1 << number)
    return [[0, *accumulate(bits)] for bits in by_kind.values()]


def _counts(groups: Sequence[Sequence[int]], most_members: int) -> list[int]:
    """The number of sets of each size, from no candidate on."""
    of_size = [1]
    for group in groups:
        longer = [0] * min(len(of_size) + len(group) - 1, most_members + 1)
        for size, count in enumerate(of_size):
            for more in range(min(len(group), len(longer) - size)):
                longer[size + more] += count
        of_size = longer
    return of_size


def _by_size(groups: Sequence[Sequence[int]], most_members: int) -> list[list[int]]:
    """The sets by size, from no candidate on."""
    of_size: list[list[int]] = [[0]]
    for group in groups:
        longer: list[list[int]] = [[] for _ in range(min(len(of_size) + len(group) - 1, most_members + 1))]
        for size, sets in enumerate(of_size):
            for more, chosen in enumerate(group[: len(longer) - size]):
                longer[size + more] += [each | chosen for each in sets]
        of_size = longer
    return of_size


def _extended(candidates: int, groups: Sequence[Sequence[int]], is_enough: Callable[[Members], bool]) -> int:
    """A set that is not enough, with more candidates, until each further one would make it enough."""
    for group in groups:
        for chosen in group:
            if chosen & ~candidates:
                if is_enough(_members(candidates | chosen)):
                    break
                candidates |= chosen
    return candidates


def _members(candidates: int) -> Members:
    return tuple(number for number in range(candidates.bit_length()) if candidates >> number & 1)
