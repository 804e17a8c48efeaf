"""Why pods wait, what has become of claims, and how long pods waited: as metrics, kept up with the cluster."""

from datetime import timedelta
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from allocator import AllocationResult, DeviceId, DeviceResult, Limits
from extender.answers.observe.overview import ClaimCounts, ClaimSource, PendingPods
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import POD_CLAIM_NAME, SPECIAL
from extender.cluster.objects.pods import Pod
from extender.config.sources import load
from extender.framework.decision_log import MOST_CHANGES, DecisionLog
from extender.framework.decisions.verdict import PendingReason
from extender.framework.filter import filter_nodes
from extender.framework.pod_and_claim_states import ClaimState
from extender.framework.service import Service
from extender.framework.wire import BindArgs
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import PODS, RESOURCES
from tests.extender.faces.http.scenes import post
from tests.kit.binders import binder_over
from tests.kit.clusters import (
    DRIVER,
    GPU,
    NOW,
    Cluster,
    Object,
    app_over,
    asking,
    binding,
    claim,
    client_of,
    local_slice,
    node,
    parsed,
    pod,
    request,
    solver,
    state_of,
)

NODE_A = (GPU, node("a"), local_slice("a"))
MINE = pod("p", "c")
SERVED = load("scheduling: {schedulerNames: [dra]}")
PATIENT = load("scheduling: {deadlineSeconds: 60}")
"""However busy the machine is, a call is answered."""


def waiting(service: Service) -> dict[str, float]:
    """Pending pods by reason, as a scrape finds them."""
    found = {
        each.value: service.metrics.registry.get_sample_value("dra_extender_pending_pods", {"reason": each.value})
        for each in PendingReason
    }
    return {reason: number for reason, number in found.items() if number}


def gated(raw: Object) -> Object:
    return {**raw, "spec": {**raw["spec"], "schedulingGates": [{"name": "quota"}]}}


ANSWERED = {
    "fits": [*NODE_A, MINE, claim("c")],
    "devices": [*NODE_A, MINE, claim("c"), claim("other", allocated=["a/gpu-0"], at="a", users=["x"])],
    "claims": [*NODE_A, MINE],
    "terminating": [
        *NODE_A,
        pod("p", "c", nominated="a"),
        claim("c"),
        claim("v-c", allocated=["a/gpu-0"], at="a", users=["v"]),
        pod("v", "v-c", on="a", deleting=True),
    ],
}


@pytest.mark.parametrize("reason", ANSWERED)
async def test_a_pending_pod_waits_for_what_filter_has_answered(reason: str) -> None:
    cluster = Cluster.of(*ANSWERED[reason])
    extender, asked = cluster.extender(PATIENT), next(each for each in ANSWERED[reason] if each["kind"] == "Pod")
    assert waiting(extender.service) == {"not_asked": 1}
    async with client_of(app_over(extender, PATIENT)) as client:
        await post(client, "filter", asking(asked, "a"))
    assert waiting(extender.service) == {reason: 1}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (MINE, "no_attempt"),
        (gated(MINE), "no_attempt"),
        ({**MINE, "spec": {**MINE["spec"], "schedulerName": "dra"}}, "not_asked"),
    ],
    ids=["another scheduler", "a gate", "ours"],
)
def test_a_pod_that_no_scheduler_of_ours_tries_is_told_apart(raw: Object, reason: str) -> None:
    extender = Cluster.of(*NODE_A, raw, claim("c")).extender(SERVED)
    assert waiting(extender.service) == {reason: 1}


async def test_calls_that_end_with_an_error_are_reasons() -> None:
    cluster = Cluster.of(*NODE_A, MINE, claim("c"))
    extender = cluster.extender()
    async with client_of(app_over(extender)) as client:
        assert "nowhere" in (await post(client, "bind", binding("p", "nowhere")))["Error"]
        assert waiting(extender.service) == {"bind_error": 1}
        cluster.state.doubt(RESOURCES["Node"], "not synced")
        assert "not synced" in (await post(client, "filter", asking(MINE, "a")))["Error"]
        assert waiting(extender.service) == {"filter_error": 1}


def test_a_search_that_a_limit_has_stopped_is_a_reason() -> None:
    snapshot = state_of([GPU, node("a"), local_slice("a", 3), MINE, claim("c", request(count=2))]).snapshot
    result = filter_nodes(parsed(MINE), ("a",), snapshot, solver(limits=Limits(steps=1)))
    assert result.pending_reason is PendingReason.SEARCH


async def test_a_pod_that_is_bound_or_gone_waits_no_longer() -> None:
    cluster = Cluster.of(*NODE_A, MINE, claim("c"), pod("q", "d"))
    extender = cluster.extender()
    async with client_of(app_over(extender)) as client:
        await post(client, "filter", asking(MINE, "a"))
        assert waiting(extender.service) == {"fits": 1, "not_asked": 1}
        assert await post(client, "bind", binding("p", "a")) == {}
        assert waiting(extender.service) == {"not_asked": 1}
    await cluster.api.delete(PODS, ObjectKey("ns", "q"))
    assert waiting(extender.service) == {}


async def test_the_time_until_a_bind_has_allocated_is_measured_once() -> None:
    service = Cluster.of(*NODE_A, MINE, claim("c")).service()
    for _ in range(2):
        await service.bind(BindArgs("ns", "p", "uid-p", "a"))
    assert service.metrics.registry.get_sample_value("dra_extender_pod_allocation_seconds_count") == 1


