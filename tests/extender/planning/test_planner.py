"""The planner puts pods on forks: what they get, whose turn it is, and what a plan leaves out. Nothing is written."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from allocator import DeviceId, Limits
from extender.cluster.objects.nodes import parse_node_object
from extender.cluster.snapshot import Snapshot
from extender.config.settings import Settings
from extender.faces.assembly import make_solver
from extender.faces.simulation.cluster import Cluster as Example
from extender.framework.decisions.solver import No
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import SchedulerChecks, likely_nodes, rejection
from extender.planning.planner import Grant, LateError, Planner, Queued, UndecidedError, as_planned
from extender.planning.queue import shapes_of, waiting_pods
from tests.kit.clusters import (
    GPU,
    Object,
    claim,
    claim_template,
    local_slice,
    node,
    parsed,
    pod,
    request,
    snapshot_of,
    solver,
)
from tests.kit.places import ROOT

NODES = [GPU, node("a"), node("b"), local_slice("a"), local_slice("b", 2)]
NAMES = ["a", "b"]


def waits(name: str, devices: int = 1, **more: object) -> list[Object]:
    """A pod that waits, and its claim."""
    return [claim(name, request(count=devices)), pod(name, name, **more)]  # type: ignore[arg-type]


def runs(name: str, on: str, device: str) -> list[Object]:
    return [claim(name, allocated=[f"{on}/{device}"], at=on, users=[name]), pod(name, name, on=on)]


def cordoned(name: str) -> Object:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    return {**node(name), "spec": {"unschedulable": True, "taints": [taint]}}


def from_template(name: str) -> Object:
    found = pod(name)
    found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return found


def held(snapshot: Snapshot) -> dict[str, list[str]]:
    """The devices of each claim."""
    return {
        str(key): [str(each.device) for each in found.claim.allocation.results]
        for key, found in snapshot.claims.items()
        if found.claim.allocation is not None
    }


def queue_of(snapshot: Snapshot) -> tuple[Snapshot, tuple[Queued, ...]]:
    return waiting_pods(snapshot, solver(), ())


def test_a_pod_gets_its_devices_on_another_fork_and_the_fork_before_stays() -> None:
    fork = snapshot_of(*NODES, *waits("p", 2))
    asked = fork.pods[ObjectKey("ns", "p")]
    planner = Planner.remembering(solver())
    found, after = planner.take(asked, "b", fork), planner.place(asked, "b", fork)
    assert isinstance(found, Grant)
    assert isinstance(after, Snapshot)
    assert {str(pool) for pool in found.pools} == {str(DeviceId("gpu.example.com", "b", "").pool_id)}
    assert held(after) == {"ns/p": ["gpu.example.com/b/gpu-0", "gpu.example.com/b/gpu-1"]}
    assert [each.name for each in after.pods_on("b")] == ["p"]
    assert not held(fork)
    assert not fork.pods_on("b")


REFUSED = {
    "the node has too few": (waits("p", 2), "a", "not enough free devices for request gpu"),
    "another pod has the device": ([*runs("q", "a", "gpu-0"), *waits("p")], "a", "no free device for request gpu"),
    "the claim does not exist": ([pod("p", "gone")], "a", "claim gone does not exist"),
}


@pytest.mark.parametrize(("objects", "on", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_pod_that_gets_nothing_hears_why(objects: list[Object], on: str, reason: str) -> None:
    fork = snapshot_of(*NODES, *objects)
    found = Planner.remembering(solver()).place(fork.pods[ObjectKey("ns", "p")], on, fork)
    assert isinstance(found, No)
    assert reason in found.reason.in_words()


def test_a_pod_gets_no_other_devices_than_those_it_may_have() -> None:
    fork = snapshot_of(*NODES, *waits("p"))
    planner = Planner.remembering(solver()).among([DeviceId("gpu.example.com", "b", "gpu-1")])
    after = planner.place(fork.pods[ObjectKey("ns", "p")], "b", fork)
    assert isinstance(after, Snapshot)
    assert held(after) == {"ns/p": ["gpu.example.com/b/gpu-1"]}


TAKERS = {
    "the first in the order asked": (NODES, ["b", "a"], "b"),
    "not one that kube-scheduler rejects": ([GPU, cordoned("a"), *NODES[2:]], NAMES, "b"),
    "not one without devices": ([*NODES, *runs("q", "a", "gpu-0")], NAMES, "b"),
    "none": ([*NODES, *runs("q", "a", "gpu-0")], ["a"], None),
}


@pytest.mark.parametrize(("objects", "names", "taker"), TAKERS.values(), ids=TAKERS)
def test_the_first_node_that_takes_a_pod(objects: list[Object], names: list[str], taker: str | None) -> None:
    fork = snapshot_of(*objects, *waits("p"))
    found = Planner.remembering(solver()).first_taker(fork.pods[ObjectKey("ns", "p")], names, fork, 1.0)
    assert (found and found.name) == taker


def test_a_search_that_was_stopped_leaves_it_open_whether_a_node_takes_the_pod() -> None:
    fork = snapshot_of(*NODES, *waits("p", 2))
    planner = Planner.remembering(solver(limits=Limits(steps=1)))
    with pytest.raises(UndecidedError):
        planner.first_taker(fork.pods[ObjectKey("ns", "p")], NAMES, fork, 1.0)


class TestAsPlanned:
    """The profile of plans."""

    def test_a_pod_that_runs_leaves_its_node_before_it_is_asked_where_it_can_go(self) -> None:
        fork = snapshot_of(*NODES, *runs("p", "a", "gpu-0"))
        moves = replace(fork.pods[ObjectKey("ns", "p")], node_name="")
        assert Planner.remembering(solver()).takers(moves, NAMES, fork).passed == tuple(NAMES)

    def test_claims_are_made_from_their_templates(self) -> None:
        fork = snapshot_of(*NODES, claim_template(), from_template("p"))
        found, made = as_planned(fork.pods[ObjectKey("ns", "p")], fork)
        assert found.claim_statuses == {"gpu": "p/gpu"}
        assert ObjectKey("ns", "p/gpu") in made.claims
        assert as_planned(found, made) == (found, made)


class TestTurns:
    """One pod after the other gets the best node."""

    def test_those_of_higher_priority_come_first_and_each_finds_what_is_left(self) -> None:
        fork, queue = queue_of(snapshot_of(*NODES, *waits("low"), *waits("high", priority=1), *waits("pair", 2)))
        end = Planner.remembering(solver()).turns(queue, fork, NAMES)
        assert [each.pod.name for each in queue] == ["high", "low", "pair"]
        assert end.nodes == {"uid-high": "a", "uid-low": "b"}
        (refusal,) = end.refusals.values()
        assert refusal.unresolvable.in_words()["b"] == "not enough free devices for request gpu"

    def test_pods_of_one_shape_are_refused_together(self) -> None:
        fork, queue = queue_of(snapshot_of(*NODES, *(each for name in "xyz" for each in waits(name, 3))))
        end = Planner.remembering(solver()).turns(queue, fork, NAMES)
        assert (end.nodes, len(end.refusals), len(queue)) == ({}, 1, 3)
        assert [[each.name for each in shape.pods] for shape in shapes_of(queue)] == [["x", "y", "z"]]

    def test_a_node_that_kube_scheduler_rejects_gets_no_pod(self) -> None:
        fork, queue = queue_of(snapshot_of(GPU, cordoned("a"), *NODES[2:], *waits("p")))
        assert Planner.remembering(solver()).turns(queue, fork, NAMES).nodes == {"uid-p": "b"}
        assert likely_nodes(fork)(queue[0].pod) == ("b",)

    def test_late_turns_tell_how_far_they_came(self) -> None:
        fork, waiting = queue_of(snapshot_of(*NODES, *waits("p"), *waits("q")))
        now = [0.0]

        def queue() -> Iterator[Queued]:
            for each in waiting:
                yield each
                now[0] += 2.0

        late = replace(solver(), clock=lambda: now[0], until=1.0)
        with pytest.raises(LateError) as raised:
            Planner.remembering(late).turns(queue(), fork, NAMES)
        assert raised.value.so_far.nodes == {"uid-p": "a"}
        assert held(raised.value.so_far.snapshot) == {"ns/p": ["gpu.example.com/a/gpu-0"]}

    def test_in_the_settled_cluster_each_pod_that_fits_has_its_node(self) -> None:
        fork, queue = queue_of(snapshot_of(*NODES, *waits("p"), *waits("pair", 2), *waits("trio", 3)))
        end = Planner.remembering(solver()).settled(queue, fork, NAMES)
        assert end.nodes == {"uid-p": "a", "uid-pair": "b"}
        assert len(end.refusals) == 1

    def test_turns_that_judge_only_what_has_changed_end_as_turns_that_judge_everything(self) -> None:
        """Over the example cluster, which has partitions, shared devices, taints, constraints, network devices."""
        cluster = Example.from_manifests(ROOT / "config" / "example", refused=lambda _: None)
        allocator = make_solver(Settings())
        snapshot, queue = waiting_pods(cluster.snapshot, allocator, ())
        planner, names = Planner.remembering(allocator), sorted(snapshot.nodes)
        quick, full = planner.long_turns(queue, snapshot, names), planner.turns(queue, snapshot, names)
        assert len(quick.nodes) > 10
        assert quick.nodes == full.nodes
        assert quick.refusals.keys() == full.refusals.keys()
        assert [each.unresolvable for each in quick.refusals.values()] == [
            each.unresolvable for each in full.refusals.values()
        ]
        assert held(quick.snapshot) == held(full.snapshot)


# What kube-scheduler itself says of a node for a pod, apart from devices.


TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
UNTOLERATED = "untolerated taint team=a:NoSchedule of the node"
CORDONED = {"unschedulable": True}
PLUGIN = "example.com/gpu"


def pod_with(**spec: Any) -> Object:
    asked = pod("p", resources=spec.pop("resources", {}))
    return {**asked, "spec": asked["spec"] | spec}


def with_spec(of: Object, **spec: Any) -> Object:
    return {**of, "spec": spec}


def affinity(*terms: Object) -> Object:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def zone(operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": "zone", "operator": operator, "values": list(values)}]}


def named(name: str) -> Object:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


NODE = node("a", labels={"zone": "1"})
OFF_ZONE = "node does not match spec.nodeSelector zone=2"
OFF_AFFINITY = "node does not match the required node affinity"
CASES: dict[str, tuple[Object, Object, str]] = {
    "nothing": (pod_with(), NODE, ""),
    "a label": (pod_with(nodeSelector={"zone": "1"}), NODE, ""),
    "another value": (pod_with(nodeSelector={"zone": "2"}), NODE, OFF_ZONE),
    "no such label": (pod_with(nodeSelector={"zone": "2"}), node("b"), OFF_ZONE),
    "nulls": (pod_with(nodeSelector=None, affinity=None, tolerations=None), {**NODE, "spec": None}, ""),
    "one term of several": (pod_with(affinity=affinity(zone("In", "2"), zone("Exists"))), NODE, ""),
    "no term": (pod_with(affinity=affinity()), NODE, OFF_AFFINITY),
    "an empty term": (pod_with(affinity=affinity({})), NODE, OFF_AFFINITY),
    "a name": (pod_with(affinity=affinity(named("a"))), NODE, ""),
    "another name": (pod_with(affinity=affinity(named("b"))), NODE, OFF_AFFINITY),
    "a preference": (
        pod_with(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}),
        NODE,
        "",
    ),
    "a taint": (pod_with(), with_spec(NODE, taints=[TAINT]), UNTOLERATED),
    "a tolerated taint": (
        pod_with(tolerations=[{"key": "team", "operator": "Equal", "value": "a"}]),
        with_spec(NODE, taints=[TAINT]),
        "",
    ),
    "a toleration of another value": (
        pod_with(tolerations=[{"key": "team", "value": "b"}]),
        with_spec(NODE, taints=[TAINT]),
        UNTOLERATED,
    ),
    "a taint that only prefers": (pod_with(), with_spec(NODE, taints=[{**TAINT, "effect": "PreferNoSchedule"}]), ""),
    "a cordon": (pod_with(), with_spec(NODE, **CORDONED), "node is unschedulable"),
    "a cordon and its taint": (
        pod_with(),
        with_spec(NODE, **CORDONED, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
        "node is unschedulable",
    ),
    "a tolerated cordon": (
        pod_with(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
        with_spec(NODE, **CORDONED),
        "",
    ),
    "all at once": (
        pod_with(nodeSelector={"zone": "2"}, affinity=affinity()),
        with_spec(NODE, **CORDONED, taints=[TAINT]),
        "node is unschedulable",
    ),
}


@pytest.mark.parametrize(("asked", "on", "reason"), CASES.values(), ids=CASES)
def test_the_first_plugin_that_rejects_gives_the_reason(asked: Object, on: Object, reason: str) -> None:
    assert rejection(parsed(asked).requirements, parse_node_object(on)) == reason


def test_what_plugins_have_left_counts_pods_that_run_and_pods_that_were_placed() -> None:
    objects = [node("a", allocatable={PLUGIN: "2"}), node("b", allocatable={PLUGIN: "1"}), node("c")]
    snapshot = snapshot_of(*objects, pod("runs", on="a", resources={PLUGIN: "1"}))
    checks = SchedulerChecks(snapshot)
    asked = parsed(pod_with(resources={PLUGIN: "1"}))
    assert checks.rejections(asked) == {}
    checks.place(asked, "a")
    assert checks.rejections(asked) == {"a": f"Insufficient {PLUGIN}"}


def test_pods_with_equal_requirements_get_equal_answers_in_one_pass() -> None:
    snapshot = snapshot_of(node("a", labels={"zone": "1"}), node("b"))
    checks = SchedulerChecks(snapshot)
    first, second = (checks.rejections(parsed(pod_with(nodeSelector={"zone": "1"}))) for _ in range(2))
    assert first is second
    assert first == {"b": "node does not match spec.nodeSelector zone=1"}
