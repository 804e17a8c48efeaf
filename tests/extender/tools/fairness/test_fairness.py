"""Laws of what serves all namespaces: memories in which nobody takes another's place, backlogs, and fair turns."""

import tracemalloc
from collections import Counter
from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.tools.fairness.backlog import Backlog
from extender.tools.fairness.fair_memory import FairMemory, ReportingMemory
from extender.tools.fairness.turns import CREDIT_SECONDS, HALF_SECONDS, Turns

NAMESPACES = st.sampled_from("abcdefgh")


# --- memory -------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(NAMESPACES, st.integers(0, 30))), st.integers(1, 20))
def test_a_namespace_with_no_more_than_its_share_forgets_nothing(kept: Sequence[tuple[str, int]], limit: int) -> None:
    memory = ReportingMemory[int](limit)
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
    memory = ReportingMemory[int](100)
    memory.keep("b", "mine", 0)
    for number in range(1000):
        memory.keep("a", f"a-{number}", number)
    assert memory.get("mine") == 0
    assert (len(memory), memory.forgotten) == (100, frozenset("a"))
    assert memory.look_again() == {"a"}
    assert not memory.forgotten


def test_what_is_taken_out_on_purpose_is_not_forgotten() -> None:
    memory = ReportingMemory[int](2)
    memory.keep("a", "1", 1)
    assert (memory.pop("1"), memory.pop("1"), memory.forgotten) == (1, None, frozenset())


def test_there_is_room_for_a_namespace_that_has_less_than_another() -> None:
    memory = ReportingMemory[int](4)
    for number in range(4):
        assert memory.has_room("a")
        memory.keep("a", str(number), number)
    assert not memory.has_room("a")
    assert memory.has_room("b")


def test_the_oldest_entry_of_a_namespace_gives_its_place_if_it_may() -> None:
    memory = FairMemory[int](2)
    memory.keep("a", "1", 1)
    memory.keep("a", "2", 2)
    assert not memory.make_room("a", lambda value: value > 1)
    assert len(memory) == 2
    assert memory.make_room("a", lambda value: value == 1)
    assert memory.items() == [("2", 2)]
    assert memory.make_room("a", lambda _: False), "there is room now"


def test_a_namespace_without_entries_gets_room_in_any_case() -> None:
    memory = FairMemory[int](2)
    memory.keep("a", "1", 1)
    memory.keep("b", "2", 2)
    assert memory.make_room("c", lambda _: False)
    memory.keep("c", "3", 3)
    assert sorted(memory.namespaces) == ["b", "c"]


def test_namespaces_that_have_lost_entries_are_told_once_there_is_room_for_one_of_them() -> None:
    memory = ReportingMemory[int](2)
    for number in range(3):
        memory.keep("a", str(number), number)
    assert memory.missed() == frozenset()
    memory.pop("2")
    assert memory.missed() == {"a"}
    assert memory.missed() == frozenset()


def test_a_memory_that_nobody_asks_for_what_it_has_forgotten_keeps_nothing_of_it() -> None:
    memory = FairMemory[str](16)
    names = [f"namespace-{number}" for number in range(10_000)]
    tracemalloc.start()
    try:
        for each in names:
            memory.keep(each, each, each)
        assert tracemalloc.get_traced_memory()[0] < 50_000
    finally:
        tracemalloc.stop()


# --- backlog ------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(NAMESPACES, st.integers(0, 9)), max_size=60), st.sets(NAMESPACES), st.integers(1, 9))
def test_all_that_waits_is_taken_in_its_order_and_in_turns_unless_it_is_refused(
    added: Sequence[tuple[str, int]], refused: Collection[str], most: int
) -> None:
    backlog = Backlog[tuple[str, int]](lambda item: item[1] % 3 > 0)
    for item in added:
        backlog.add(item[0], item)
    taken: list[tuple[str, int]] = []

    def take(item: tuple[str, int]) -> bool:
        is_taken = item[0] not in refused
        taken.extend([item] if is_taken else [])
        return is_taken

    for _ in range(len(added) * (1 + len(refused))):
        backlog.offer(take, most)
    wanted = [item for item in dict.fromkeys(added) if item[1] % 3]
    for namespace in {*dict(added)}.difference(refused):
        assert [item for item in taken if item[0] == namespace] == [item for item in wanted if item[0] == namespace]
    assert bool(len(backlog)) == any(item[0] in refused for item in wanted)


def test_items_that_wait_no_more_are_dropped_behind_one_that_is_refused() -> None:
    waiting = {0}
    backlog = Backlog[int](waiting.__contains__)
    backlog.add("a", 0)
    for number in range(1, 10_000):
        waiting.add(number)
        backlog.add("a", number)
        backlog.offer(lambda _: False, 10)
        waiting.discard(number - 5)
        waiting.add(0)
        assert len(backlog) <= 3 * len(waiting) + 3


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
