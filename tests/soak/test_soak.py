"""What a soak is, and when its memory counts as flat; the soak itself is ``make soak-kwok``."""

from collections import Counter

import pytest

from tests.kit.measure import MEGABYTE
from tests.soak.figures import Figures, Memory
from tests.soak.plan import CALM, HAPPENINGS, Plan, timetable

LONG = Plan(nodes=1000, devices=4, seconds=600, kills=5, seed=1)
SHORT = Plan(nodes=100, devices=4, seconds=120, kills=2, seed=1)


def test_ten_minutes_have_the_happenings_of_an_hour() -> None:
    assert Counter(each.name for each in timetable(LONG)) == {**HAPPENINGS, "kill": LONG.kills}


def test_in_less_time_less_happens_but_everything_once() -> None:
    found = Counter(each.name for each in timetable(SHORT))
    assert found["slice update"] == HAPPENINGS["slice update"] // 5
    assert found["driver upgrade"] == 1
    assert found.keys() == {*HAPPENINGS, "kill"}


@pytest.mark.parametrize("plan", [LONG, SHORT])
def test_happenings_are_in_order_and_within_the_time(plan: Plan) -> None:
    seconds = [each.second for each in timetable(plan)]
    assert seconds == sorted(seconds)
    assert 0 <= seconds[0] <= seconds[-1] < plan.seconds


def test_the_extender_is_not_killed_in_the_calm_part() -> None:
    kills = [each.second for each in timetable(LONG) if each.name == "kill"]
    assert max(kills) < LONG.seconds * (1 - CALM)


def test_a_seed_is_one_timetable() -> None:
    assert timetable(LONG) == timetable(LONG)
    assert timetable(LONG) != timetable(Plan(1000, 4, 600, 5, seed=2))


def memory(*megabytes: float) -> Memory:
    """A sample for each ten seconds."""
    return Memory(1, [(10.0 * number, round(size * MEGABYTE)) for number, size in enumerate(megabytes)])


@pytest.mark.parametrize(
    ("megabytes", "ends"),
    [
        pytest.param([50] * 6 + [100] * 12, (100, 100), id="the warm-up does not count"),
        pytest.param([50] * 6 + [100] * 3 + [150] * 6 + [120] * 3, (100, 120), id="the middle does not count"),
        pytest.param([50] * 6 + [100, 190, 100] + [150] * 6 + [120, 190, 120], (100, 120), id="a peak does not count"),
    ],
)
def test_memory_is_compared_after_the_warm_up_and_in_the_end(megabytes: list[float], ends: tuple[int, int]) -> None:
    assert memory(*megabytes).ends == (ends[0] * MEGABYTE, ends[1] * MEGABYTE)


def test_memory_of_a_short_time_is_not_compared() -> None:
    assert memory(*[100] * 11).ends is None


@pytest.mark.parametrize(("last", "wrong"), [(124, 0), (126, 1)])
def test_memory_that_has_grown_by_more_than_a_quarter_is_wrong(last: int, wrong: int) -> None:
    figures = Figures(LONG, memory=memory(*[100] * 12, *[last] * 6))
    figures.judge()
    assert len(figures.wrong) == wrong


def test_figures_are_told_with_what_is_wrong() -> None:
    figures = Figures(LONG, "a machine", {"kill": 5}, waits=[1.0, 3.0], wrong=["claim a is allocated"])
    told = "\n".join(figures.lines())
    assert "5 x kill" in told
    assert "longest 3.0 s" in told
    assert told.endswith("WRONG: claim a is allocated\n1 findings")
