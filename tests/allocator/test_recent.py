"""The one bounded memory."""

import sys
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from allocator.tools import Recent


def test_what_is_used_is_kept_and_the_rest_is_forgotten() -> None:
    recent: Recent[int] = Recent(8)
    for number in range(100):
        recent.keep(number, number)
        assert recent.find("used") in (None, -1)
        recent.keep("used", -1)
    assert [each for each in ("used", *range(100)) if recent.find(each) is not None] == ["used", *range(93, 100)]


def test_as_many_entries_as_the_limit_allows_are_kept_the_latest_ones() -> None:
    for count in range(1, 30):
        recent: Recent[int] = Recent(8)
        for number in range(count):
            recent.keep(number, number)
        kept = [each for each in range(count) if recent.find(each) is not None]
        assert kept == list(range(max(0, count - 8), count))


class Counted:
    """An object that counts those like it that were freed."""

    freed = 0

    def __del__(self) -> None:
        Counted.freed += 1


def test_a_new_entry_frees_one_old_entry_at_most() -> None:
    recent: Recent[Counted] = Recent(8)
    for number in range(50):
        before = Counted.freed
        recent.keep(number, Counted())
        assert Counted.freed - before == (number >= 8)


def test_a_value_that_is_replaced_makes_no_other_forgotten() -> None:
    recent: Recent[int] = Recent(4)
    for key in ("a", "b", "c", "d", "d", "d"):
        recent.keep(key, len(recent))
    assert recent.find("a") == 0


def test_what_is_forgotten_is_not_found() -> None:
    recent: Recent[int] = Recent(4)
    for number in (1, 2, 3):
        recent.keep(number, number)
    assert (recent.forget(1), recent.forget(1), recent.forget(3)) == (1, None, 3)
    assert (recent.find(1), recent.find(2), recent.find(3)) == (None, 2, None)
    recent.forget_all()
    assert recent.find(2) is None


def test_heavy_entries_take_the_room_of_many() -> None:
    recent: Recent[int] = Recent(10, lambda key, _: len(key))
    for key in ("aa", "bb", "cc", "dd", "ee", "ffffff"):
        recent.keep(key, 0)
    assert [key for key in ("aa", "bb", "cc", "dd", "ee", "ffffff") if recent.find(key) is not None] == [
        "dd",
        "ee",
        "ffffff",
    ]


def test_an_entry_heavier_than_the_limit_is_kept_alone() -> None:
    recent: Recent[int] = Recent(10, lambda key, _: len(key))
    for key in ("aa", "b" * 99, "cc"):
        recent.keep(key, 0)
        assert recent.find(key) == 0
        assert (recent.find("aa") is None) is (key != "aa")


@given(st.lists(st.tuples(st.sampled_from(["keep", "keep", "find", "forget"]), st.integers(1, 12))))
def test_the_weight_never_exceeds_the_limit(calls: list[tuple[str, int]]) -> None:
    recent: Recent[int] = Recent(20, lambda key, _: int(key))
    for call, key in calls:
        if call == "keep":
            recent.keep(key, key)
        else:
            getattr(recent, call)(key)
        assert sum(each for each in range(1, 13) if each in recent or each in recent._old) <= 20


def test_a_value_may_decide_the_weight() -> None:
    recent: Recent[str] = Recent(10, lambda _, value: len(value))
    for key, value in enumerate(("aaaa", "bbbb", "cccccc", "d")):
        recent.keep(key, value)
    assert [recent.find(key) for key in range(4)] == [None, None, "cccccc", "d"]


def test_threads_that_keep_at_the_same_time_all_come_to_an_end() -> None:
    recent: Recent[int] = Recent(50, lambda key, _: int(str(key)))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            kept = pool.map(lambda seed: [recent.keep(seed + n % 9, n) for n in range(5000)], range(1, 5))
            assert [len(each) for each in kept] == [5000] * 4
    finally:
        sys.setswitchinterval(before)
    recent.keep(1, 1)
    assert recent.find(1) == 1


def test_an_old_entry_that_is_not_listed_is_forgotten() -> None:
    recent: Recent[int] = Recent(2)
    for number in range(4):
        recent.keep(number, number)
    recent._oldest_last.clear()
    for number in range(4, 8):
        assert recent.keep(number, number) == number
