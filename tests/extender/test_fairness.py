"""Laws of what serves all namespaces: a memory in which nobody takes another's place, and fair turns."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.fairness.fair_memory import FairMemory
from extender.fairness.turns import CREDIT_SECONDS, HALF_SECONDS, Turns

NAMESPACES = st.sampled_from("abcdefgh")


# --- memory -------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(NAMESPACES, st.integers(0, 30))), st.integers(1, 20))
def test_a_namespace_with_no_more_than_its_share_forgets_nothing(kept: Sequence[tuple[str, int]], limit: int) -> None:
    memory = FairMemory[int](limit)
    wanted: dict[str, dict[str, int]] = {}
    for namespace, number in kept:
        uid = f"{namespace}-{number}"
        memory.keep(namespace, uid, number)
        own = wanted.setdefault(namespace, {})
        own.pop(uid, None)
        own[uid] = number
        assert len(memory) <= limit
        for each, entries in wanted.items():
            there = memory.of_namespace(each)
            assert there == list(entries.items())[len(entries) - len(there) :], "the youngest are remembered"
    share = limit // max(1, len(wanted))
    for namespace, entries in wanted.items():
        assert len(memory.of_namespace(namespace)) >= min(share, len(entries))
        assert len(entries) > share or namespace not in memory.forgotten


def test_a_thousand_entries_of_one_namespace_leave_those_of_another_alone() -> None:
    memory = FairMemory[int](100)
    memory.keep("b", "mine", 0)
    for number in range(1000):
        memory.keep("a", f"a-{number}", number)
    assert memory.get("mine") == 0
    assert (len(memory), memory.forgotten) == (100, frozenset("a"))
    assert memory.look_again() == {"a"}
    assert not memory.forgotten


def test_what_is_taken_out_on_purpose_is_not_forgotten() -> None:
    memory = FairMemory[int](2)
    memory.keep("a", "1", 1)
    assert (memory.pop("1"), memory.pop("1"), memory.forgotten) == (1, None, frozenset())


def test_there_is_room_for_a_namespace_that_has_less_than_another() -> None:
    memory = FairMemory[int](4)
    for number in range(4):
        assert memory.has_room("a")
        memory.keep("a", str(number), number)
    assert not memory.has_room("a")
    assert memory.has_room("b")


# --- turns --------------------------------------------------------------------------------------------------


class Clock:
    """A clock that stands still until somebody works."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.tuples(NAMESPACES, st.floats(0.001, 2.0)), max_size=60))
def test_who_goes_next_is_in_credit_or_has_used_the_least(work: Sequence[tuple[str, float]]) -> None:
    clock = Clock()
    turns, left = Turns(clock), Counter(namespace for namespace, _ in work)
    done = []
    for namespace, seconds in turns.ordered(work, lambda each: each[0]):
        others = {each: turns.used(each) for each, number in left.items() if number}
        assert turns.used(namespace) <= max(CREDIT_SECONDS, min(others.values()) * 1.000001)
        with turns.of(namespace):
            clock.now += seconds
        left[namespace] -= 1
        done.append((namespace, seconds))
    assert sorted(done) == sorted(work)
    for namespace in left:
        assert [s for name, s in done if name == namespace] == [s for name, s in work if name == namespace]


def test_in_credit_the_order_of_all_work_counts() -> None:
    turns = Turns(Clock())
    work = ["a1", "b2", "a3", "c4", "b5"]
    assert list(turns.ordered(work, lambda each: each[0])) == work


def test_a_namespace_with_much_work_delays_others_by_its_credit_and_one_piece() -> None:
    clock = Clock()
    turns, began = Turns(clock), clock.now
    for each in turns.ordered([*["a"] * 10_000, "b"], str):
        if each == "b":
            break
        with turns.of(each):
            clock.now += 0.03
    assert clock.now - began <= CREDIT_SECONDS + 0.03


def test_what_was_used_long_ago_does_not_count() -> None:
    clock = Clock()
    turns = Turns(clock)
    with turns.of("a"):
        clock.now += 8.0
    clock.now += 3 * HALF_SECONDS
    assert list(turns.ordered(["a", "b"], str)) == ["b", "a"]
    assert abs(turns.used("a") - 1.0) < 1e-9
    clock.now += 60 * HALF_SECONDS
    assert list(turns.ordered(["a", "b"], str)) == ["a", "b"]
    assert turns.used("a") < 1e-9


@pytest.mark.parametrize("seconds", [HALF_SECONDS, 3600.0, 365 * 86_400.0])
def test_after_any_quiet_time_turns_go_on(seconds: float) -> None:
    clock = Clock()
    turns = Turns(clock)
    for _ in range(2):
        with turns.of("a"):
            clock.now += 1.0
        clock.now += seconds
    assert list(turns.ordered(["b", "a"], str)) == ["b", "a"]
    assert turns.used("a") <= 1.0
