"""Which changes can help pods that were rejected, and where: too much is waste, too little leaves a pod pending."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.cluster_state import ClusterState
from extender.cluster.timeline import ANYTHING
from extender.framework.filter import filter_nodes
from extender.framework.plugin import Plugins
from extender.framework.queueing_hints import EVERYWHERE, NO_HINT, QueueingHint, queueing_hint
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import RESOURCES
from tests.extender.plugins.quota.test_quota_account import keeping
from tests.kit.clusters import (
    GPU,
    Object,
    claim,
    device_class,
    local_slice,
    network_slice,
    node,
    parsed,
    pod,
    request,
    solver,
    state_of,
    taint_rule,
)

ON_A = QueueingHint(nodes=frozenset("a"))


def after(state: ClusterState, *events: tuple[EventType, Object]) -> QueueingHint:
    """What some events can help."""
    before = state.snapshot
    for kind, obj in events:
        state.apply(Event(kind, RESOURCES[obj["kind"]], obj))
    return queueing_hint(state.since(before.version), before, state.snapshot, Plugins())


def there(obj: Object) -> tuple[EventType, Object]:
    return EventType.MODIFIED, obj


def gone(obj: Object) -> tuple[EventType, Object]:
    return EventType.DELETED, obj


def own(name: str, **fields: Iterable[str]) -> QueueingHint:
    """A claim's own pods may fit anywhere; ``nodes`` for everybody."""
    return QueueingHint(claims=frozenset({ObjectKey("ns", name)}), nodes=frozenset(fields.get("nodes", ())))


EVICTING = {"conditions": [{"type": "EvictionInProgress", "status": "True", "message": "1 pod needs to be evicted"}]}

WORLD = (
    GPU,
    node("a"),
    node("b"),
    local_slice("a", 2),
    network_slice("net"),
    claim("held", allocated=["a/gpu-0"], at="a", users=["u"]),
    claim("free"),
    claim("taken", allocated=["net/gpu-0"], users=["served"]),
    taint_rule("rule", pool="a"),
    pod("nominated", "free", nominated="b"),
    pod("served", "taken", nominated="b"),
)

CASES: list[tuple[str, tuple[EventType, Object], QueueingHint]] = [
    ("a slice of a node", there(local_slice("b")), QueueingHint(nodes=frozenset("b"))),
    ("a slice with another device", there(local_slice("a", 3)), ON_A),
    ("a slice that is gone", gone(local_slice("a", 2)), ON_A),
    ("a slice for many nodes", there(network_slice("net", 2)), EVERYWHERE),
    ("a claim that is freed", there(claim("held")), own("held", nodes="a")),
    ("a claim that is gone", gone(claim("held")), own("held", nodes="a")),
    ("a claim that takes another device", there(claim("free", allocated=["a/gpu-1"], at="a")), own("free")),
    ("a claim that moves", there(claim("held", allocated=["a/gpu-1"], at="a")), own("held", nodes="a")),
    ("a claim that is new", there(claim("new")), own("new")),
    ("a claim that a nominated pod needed is gone", gone(claim("free")), EVERYWHERE),
    ("a node that is new", there(node("c")), QueueingHint(nodes=frozenset("c"))),
    ("a node with other labels", there(node("a", labels={"zone": "1"})), ON_A),
    ("a node that is gone", gone(node("a")), NO_HINT),
    ("a class", there(device_class()), EVERYWHERE),
    ("a taint rule that is gone", gone(taint_rule("rule", pool="a")), EVERYWHERE),
    ("a taint rule that has changed", there(taint_rule("rule", pool="b")), EVERYWHERE),
    ("a taint rule with another status", there({**taint_rule("rule", pool="a"), "status": EVICTING}), NO_HINT),
    ("a taint rule that is new", there(taint_rule("new", pool="b")), NO_HINT),
    ("a nominated pod that is bound there", there(pod("served", "taken", nominated="b", on="b")), NO_HINT),
    (
        "one whose claim is not known to have devices",
        there(pod("nominated", "free", nominated="b", on="b")),
        EVERYWHERE,
    ),
    ("a nominated pod that is bound elsewhere", there(pod("nominated", "free", nominated="b", on="a")), EVERYWHERE),
    ("a nominated pod that is nominated no more", there(pod("nominated", "free")), EVERYWHERE),
    ("a nominated pod that is deleted", there(pod("nominated", "free", nominated="b", deleting=True)), EVERYWHERE),
    ("a nominated pod that is gone", gone(pod("nominated", "free")), EVERYWHERE),
    ("another pod", there(pod("p", "free")), NO_HINT),
]


