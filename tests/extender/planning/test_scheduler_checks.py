"""What kube-scheduler itself says of a node for a pod, apart from devices."""

from typing import Any

import pytest

from extender.cluster.objects.nodes import parse_node_object
from extender.planning.kube_scheduler import SchedulerChecks, rejection
from tests.kit.clusters import Object, node, parsed, pod, snapshot_of

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
UNTOLERATED = "untolerated taint team=a:NoSchedule of the node"
CORDONED = {"unschedulable": True}
PLUGIN = "example.com/gpu"


def asking(**spec: Any) -> Object:
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
    "nothing": (asking(), NODE, ""),
    "a label": (asking(nodeSelector={"zone": "1"}), NODE, ""),
    "another value": (asking(nodeSelector={"zone": "2"}), NODE, OFF_ZONE),
    "no such label": (asking(nodeSelector={"zone": "2"}), node("b"), OFF_ZONE),
    "nulls": (asking(nodeSelector=None, affinity=None, tolerations=None), {**NODE, "spec": None}, ""),
    "one term of several": (asking(affinity=affinity(zone("In", "2"), zone("Exists"))), NODE, ""),
    "no term": (asking(affinity=affinity()), NODE, OFF_AFFINITY),
    "an empty term": (asking(affinity=affinity({})), NODE, OFF_AFFINITY),
    "a name": (asking(affinity=affinity(named("a"))), NODE, ""),
    "another name": (asking(affinity=affinity(named("b"))), NODE, OFF_AFFINITY),
    "a preference": (
        asking(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}),
        NODE,
        "",
    ),
    "a taint": (asking(), with_spec(NODE, taints=[TAINT]), UNTOLERATED),
    "a tolerated taint": (
        asking(tolerations=[{"key": "team", "operator": "Equal", "value": "a"}]),
        with_spec(NODE, taints=[TAINT]),
        "",
    ),
    "a toleration of another value": (
        asking(tolerations=[{"key": "team", "value": "b"}]),
        with_spec(NODE, taints=[TAINT]),
        UNTOLERATED,
    ),
    "a taint that only prefers": (asking(), with_spec(NODE, taints=[{**TAINT, "effect": "PreferNoSchedule"}]), ""),
    "a cordon": (asking(), with_spec(NODE, **CORDONED), "node is unschedulable"),
    "a cordon and its taint": (
        asking(),
        with_spec(NODE, **CORDONED, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
        "node is unschedulable",
    ),
    "a tolerated cordon": (
        asking(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
        with_spec(NODE, **CORDONED),
        "",
    ),
    "all at once": (
        asking(nodeSelector={"zone": "2"}, affinity=affinity()),
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
    checks = SchedulerChecks(snapshot.nodes, snapshot.pods.values())
    asked = parsed(asking(resources={PLUGIN: "1"}))
    assert checks.rejections(asked) == {}
    checks.place(asked, "a")
    assert checks.rejections(asked) == {"a": f"Insufficient {PLUGIN}"}


def test_pods_with_equal_requirements_get_equal_answers_in_one_pass() -> None:
    snapshot = snapshot_of(node("a", labels={"zone": "1"}), node("b"))
    checks = SchedulerChecks(snapshot.nodes, ())
    first, second = (checks.rejections(parsed(asking(nodeSelector={"zone": "1"}))) for _ in range(2))
    assert first is second
    assert first == {"b": "node does not match spec.nodeSelector zone=1"}
