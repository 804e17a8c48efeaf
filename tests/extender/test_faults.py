"""Faults that nobody thought of: each is one pod's, with its name, and is told once. Others get what they ask for."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from extender.answers.explain.explainer import Explainer
from extender.answers.explain.explanation import Conclusion
from extender.autoscaler.scale_up.estimate import estimate
from extender.autoscaler.scale_up.plan import EXPANDERS
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.config.settings import Settings
from extender.faces.assembly import Extender, make_extender
from extender.faces.simulation.scheduling import schedule
from extender.framework.filter import filter_nodes
from extender.framework.held_devices import held_for_nominated
from extender.framework.rejected_pods import PATIENCE
from extender.framework.victims import Victims
from extender.framework.wire import BindArgs, FilterArgs, PreemptArgs
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from extender.lab.cluster import EmbeddedCluster
from extender.lab.manifests import load_objects
from extender.plugins.requeue.unserved import Cause, ToldPods, Unserved
from extender.tools.faults import Faults, RefusedError
from tests.extender.autoscaler.scenes import group_of, node_template, pending, pod_of, world_of
from tests.extender.framework.poison import FAULT, POISON, Told, poison_claim, poisoned
from tests.extender.plugins.requeue.scenes import mark
from tests.kit.clusters import (
    NOW,
    Cluster,
    Object,
    claim,
    device_class,
    local_slice,
    node,
    parsed,
    pod,
    rejected,
    request,
    snapshot_of,
    solver,
    state_of,
)

SICK, WELL = pod("sick", "sick-c"), pod("well", "well-c")
CLAIMS = (poison_claim("sick-c"), claim("well-c"))
WORLD = (device_class(), node("a"), node("b"), *CLAIMS, SICK, WELL)
DEVICES = (local_slice("a", 2), local_slice("b", 2))
REASON = f"claim ns/sick-c: {FAULT}"
REAL_POISON = "null.major() == 1"
"""Is no error of CEL in every version; whatever it is, it is the pod's."""


def extender_over(cluster: Cluster, told: Told) -> Extender:
    return make_extender(cluster.api, cluster.state, poisoned(told), Settings())


def filter_args(raw: Object) -> FilterArgs:
    return FilterArgs(parsed(raw), ("a", "b"))


# --- verbs ----------------------------------------------------------------------------------------------------


async def test_filter_says_of_which_claim_the_fault_is_and_the_log_hears_it_once() -> None:
    told = Told()
    service = extender_over(Cluster.of(*WORLD, *DEVICES), told).service
    for _ in range(3):
        result = await service.filter(filter_args(SICK))
        assert result.unresolvable.in_words() == dict.fromkeys(("a", "b"), REASON)
    assert told.lines == ["claim ns/sick-c: poison"]
    assert (await service.filter(filter_args(WELL))).passed == ("a", "b")


async def test_bind_and_preempt_answer_as_for_any_claim_that_can_go_nowhere() -> None:
    service = extender_over(Cluster.of(*WORLD, *DEVICES), Told()).service
    with pytest.raises(RefusedError, match="claim ns/sick-c: internal error"):
        await service.bind(BindArgs("sick", "ns", "uid-sick", "a"))
    assert await service.preempt(PreemptArgs(parsed(SICK), {"a": Victims(("x",))})) == {}


def test_a_nominated_pod_with_a_fault_keeps_nobody_off() -> None:
    sick = pod("sick", "sick-c", nominated="a", priority=10)
    snapshot = snapshot_of(device_class(), node("a"), local_slice("a"), *CLAIMS, sick, WELL)
    assert held_for_nominated(parsed(WELL), snapshot, poisoned()) is snapshot
    assert filter_nodes(parsed(WELL), ("a",), snapshot, poisoned()).passed == ("a",)


async def test_an_explanation_names_the_fault() -> None:
    cluster = Cluster.of(*WORLD, *DEVICES)
    found = await extender_over(cluster, Told()).explanations.explain(parsed(SICK))
    assert (found.verdict, found.cause) == (Conclusion.FITS_NOWHERE, REASON)
    assert found.notes == (FAULT,)


def broken_clock() -> float:
    raise ZeroDivisionError("clock")


def test_an_explanation_that_fails_as_such_says_so() -> None:
    told = Told()
    broken = replace(poisoned(told), clock=broken_clock)
    snapshot = snapshot_of(device_class(), node("a"), claim("well-c"), WELL)
    found = Explainer.alone(snapshot, broken).explain(parsed(WELL))
    assert found.verdict in {Conclusion.BLOCKED, Conclusion.FITS_NOWHERE}
    assert "internal error" in f"{found.cause} {found.notes}"
    assert told.lines


