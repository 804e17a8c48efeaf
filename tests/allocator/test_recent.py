"""The one bounded memory."""

from allocator import Recent


def test_what_is_used_is_kept_and_the_rest_is_forgotten() -> None:
    recent: Recent[int] = Recent(8)
    for number in range(100):
        recent.keep(number, number)
        assert recent.find("used") in (None, -1)
        recent.keep("used", -1)
    assert len(recent) <= 4
    assert recent.find("used") == -1
    assert recent.find(0) is None


def test_at_least_the_latest_half_of_the_limit_is_kept() -> None:
    for count in range(1, 30):
        recent: Recent[int] = Recent(8)
        for number in range(count):
            recent.keep(number, number)
        latest = range(max(0, count - 4), count)
        assert [recent.find(each) for each in latest] == list(latest)


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