async def test_a_claim_that_is_allocated_already_is_no_new_allocation() -> None:
    told: list[Pod] = []
    for claims in ([claim("c")], [claim("c", allocated=["a/gpu-0"], at="a", users=["other"])]):
        cluster = Cluster.of(*NODE_A, MINE, *claims)
        binder = binder_over(cluster.api, cluster.state, allocated=told.append, now=lambda: NOW + timedelta(seconds=9))
        await binder.bind(ObjectKey("ns", "p"), "uid-p", "a")
        assert [each.name for each in told] == ["p"]


# --- claims ---------------------------------------------------------------------------------------------------

SOURCES: dict[ClaimSource, dict[str, Any]] = {
    ClaimSource.CLAIM: {},
    ClaimSource.TEMPLATE: {"annotations": {POD_CLAIM_NAME: "gpu"}},
    ClaimSource.EXTENDED_RESOURCE: {
        "annotations": {SPECIAL: "true"},
        "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}],
    },
}
STATES: dict[ClaimState, dict[str, Any]] = {
    ClaimState.PENDING: {},
    ClaimState.ALLOCATED: {"allocated": ["a/gpu-0"], "at": "a"},
    ClaimState.RESERVED: {"allocated": ["a/gpu-0"], "at": "a", "users": ["p"]},
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("state", STATES)
def test_claims_are_counted_by_state_and_source(state: ClaimState, source: ClaimSource) -> None:
    cluster = state_of([claim("c", **STATES[state], metadata=SOURCES[source])])
    counts = ClaimCounts(cluster).count(cluster.snapshot)
    assert {label: number for label, number in counts.items() if number} == {(state, source): 1}
    assert len(counts) == len(ClaimState) * len(ClaimSource)


def test_a_claim_in_flight_is_counted_as_such() -> None:
    cluster = state_of([claim("c")])
    counts = ClaimCounts(cluster)
    assert counts.count(cluster.snapshot)[ClaimState.PENDING, ClaimSource.CLAIM] == 1
    cluster.assume("uid-c", AllocationResult((DeviceResult("gpu", DeviceId(DRIVER, "a", "gpu-0")),)), "uid-p")
    assert counts.count(cluster.snapshot)[ClaimState.IN_FLIGHT, ClaimSource.CLAIM] == 1
    assert counts.count(cluster.snapshot)[ClaimState.PENDING, ClaimSource.CLAIM] == 0


# --- kept up with the cluster ---------------------------------------------------------------------------------

NAMES = st.sampled_from("abc")
STEPS = st.one_of(
    st.builds(
        lambda name, state, source: claim(name, **STATES[state], metadata=SOURCES[source]),
        NAMES,
        st.sampled_from(sorted(STATES, key=str)),
        st.sampled_from(sorted(SOURCES, key=str)),
    ),
    st.builds(lambda name, on: pod(name, name, on=on), NAMES, st.sampled_from(["", "", "n"])),
    st.builds(lambda name: gated(pod(name, name)), NAMES),
)


def new_log() -> DecisionLog:
    return DecisionLog(1, now=lambda: NOW, clock=lambda: 0.0, new_id=str, has_pod=lambda _: True)


def answer(to: DecisionLog, name: str, waits_for: PendingReason) -> None:
    with to.deciding("filter", ObjectKey("ns", name), f"uid-{name}", share="ns") as draft:
        draft.nodes(1, {}, waits_for)


HAPPENINGS = st.lists(st.tuples(st.one_of(STEPS, NAMES, st.none()), st.booleans()), max_size=25)
"""An object that comes or goes, the name of a pod that gets an answer, or a scrape."""


@given(HAPPENINGS)
def test_what_is_kept_up_is_what_is_counted_anew(happenings: list[tuple[Object | str | None, bool]]) -> None:
    state = ClusterState(log_size=3)
    for resource in RESOURCES.values():
        state.replace(resource, [], 0)
    decision_log, claims = new_log(), ClaimCounts(state)
    pending = PendingPods(state, decision_log, ())
    answered: list[str] = []
    for number, (step, is_there) in enumerate([*happenings, (None, True)]):
        if step is None:
            again = new_log()
            for name in answered:
                answer(again, name, PendingReason.DEVICES)
            anew = PendingPods(state, again, ())
            assert pending.count(state.snapshot) == anew.count(state.snapshot)
            assert claims.count(state.snapshot) == ClaimCounts(state).count(state.snapshot)
        elif isinstance(step, str):
            answered.append(step)
            answer(decision_log, step, PendingReason.DEVICES)
        else:
            raw = step | {"metadata": step["metadata"] | {"resourceVersion": str(number + 2)}}
            kind = EventType.MODIFIED if is_there else EventType.DELETED
            state.apply(Event(kind, RESOURCES[raw["kind"]], raw))


def test_more_answers_than_are_kept_between_two_scrapes_are_no_loss() -> None:
    state = state_of([pod("p", "c")])
    decision_log = new_log()
    pending = PendingPods(state, decision_log, ())
    assert pending.count(state.snapshot)[PendingReason.NOT_ASKED] == 1
    answer(decision_log, "p", PendingReason.DEVICES)
    with structlog.testing.capture_logs():  # lines to write would take most of the time
        for number in range(MOST_CHANGES):
            answer(decision_log, f"other-{number % 10}", PendingReason.FITS)
    assert pending.count(state.snapshot)[PendingReason.DEVICES] == 1