@pytest.mark.parametrize("expression", [REAL_POISON, "null.isGreaterThan(semver('1.0.0'))", "[1][null] == 1"])
def test_whatever_a_selector_meets_is_an_answer(expression: str) -> None:
    wanting = claim("sick-c", request(selectors=[expression]))
    snapshot = snapshot_of(device_class(), node("a"), local_slice("a"), wanting, SICK)
    by = replace(solver(), faults=Faults(Told()))
    result = filter_nodes(parsed(SICK), ("a",), snapshot, by)
    assert (result.passed, set(result.unresolvable)) == ((), {"a"})
    assert "claim ns/sick-c" in result.unresolvable.in_words()["a"]
    assert Explainer.alone(snapshot, by).explain(snapshot.pods[ObjectKey("ns", "sick")]).cause


# --- loops over pods ------------------------------------------------------------------------------------------


async def test_a_pod_with_a_fault_that_waits_since_before_the_start_keeps_nobody_from_being_woken() -> None:
    told, cluster = Told(), Cluster.of(*rejected(*WORLD))
    service = extender_over(cluster, told).service
    assert not (await service.filter(filter_args(WELL))).passed
    for each in DEVICES:
        cluster.load(each)
    for _ in range(5):
        await service.background.tick()
    marks = {name: mark(await cluster.api.get(PODS, ObjectKey("ns", name))) for name in ("sick", "well")}
    assert marks["well"]
    assert not marks["sick"]
    assert told.lines == ["claim ns/sick-c: poison"]


def test_an_estimate_plans_for_the_others() -> None:
    world = world_of((claim_template_of(POISON),), node_template("big", 4))
    wanted = pending(pod_of("sick", "poison"), pod_of("well", "gpu"))
    plan = estimate(world, wanted, [group_of("big")], EXPANDERS["least-waste"], poisoned())
    assert [[each.name for each in added] for added in plan.groups[0].nodes] == [["well"]]
    failed: Mapping[str, str] = {each.name: reason for each, reason in plan.failed}
    assert list(failed) == ["sick"]
    assert FAULT in failed["sick"]


async def test_a_simulation_places_the_others() -> None:
    cluster = EmbeddedCluster(load_objects([*WORLD, *DEVICES], "objects").objects)
    async with cluster.running():
        extender = make_extender(cluster.api, cluster.state, poisoned(), Settings())
        found = {each.pod: each for each in await schedule(extender, cluster)}
    assert found["ns/well"].node == "a"
    assert found["ns/sick"].reason == f"2 {REASON}"


async def test_a_pod_that_cannot_be_told_keeps_no_other_from_being_told() -> None:
    told, heard = Told(), list[str]()

    def record(of: Pod, _note: Note) -> None:
        if of.name == "sick":
            raise ZeroDivisionError("poison")
        heard.append(of.name)

    async def cause(_: Pod) -> Cause:
        return Cause()

    now = NOW
    state = state_of([SICK, WELL])
    unserved = Unserved(state, record, lambda: now, lambda: 0.0, Faults(told), cause, ToldPods())
    for each in (SICK, WELL):
        unserved.rejected(parsed(each), ["no device"])
    now = NOW + PATIENCE
    await unserved.look()
    assert heard == ["well"]
    assert told.lines == ["pod ns/sick: poison"]


# --- faults as such -------------------------------------------------------------------------------------------


def test_a_fault_is_told_once_for_each_object_and_each_kind_of_fault() -> None:
    told = Told()
    faults = Faults(told)
    for subject in ("pod a", "pod b", "pod a"):
        for error in (ValueError("x"), ValueError("y"), TypeError("x")):
            with faults.of(subject):
                fail(error)
    assert told.lines == [f"pod {name}: {text}" for name in "ab" for text in ("x", "y", "x")]


def test_the_words_for_users_name_the_kind_of_fault_and_where_to_look() -> None:
    words: list[str] = []
    with Faults(Told()).of("pod a", words.append):
        fail(ZeroDivisionError())
    assert words == [FAULT]


def fail(error: Exception) -> None:
    raise error


def claim_template_of(expression: str) -> Object:
    devices = {"requests": [request(selectors=[expression])]}
    metadata = {"name": "poison", "namespace": "ns", "uid": "uid-poison", "resourceVersion": "1"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": {"spec": {"devices": devices}},
    }
