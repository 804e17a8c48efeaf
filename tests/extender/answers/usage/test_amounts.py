"""Amounts over the last day: their sums are exact, and their memory is bounded."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.answers.usage.amounts import DAY, MINUTE, MINUTES, OTHERS, Amounts, Minutes, Named

DRIVER = "gpu.example.com"
START = 1_767_225_600_000
"""A whole minute."""

Change = tuple[int, int]
"""Milliseconds since the change before, and by how much the amount changes."""

changes = st.lists(
    st.tuples(st.integers(0, 3 * MINUTE) | st.sampled_from([0, MINUTE, 40 * MINUTE, DAY - 1, DAY, 2 * DAY]),
              st.integers(-3, 5)),
    max_size=25,
)  # fmt: skip


def by_hand(found: Sequence[Change], until: int) -> dict[int, int]:
    """The sum of each minute, from the intervals between the changes."""
    now, level, sums = START, 0, defaultdict[int, int](int)
    for pause, by in (*found, (until, 0)):
        end = now + pause
        for minute in range(now // MINUTE, end // MINUTE + 1):
            sums[minute] += level * max(0, min(end, (minute + 1) * MINUTE) - max(now, minute * MINUTE))
        now, level = end, level + by
    return sums


@given(changes, st.integers(0, 5 * MINUTE))
def test_the_sum_of_each_minute_is_that_of_the_intervals_between_the_changes(found: list[Change], until: int) -> None:
    amount, now = Minutes(START), START
    for pause, by in found:
        now += pause
        amount.change(by, now)
    now += until
    last, expected = now // MINUTE, by_hand(found, until)
    minutes = range(last - MINUTES + 1, last + 1)
    sums = amount.sums(now).of(minutes[0], last)
    assert sums == [expected[each] for each in minutes]
    assert amount.total == sum(sums)
    assert amount.level == sum(by for _, by in found)


names = st.sampled_from([Named(each, DRIVER) for each in "abcdef"])


@given(st.lists(st.tuples(names, st.integers(0, 20 * MINUTE), st.integers(-2, 6)), max_size=40), st.integers(1, 4))
def test_no_device_hour_is_lost_however_few_rows_there_are(found: list[tuple[Named, int, int]], most: int) -> None:
    rows, all_of, now, levels = Amounts(most), Minutes(START), START, Counter[Named]()
    for name, pause, by in found:
        now += pause
        levels[name] += by
        rows.change(name, by, now)
        all_of.change(by, now)
    now += MINUTE
    last = now // MINUTE
    kept = [each.of(last - MINUTES + 1, last) for each in rows.sums(now).values()]
    assert [sum(column) for column in zip(*kept, strict=True)] == (
        all_of.sums(now).of(last - MINUTES + 1, last) if kept else []
    )
    assert sum(rows.levels().values()) == levels.total()
    assert len([name for name in rows.sums(now) if name.name != OTHERS]) <= most


def test_names_with_much_keep_their_rows_however_many_names_with_little_come() -> None:
    rows = Amounts(2)
    rows.change(Named("large", DRIVER), 8, START)
    for number in range(50):
        rows.change(Named(f"small-{number}", DRIVER), 1, START + number * MINUTE)
    found = rows.levels()
    assert found[Named("large", DRIVER)] == 8
    assert found[Named(OTHERS, DRIVER)] == 49


def test_a_name_that_was_among_the_others_gets_a_row_once_it_has_more_than_another() -> None:
    rows = Amounts(1)
    rows.change(Named("first", DRIVER), 2, START)
    rows.change(Named("second", DRIVER), 1, START)
    rows.change(Named("second", DRIVER), 4, START + MINUTE)
    assert rows.levels() == {Named("second", DRIVER): 5, Named(OTHERS, DRIVER): 2}
    last = START // MINUTE + 1
    sums = {name.name: each.of(last - 1, last) for name, each in rows.sums(START + 2 * MINUTE - 1).items()}
    assert sums == {"second": [0, 5 * (MINUTE - 1)], OTHERS: [3 * MINUTE, 2 * (MINUTE - 1)]}


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    amount = Minutes(START)
    amount.change(1, START)
    amount.advance(START + MINUTE)
    amount.change(1, START)
    assert (amount.total, amount.level) == (MINUTE, 2)


@pytest.mark.parametrize(("minute", "is_kept"), [(0, True), (-MINUTES + 1, True), (-MINUTES, False), (1, False)])
def test_what_is_known_from_elsewhere_counts_in_the_minutes_that_are_remembered(minute: int, is_kept: bool) -> None:
    rows, at = Amounts(2), START // MINUTE + minute
    rows.put(Named("a", DRIVER), at, 7 * MINUTE, START)
    assert (sum(sum(each.of(at, at)) for each in rows.sums(START).values()) == 7 * MINUTE) is is_kept
