"""The decision log: a ring of decisions, and a line each in the log."""

import asyncio
from collections import Counter
from collections.abc import Callable, Container
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
import structlog
from structlog.contextvars import get_contextvars

from extender.framework.decision_log import DecisionLog
from extender.framework.decisions.verdict import PendingReason
from extender.kube.api import ObjectKey

POD = ObjectKey("ns", "p")
AT = datetime(2026, 1, 1, tzinfo=UTC)


def decision_log(
    size: int = 10, now: Callable[[], datetime] = lambda: AT, pods: Container[str] | None = None
) -> DecisionLog:
    """A log over a cluster with some pods; None: with all of them."""
    ids, seconds = count(1), count()
    return DecisionLog(
        size,
        now=now,
        clock=lambda: float(next(seconds)),
        new_id=lambda: f"id-{next(ids)}",
        has_pod=lambda uid: pods is None or uid in pods,
    )


def test_a_decision_is_noted_with_its_nodes() -> None:
    kept = decision_log()
    with kept.deciding("filter", POD, "uid", share="ns") as draft:
        draft.nodes(2, {"no free device": 2, "tainted": 1})
    (entry,) = kept.entries
    assert (entry.id, entry.at, entry.seconds, entry.verb, entry.pod) == ("id-1", AT, 1.0, "filter", POD)
    assert (entry.passed, entry.rejected, entry.error) == (2, {"no free device": 2, "tainted": 1}, "")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("pod p is gone"), "pod p is gone"),
        (KeyError(), "KeyError"),
        (TimeoutError(), "not done in time"),
        (asyncio.CancelledError(), "not done in time"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_noted_and_goes_on(error: BaseException, text: str) -> None:
    kept = decision_log()
    with pytest.raises(type(error)), kept.deciding("bind", POD, "uid", "n", share="ns"):
        raise error
    assert [(entry.node, entry.error) for entry in kept.entries] == [("n", text)]


def test_the_latest_are_kept_newest_first() -> None:
    kept = decision_log(2)
    for verb in ("filter", "preempt", "bind"):
        with kept.deciding(verb, POD, "uid", share="ns"):
            pass
    assert [(entry.number, entry.verb) for entry in kept.entries] == [(3, "bind"), (2, "preempt")]


def decide(in_log: DecisionLog, pod: ObjectKey, *reasons: str, share: str | None = None) -> None:
    with in_log.deciding("filter", pod, f"uid-{pod.name}", share=pod.namespace if share is None else share) as draft:
        draft.nodes(0, Counter(reasons), PendingReason.DEVICES)


def test_a_namespace_with_many_decisions_pushes_out_its_own() -> None:
    kept = decision_log(10)
    for number in range(2):
        decide(kept, ObjectKey("quiet", f"q-{number}"))
    for number in range(100):
        decide(kept, ObjectKey("busy", f"b-{number}"))
    names = [entry.pod.name for entry in kept.entries]
    assert names == [*(f"b-{number}" for number in range(99, 91, -1)), "q-1", "q-0"]


def test_pods_that_the_watch_has_not_shown_push_out_their_own_whatever_their_namespaces_are() -> None:
    kept = decision_log(10)
    for number in range(2):
        decide(kept, ObjectKey("quiet", f"q-{number}"))
    for number in range(100):
        decide(kept, ObjectKey(f"made-up-{number}", "p"), share="")
    assert [entry.pod.name for entry in kept.entries][-2:] == ["q-1", "q-0"]


def test_long_answers_about_pods_of_a_namespace_push_out_those_of_no_other() -> None:
    kept = decision_log(1)
    decide(kept, ObjectKey("quiet", "q"))
    for number in range(1000):
        decide(kept, ObjectKey("busy", f"b-{number}"), *(f"{number} {each}" + "x" * 1024 for each in range(32)))
    assert kept.latest("uid-q") is not None
    assert kept.latest("uid-b-0") is None
    assert kept.latest("uid-b-999") is not None


def test_what_is_logged_meanwhile_carries_pod_and_decision() -> None:
    kept = decision_log()
    with kept.deciding("bind", POD, "uid", share="ns"):
        assert get_contextvars() == {"decision": "id-1", "pod": "ns/p"}
    assert get_contextvars() == {}


@pytest.mark.parametrize(
    ("verb", "passed", "error", "level"),
    [
        ("filter", 3, None, "debug"),
        ("filter", 0, None, "info"),
        ("filter", 3, ValueError("x"), "info"),
        ("bind", 1, None, "info"),
    ],
)
def test_what_leaves_a_pod_waiting_and_every_bind_is_worth_a_line(
    verb: str, passed: int, error: Exception | None, level: str
) -> None:
    kept = decision_log()
    with structlog.testing.capture_logs() as lines:
        try:
            with kept.deciding(verb, POD, "uid", share="ns") as draft:
                draft.nodes(passed, {"tainted": 1})
                if error is not None:
                    raise error
        except ValueError:
            pass
    assert [(line["event"], line["verb"], line["log_level"]) for line in lines] == [("decided", verb, level)]
    assert lines[0]["rejected"] == {"tainted": 1}


def answer(to: DecisionLog, uid: str, waits_for: PendingReason, *reasons: str) -> None:
    with to.deciding("filter", POD, uid, share="ns") as draft:
        draft.nodes(0, Counter(reasons), waits_for)


def test_the_latest_answer_about_each_pod_outlives_the_ring() -> None:
    kept = decision_log(1)
    for uid, waits_for in (("p", PendingReason.SEARCH), ("q", PendingReason.FITS), ("p", PendingReason.DEVICES)):
        answer(kept, uid, waits_for)
    latest = [kept.latest(uid) for uid in ("p", "q", "r")]
    assert [each and each.waits_for for each in latest] == [PendingReason.DEVICES, PendingReason.FITS, None]


def test_an_error_is_what_the_pod_waits_for_and_a_bind_ends_the_wait() -> None:
    kept = decision_log()
    for verb, waits_for in (("filter", PendingReason.FILTER_ERROR), ("bind", PendingReason.BIND_ERROR)):
        with pytest.raises(ValueError, match="x"), kept.deciding(verb, POD, "p", share="ns"):
            raise ValueError("x")
        latest = kept.latest("p")
        assert latest is not None
        assert latest.waits_for is waits_for
    with kept.deciding("bind", POD, "p", "n", share="ns"):
        pass
    assert kept.latest("p") is None


def test_the_answer_about_a_pod_that_is_gone_is_forgotten_some_answers_later() -> None:
    seconds = count()
    kept = decision_log(now=lambda: AT + timedelta(seconds=next(seconds)), pods={"waits"})
    answer(kept, "waits", PendingReason.DEVICES)
    for number in range(1000):
        answer(kept, f"gone-{number}", PendingReason.DEVICES)
    known = [number for number in range(1000) if kept.latest(f"gone-{number}")]
    assert known[0] > 850
    assert known[-60:] == list(range(940, 1000)), "the watch may not have shown these yet"
    assert kept.latest("waits") is not None


def test_long_answers_take_the_room_of_many() -> None:
    kept = decision_log(1)
    for number in range(1000):
        answer(kept, f"p-{number}", PendingReason.DEVICES, *(f"{number} {each}" + "x" * 1024 for each in range(32)))
    assert (kept.latest("p-0") is None, kept.latest("p-999") is None) == (True, False)