@pytest.mark.parametrize(("event", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_an_event_can_help(event: tuple[EventType, Object], expected: QueueingHint) -> None:
    assert after(state_of(WORLD), event) == expected


def test_changes_that_are_not_known_may_help_anywhere() -> None:
    snapshot = state_of(WORLD).snapshot
    assert queueing_hint(ANYTHING, snapshot, snapshot, Plugins()) == EVERYWHERE


def test_several_events_help_together() -> None:
    state = state_of(WORLD)
    assert after(state, there(claim("held")), there(node("c"))) == own("held", nodes="ac")


EVENTS = st.lists(
    st.sampled_from(
        [
            *(there(local_slice(name, count)) for name in "ab" for count in (1, 2)),
            *(gone(local_slice(name)) for name in "ab"),
            *(there(network_slice("net", count)) for count in (0, 1)),
            *(there(claim("held", allocated=[f"{at}/gpu-0"], at=at, users=["u"])) for at in "ab"),
            there(claim("held")),
            there(claim("mine", request(count=2))),
            there(claim("mine")),
            gone(claim("mine")),
            there(claim("theirs")),
            gone(claim("theirs")),
            there(taint_rule("rule", pool="a")),
            there(taint_rule("rule", pool="b")),
            gone(taint_rule("rule")),
            there(pod("n", "theirs", nominated="a", priority=9)),
            there(pod("n", "theirs", nominated="b", priority=9)),
            there(pod("n", "theirs", on="a", priority=9)),
            gone(pod("n")),
            there(GPU),
            gone(GPU),
            there(node("a")),
            gone(node("a")),
        ]
    ),
    max_size=3,
)


@given(past=EVENTS, events=EVENTS)
def test_no_node_starts_to_fit_without_being_named(
    past: list[tuple[EventType, Object]], events: list[tuple[EventType, Object]]
) -> None:
    state = state_of([GPU, node("a"), node("b"), local_slice("a"), claim("mine"), claim("theirs")])
    after(state, *past)
    asked = parsed(pod("p", "mine"))
    before = filter_nodes(asked, "ab", state.snapshot, solver())
    news = after(state, *events)
    now = filter_nodes(asked, "ab", state.snapshot, solver())
    if not news.everywhere and ObjectKey("ns", "mine") not in news.claims:
        assert set(now.passed) <= set(before.passed) | news.nodes


@pytest.mark.parametrize(("device", "expected"), [("net/gpu-0", NO_HINT), ("a/gpu-1", EVERYWHERE)])
def test_a_pod_that_is_bound_with_other_devices_than_were_kept_for_it_helps_others(
    device: str, expected: QueueingHint
) -> None:
    state = state_of([*WORLD, keeping(pod("k", "taken"), device, on="b")])
    assert after(state, there(keeping(pod("k", "taken", on="b"), device, on="b"))) == expected


def test_a_nomination_that_was_not_written_helps_others_because_it_counted_in_quotas() -> None:
    state = state_of(WORLD)
    waiting = state.snapshot.pods[ObjectKey("ns", "nominated")]
    state.assume_kept([waiting])
    before = state.snapshot
    state.forget_kept(waiting)
    assert queueing_hint(state.since(before.version), before, state.snapshot, Plugins()) == EVERYWHERE
