"""A new kind of constraint: what it says of itself is all that search, policies and equivalence need to know."""

from collections.abc import Hashable, Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import AttributeValue, ConstraintKind, ConstraintSpec, Limits
from allocator.equivalence import attribute_reads_of
from allocator.policies import BEST_FIT, FIRST_FIT, Policy
from allocator.search import SearchBudget
from allocator.search.constraints import CONSTRAINTS, Constraint
from tests.allocator.worlds import SELECTORS, World, claim, device, different, pool, same, ticks, want

POLICIES = [FIRST_FIT, BEST_FIT]


class Contiguous(Constraint):
    """The values of all devices are whole numbers in a row, each once: only the whole choice tells."""

    __slots__ = ()
    start = frozenset[int]()
    _state: frozenset[int]

    def admits(self, value: AttributeValue) -> Hashable | None:
        return self._state | {value} if isinstance(value, int) and value not in self._state else None

    def holds(self) -> bool:
        return max(self._state) - min(self._state) + 1 == len(self._state)


class SameFirst(Constraint):
    """Lists begin with the same element: their order matters."""

    __slots__ = ()
    start = ""
    _state: str

    def admits(self, value: AttributeValue) -> Hashable | None:
        first = str(value[0]) if isinstance(value, tuple) and value else ""
        return first if first and self._state in ("", first) else None


@pytest.fixture(autouse=True)
def _kinds() -> Iterator[None]:
    """The two kinds that there are mean something else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CONSTRAINTS, ConstraintKind.DISTINCT, Contiguous)
        patch.setitem(CONSTRAINTS, ConstraintKind.MATCH, SameFirst)
        yield


def world_of(*values: AttributeValue, policy: Policy = FIRST_FIT) -> World:
    return World(pool(*[device(f"gpu-{i}", {"port": value}) for i, value in enumerate(values)]), policy=policy)


def numbers(got: list[list[str]] | str) -> list[int]:
    """The devices of the only claim; none if it gets none."""
    return [] if isinstance(got, str) else [int(name.removeprefix("gpu-")) for name in got[0]]


def is_row(values: list[int]) -> bool:
    return len(set(values)) == len(values) == max(values) - min(values) + 1


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from(POLICIES),
)
def test_what_only_the_whole_choice_tells_is_found_if_there_is_any(
    values: list[int], covered: int, beside: int, policy: Policy
) -> None:
    requests = [want("row", covered), *([want("other", beside)] if beside else [])]
    got = numbers(world_of(*values, policy=policy).devices(claim(*requests, different("port", "row"))))
    rows = [each for each in combinations(range(len(values)), covered) if is_row([values[i] for i in each])]
    if not rows or covered + beside > len(values):
        assert got == []
        return
    assert is_row([values[i] for i in got[:covered]])
    if policy is FIRST_FIT:
        assert tuple(got[:covered]) == rows[0]


def test_the_whole_choice_spans_requests() -> None:
    world = world_of(5, 1, 3, 2)
    assert numbers(world.devices(claim(want("a"), want("b", 2), different("port")))) == [1, 2, 3]


def test_a_choice_that_is_refused_as_a_whole_names_the_constraint() -> None:
    got = world_of(1, 3).devices(claim(want("a", 2), different("port")))
    assert got == "no devices for request a satisfy constraint on gpu.example.com/port"


def test_devices_with_the_same_elements_in_another_order_are_not_interchangeable() -> None:
    world = world_of(("b", "a"), ("a", "b"), ("a", "c"))
    assert numbers(world.devices(claim(want("a", 2), same("port")))) == [1, 2]


@pytest.mark.parametrize("constraint", [different("port"), same("port")])
def test_values_count_unless_the_kind_says_that_only_common_ones_do(constraint: ConstraintSpec) -> None:
    wanted = claim(want("a", 2), constraint)
    reads = attribute_reads_of((wanted,), {}, SELECTORS, SearchBudget(Limits(), ticks()), FIRST_FIT)
    assert (reads.values, reads.matched) == (("gpu.example.com/port",), ())
