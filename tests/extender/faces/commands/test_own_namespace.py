"""What `kubectl dra explain` says to a user who may read one namespace alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from extender.cluster.objects.pods import WAITS
from extender.cluster.writes.events import REPORTER
from extender.faces.commands.own_namespace import told_by
from extender.kube.api import RawObject
from tests.kit.clusters import claim, pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
UNSEEN = ["you may not: list pods in namespace kube-system", "not allowed: list nodes"]
LINE = "no device has model b200 (a100 4). What would help: ask for model a100"
SCHEDULER = "0/2 nodes are available: 2 no device matches request gpu."


def event(message: str, *, reason: str = "DevicesUnavailable", ago: int = 90, **more: Any) -> RawObject:
    """An Event of dra-extender on pod p, as the API server has it in its first group."""
    return {
        "metadata": {"name": "p.1", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "ns", "uid": pod("p")["metadata"]["uid"]},
        "reportingComponent": REPORTER,
        "reason": reason,
        "message": message,
        "eventTime": (NOW - timedelta(seconds=ago)).isoformat(),
        **more,
    }


def waiting(message: str = "") -> RawObject:
    """Pod p, and what kube-scheduler says of it."""
    made = pod("p", "c")
    if message:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        made["status"] = {"conditions": [condition]}
    return made


def told(obj: RawObject, *events: RawObject, is_claim: bool = False) -> RawObject:
    return told_by(obj, events, is_claim=is_claim, unseen=UNSEEN, now=NOW)


def test_the_cause_comes_first_and_what_was_not_seen_last() -> None:
    found = told(waiting(SCHEDULER), event(LINE))
    assert found["text"].splitlines() == [
        f"pod ns/p waits: {LINE}",
        f"  dra-extender, 90s ago, DevicesUnavailable: {LINE}",
        f"  kube-scheduler: {SCHEDULER}",
        "This is what the object and its Events say. Nothing more was seen:",
        *(f"  {each}" for each in UNSEEN),
    ]
    assert (found["verdict"], found["headline"], found["unseen"]) == ("fits nowhere", LINE, UNSEEN)


def gated() -> RawObject:
    made = waiting("Scheduling is blocked due to non-empty scheduling gates")
    made["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    return made


def on_node() -> RawObject:
    return pod("p", "c", on="a")


@pytest.mark.parametrize(
    ("obj", "is_claim", "verdict", "line"),
    [
        (waiting(SCHEDULER), False, "fits nowhere", f"pod ns/p waits: {SCHEDULER}"),
        (waiting(), False, "not told", "pod ns/p waits, and nobody has said why yet"),
        (gated(), False, "blocked", "pod ns/p waits: Scheduling is blocked due to non-empty scheduling gates"),
        (on_node(), False, "bound", "pod ns/p has node a"),
        (claim("c"), True, "not told", "claim ns/c waits, and nobody has said why yet"),
        (
            claim("c", allocated=["a/gpu-0"], at="a"),
            True,
            "allocated",
            "claim ns/c is allocated: gpu.example.com/a/gpu-0",
        ),
    ],
    ids=["the scheduler alone", "nobody", "a gate", "a node", "a claim", "an allocated claim"],
)
def test_without_an_event_the_object_tells(obj: RawObject, is_claim: bool, verdict: str, line: str) -> None:
    found = told(obj, is_claim=is_claim)
    assert (found["verdict"], found["text"].splitlines()[0]) == (verdict, line)


def test_the_newest_event_of_each_reason_counts_and_series_are_as_new_as_their_last() -> None:
    found = told(
        waiting(),
        event("old", ago=600),
        event("new", ago=300, series={"lastObservedTime": (NOW - timedelta(seconds=5)).isoformat()}),
        event("over", reason="QuotaExceeded", ago=60),
    )
    assert [each["message"] for each in found["events"]] == ["new", "over"]


def with_condition(message: str) -> RawObject:
    made = waiting(SCHEDULER)
    made["status"]["conditions"].append({"type": WAITS, "status": "False", "message": message})
    return made


def test_once_the_event_is_gone_the_condition_tells() -> None:
    found = told(with_condition(LINE))
    assert found["text"].splitlines()[:3] == [
        f"pod ns/p waits: {LINE}",
        f"  dra-extender: {LINE}",
        f"  kube-scheduler: {SCHEDULER}",
    ]
    assert (found["verdict"], found["headline"]) == ("fits nowhere", LINE)


def test_a_condition_that_says_the_same_as_the_event_is_not_told_twice() -> None:
    assert told(with_condition(LINE), event(LINE))["text"] == told(waiting(SCHEDULER), event(LINE))["text"]


@pytest.mark.parametrize(
    "other",
    [{"reportingComponent": "kubelet"}, {"involvedObject": {"uid": "an earlier pod"}}],
    ids=["another reporter", "an earlier pod of the name"],
)
def test_events_of_others_do_not_count(other: dict[str, Any]) -> None:
    assert told(waiting(), event(LINE, **other))["verdict"] == "not told"
