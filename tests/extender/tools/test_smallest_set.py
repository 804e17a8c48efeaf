"""The smallest set that is enough: against trying all sets, and with few questions where candidates are alike."""

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.tools.smallest_set import MOST_SETS, Members, irreducible_set, smallest_set

Enough = Callable[[Members], bool]


def highest(members: Members) -> tuple[int, int]:
    return max(members), sum(members)


def any_of(*ways: set[int]) -> Enough:
    """Enough is what contains one of these sets."""
    return lambda members: any(way <= set(members) for way in ways)


def asked(is_enough: Enough) -> tuple[Enough, list[Members]]:
    """The same, and what it was asked."""
    questions: list[Members] = []

    def noting(members: Members) -> bool:
        questions.append(members)
        return is_enough(members)

    return noting, questions


@pytest.mark.parametrize(
    ("candidates", "is_enough", "found"),
    [
        (3, any_of({0}, {2}), (0,)),
        (3, any_of({0, 1}, {2}), (2,)),
        (4, any_of({0, 3}, {1, 2}), (1, 2)),
        (4, any_of({0, 1, 2, 3}), (0, 1, 2, 3)),
        (16, any_of({0, 1, 2, 3, 4, 5}, {13, 14, 15}), (13, 14, 15)),
        (2, any_of(), None),
        (0, any_of(), None),
    ],
)
def test_the_smallest_set_and_of_several_the_one_with_the_lowest_rank(
    candidates: int, is_enough: Enough, found: Members | None
) -> None:
    assert smallest_set(range(candidates), is_enough, highest, candidates) == found


@pytest.mark.parametrize(
    ("candidates", "is_enough", "found"),
    [(3, any_of({0, 1}, {2}), (0, 1)), (3, any_of({2}), (2,)), (3, any_of(), None), (2, any_of(set()), ())],
)
def test_no_candidate_can_be_left_out(candidates: int, is_enough: Enough, found: Members | None) -> None:
    assert irreducible_set(candidates, is_enough) == found


def test_candidates_of_one_kind_are_counted_not_combined() -> None:
    is_enough, questions = asked(lambda members: len(members) >= 20)
    assert smallest_set(["alike"] * 40, is_enough, highest, 40) == tuple(range(20))
    assert len(questions) <= 40


def test_sixteen_candidates_that_all_differ_are_never_too_many() -> None:
    assert smallest_set(range(16), lambda members: len(members) == 16, highest, 16) == tuple(range(16))


def test_more_sets_than_can_be_compared_are_not_searched() -> None:
    is_enough, questions = asked(any_of({0}))
    assert smallest_set(range(17), is_enough, highest, 17) is None
    assert questions == []
    assert MOST_SETS < 2**17
    # 17 + 136 sets of one or two candidates
    assert smallest_set(range(17), is_enough, highest, 2) == (0,)


def test_an_error_ends_the_search() -> None:
    def late(_: Members) -> bool:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        smallest_set(range(3), late, highest, 3)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[str], Enough]:
    """Candidates of some kinds, and what is enough: a count of each kind."""
    kinds = draw(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=7))
    counts = st.fixed_dictionaries({kind: st.integers(0, kinds.count(kind)) for kind in sorted(set(kinds))})
    ways = draw(st.lists(counts, max_size=4))

    def is_enough(members: Members) -> bool:
        chosen = [kinds[each] for each in members]
        return any(all(chosen.count(kind) >= count for kind, count in way.items()) for way in ways)

    return kinds, is_enough


@given(problems())
def test_no_other_set_is_smaller_or_of_the_same_size_and_lower_in_rank(problem: tuple[list[str], Enough]) -> None:
    kinds, is_enough = problem
    sets = [each for size in range(1, len(kinds) + 1) for each in combinations(range(len(kinds)), size)]
    enough = [each for each in sets if is_enough(each)]
    best = min(enough, key=lambda each: (len(each), highest(each)), default=None)
    found = smallest_set(kinds, is_enough, highest, len(kinds))
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        assert is_enough(found)
        assert (len(found), highest(found)) == (len(best), highest(best))
        least = irreducible_set(len(kinds), is_enough)
        assert least is not None
        assert smallest_set(kinds, is_enough, highest, len(least) or 1) == found


@given(problems())
def test_of_an_irreducible_set_no_member_can_be_left_out(problem: tuple[list[str], Enough]) -> None:
    kinds, is_enough = problem
    found = irreducible_set(len(kinds), is_enough)
    assert (found is not None) == is_enough(tuple(range(len(kinds))))
    if found is not None:
        assert is_enough(found)
        assert not any(is_enough(tuple(each for each in found if each != one)) for one in found)
