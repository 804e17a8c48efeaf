"""Explanations wait for verbs: who goes first."""

from contextlib import ExitStack

from extender.tools.fairness.verb_priority import VerbPriority


class Time:
    """A clock that moves when somebody sleeps, and a little whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        self.now += 0.0004
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


def test_an_explanation_waits_while_a_verb_is_under_way_but_not_for_ever() -> None:
    time = Time()
    verb_priority = VerbPriority(time, time.sleep)
    pause = verb_priority.turn()
    with verb_priority.verb():
        pause()
    assert 0.9 < sum(time.slept) < 1.2
    before = len(time.slept)
    pause()
    assert len(time.slept) <= before + 1


def test_work_is_in_small_pieces_with_a_breath_between_them() -> None:
    time = Time()
    pause = VerbPriority(time, time.sleep).turn()
    for _ in range(100):
        pause()
    assert len(time.slept) > 20
    assert sum(time.slept) < 0.01


def test_a_verb_that_ends_lets_the_explanation_go_on() -> None:
    verb, slept = ExitStack(), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        verb.close()

    verb_priority = VerbPriority(lambda: 0.0, sleep)
    verb.enter_context(verb_priority.verb())
    verb_priority.turn()()
    assert len(slept) == 1
