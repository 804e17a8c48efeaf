"""kube-scheduler's own checks in a cluster of whole pods: each filter with its reason, and what is remembered."""

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from extender.cluster.objects.pods import Pod, parse_whole_pod
from extender.faces.simulation.cluster import Cluster
from extender.planning.kube_scheduler import FirstNode, SchedulerChecks, likely_nodes
from tests.kit.filter_worlds import filter_world
from tests.kit.objects.parts import Object

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_EXAMPLES = int(os.environ.get("FILTER_EXAMPLES", "60"))


def pod_of(name: str = "p", on: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """A pod of one container; ``resources`` and ``ports`` are the container's."""
    own: Object = {part: spec.pop(part) for part in ("resources", "ports") if part in spec}
    whole = {"containers": [{"name": "c", "image": "i", **own}], **spec, **({"nodeName": on} if on else {})}
    metadata = {"name": name, "namespace": "ns", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole}


def requests(**amounts: str) -> Object:
    return {"requests": {name.replace("_", "-"): amount for name, amount in amounts.items()}}


def machine(name: str, zone: str = "", **allocatable: str) -> Object:
    labels = {"kubernetes.io/hostname": name} | ({"zone": zone} if zone else {})
    offered = {part.replace("_", "-"): amount for part, amount in allocatable.items()}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata} | (
        {"status": {"allocatable": offered}} if offered else {}
    )


def beside(kind: str, app: str, key: str = "zone", **term: Any) -> Object:
    return {kind: {_REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **term}]}}


def spread(**constraint: Any) -> list[Object]:
    whole = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return [{**whole, "labelSelector": {"matchLabels": {"app": "web"}}, **constraint}]


WEB = {"app": "web"}
EIGHT = machine("a", cpu="8", memory="16Gi", pods="110", ephemeral_storage="10Gi")
RED = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": {"team": "red"}}}
EAST, WEST, NOWHERE = machine("a", "east"), machine("b", "west"), machine("c")
NO_SPREAD = "node(s) didn't match pod topology spread constraints"

CASES: dict[str, tuple[Sequence[Object], Object, dict[str, str]]] = {
    "more cpu than a node has": ([EIGHT], pod_of(resources=requests(cpu="100")), {"a": "Insufficient cpu"}),
    "all that is left": (
        [EIGHT, pod_of("x", "a", resources=requests(cpu="3"))],
        pod_of(resources=requests(cpu="5")),
        {},
    ),
    "more than is left": (
        [EIGHT, pod_of("x", "a", resources=requests(cpu="3", memory="12Gi"))],
        pod_of(resources=requests(cpu="6", memory="5Gi")),
        {"a": "Insufficient cpu and Insufficient memory"},
    ),
    "overhead counts": (
        [EIGHT],
        pod_of(resources=requests(cpu="8"), overhead={"cpu": "1m"}),
        {"a": "Insufficient cpu"},
    ),
    "requests of the whole pod": (
        [EIGHT],
        pod_of(resources=requests(cpu="1"))
        | {
            "spec": {
                "containers": [{"name": "c", "image": "i", "resources": requests(cpu="1")}],
                "resources": requests(cpu="9"),
            }
        },
        {"a": "Insufficient cpu"},
    ),
    "ephemeral storage": (
        [EIGHT],
        pod_of(resources=requests(ephemeral_storage="11Gi")),
        {"a": "Insufficient ephemeral-storage"},
    ),
    "huge pages of a node without any": (
        [EIGHT],
        pod_of(resources={"limits": {"hugepages-2Mi": "2Mi", "cpu": "1"}}),
        {"a": "Insufficient hugepages-2Mi"},
    ),
    "a node that says nothing": ([machine("a")], pod_of(resources=requests(cpu="100")), {}),
    "what a kubelet always says, left out": ([machine("a", cpu="8")], pod_of(resources=requests(memory="1Ti")), {}),
    "the number of pods": ([machine("a", pods="1"), pod_of("x", "a")], pod_of(), {"a": "Too many pods"}),
    "finished pods are gone": (
        [machine("a", pods="1"), {**pod_of("x", "a"), "status": {"phase": "Succeeded"}}],
        pod_of(),
        {},
    ),
    "a port that is taken": (
        [machine("a"), pod_of("x", "a", ports=[{"containerPort": 80, "hostPort": 80}])],
        pod_of(ports=[{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}]),
        {"a": "node(s) didn't have free ports for the requested pod ports"},
    ),
    "a port of another address": (
        [machine("a"), pod_of("x", "a", ports=[{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.2"}])],
        pod_of(ports=[{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}]),
        {},
    ),
    "a port of another protocol": (
        [machine("a"), pod_of("x", "a", ports=[{"containerPort": 53, "hostPort": 53, "protocol": "UDP"}])],
        pod_of(ports=[{"containerPort": 53, "hostPort": 53}]),
        {},
    ),
    "beside a pod of the zone": (
        [EAST, WEST, NOWHERE, pod_of("x", "a", WEB)],
        pod_of(affinity=beside("podAffinity", "web")),
        dict.fromkeys("bc", "node(s) didn't match pod affinity rules"),
    ),
    "the first pod that wants to be beside its like": (
        [EAST, NOWHERE],
        pod_of(labels=WEB, affinity=beside("podAffinity", "web")),
        {"c": "node(s) didn't match pod affinity rules"},
    ),
    "away from a pod of the zone": (
        [EAST, WEST, NOWHERE, pod_of("x", "a", WEB)],
        pod_of(affinity=beside("podAntiAffinity", "web")),
        {"a": "node(s) didn't match pod anti-affinity rules"},
    ),
    "a pod that keeps others away": (
        [EAST, WEST, pod_of("x", "a", affinity=beside("podAntiAffinity", "web"))],
        pod_of(labels=WEB),
        {"a": "node(s) didn't satisfy existing pods anti-affinity rules"},
    ),
    "pods of another namespace": (
        [EAST, pod_of("x", "a", WEB)],
        pod_of(affinity=beside("podAntiAffinity", "web", namespaces=["other"])),
        {},
    ),
    "namespaces by their labels": (
        [RED, EAST, pod_of("x", "a", WEB)],
        pod_of(affinity=beside("podAntiAffinity", "web", namespaceSelector={"matchLabels": {"team": "red"}})),
        {"a": "node(s) didn't match pod anti-affinity rules"},
    ),
    "pods of another version": (
        [EAST, pod_of("x", "a", {**WEB, "version": "1"})],
        pod_of(labels={"version": "2"}, affinity=beside("podAntiAffinity", "web", matchLabelKeys=["version"])),
        {},
    ),
    "only pods of another version": (
        [EAST, pod_of("x", "a", {**WEB, "version": "1"})],
        pod_of(labels={"version": "1"}, affinity=beside("podAntiAffinity", "web", mismatchLabelKeys=["version"])),
        {},
    ),
    "spread over zones": (
        [EAST, WEST, NOWHERE, pod_of("x", "a", WEB)],
        pod_of(labels=WEB, topologySpreadConstraints=spread()),
        {"a": NO_SPREAD, "c": f"{NO_SPREAD} (missing required label)"},
    ),
    "fewer zones than are wanted": (
        [EAST, pod_of("x", "a", WEB)],
        pod_of(labels=WEB, topologySpreadConstraints=spread(minDomains=2)),
        {"a": NO_SPREAD},
    ),
    "a zone that the pod does not select": (
        [EAST, WEST, pod_of("x", "a", WEB)],
        pod_of(labels=WEB, topologySpreadConstraints=spread(), nodeSelector={"zone": "east"}),
        {"b": "node does not match spec.nodeSelector zone=east"},
    ),
    "a zone that the pod does not select, and that counts": (
        [EAST, WEST, pod_of("x", "a", WEB)],
        pod_of(
            labels=WEB,
            topologySpreadConstraints=spread(nodeAffinityPolicy="Ignore"),
            nodeSelector={"zone": "east"},
        ),
        {"a": NO_SPREAD, "b": "node does not match spec.nodeSelector zone=east"},
    ),
    "a constraint that only ranks": (
        [EAST, WEST, pod_of("x", "a", WEB)],
        pod_of(labels=WEB, topologySpreadConstraints=spread(whenUnsatisfiable="ScheduleAnyway")),
        {},
    ),
}


def checked(objects: Sequence[Object], asked: Object) -> dict[str, str]:
    cluster = Cluster.from_objects([*objects, asked])
    return dict(SchedulerChecks(cluster.snapshot).rejections(parse_whole_pod(asked)))


@pytest.mark.parametrize(("objects", "asked", "rejected"), CASES.values(), ids=CASES)
def test_each_filter_gives_its_reason(objects: Sequence[Object], asked: Object, rejected: dict[str, str]) -> None:
    assert checked(objects, asked) == rejected


def test_pods_that_were_placed_count_as_pods_that_run() -> None:
    """Over random clusters: what is remembered and moved is what is found anew."""
    for seed in range(_EXAMPLES):
        cluster = Cluster.from_objects(filter_world(seed).objects)
        snapshot = cluster.snapshot
        checks = FirstNode(snapshot)
        pods = [each for each in cluster.pods if not each.node_name]
        for before, after in pairwise([*pods, pods[0]]):
            free = [name for name in snapshot.nodes if name not in checks.rejections(before)]
            assert set(snapshot.nodes) - set(free) == set(SchedulerChecks(snapshot).rejections(before)), seed
            if free:
                placed = _bound(before, sorted(free)[seed % len(free)])
                snapshot = snapshot.with_other(placed)
                checks.place(before, placed.node_name)
            assert checks.rejections(after) == SchedulerChecks(snapshot).rejections(after), seed


def test_what_is_remembered_of_some_nodes_is_what_is_found_of_all() -> None:
    for seed in range(_EXAMPLES):
        cluster = Cluster.from_objects(filter_world(seed).objects)
        every, names = SchedulerChecks(cluster.snapshot), sorted(cluster.snapshot.nodes)[::2]
        some = SchedulerChecks(cluster.snapshot, names)
        for each in cluster.pods:
            found = {name: reason for name, reason in every.rejections(each).items() if name in names}
            assert dict(some.rejections(each)) == found, seed


def test_pods_of_one_kind_are_rejected_on_the_same_nodes() -> None:
    """Also pods that keep others away: `likely_nodes` remembers by kind."""
    for seed in range(_EXAMPLES):
        cluster = Cluster.from_objects(filter_world(seed).objects)
        checks, likely = SchedulerChecks(cluster.snapshot), likely_nodes(cluster.snapshot)
        for each in cluster.pods:
            rejected = checks.rejections(each)
            assert set(likely(each)) == {name for name in cluster.snapshot.nodes if name not in rejected}, seed


def test_what_keeps_a_pod_off_a_node_begins_with_the_reason() -> None:
    for seed in range(_EXAMPLES):
        cluster = Cluster.from_objects(filter_world(seed).objects)
        checks = SchedulerChecks(cluster.snapshot)
        for each in cluster.pods:
            rejected = checks.rejections(each)
            for name, node_object in cluster.snapshot.nodes.items():
                unmet = list(checks.unmet(each, node_object))
                assert rejected.get(name, "").startswith(unmet[0].reason if unmet else ""), seed
                assert bool(unmet) == (name in rejected), seed
                assert all(one.remedy for one in unmet)


def _bound(pod: Pod, node: str) -> Pod:
    return replace(pod, node_name=node)


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("node.kubernetes.io/not-ready", "mend node a, which is marked not-ready (kubectl describe node a)"),
        ("node.kubernetes.io/disk-pressure", "mend node a, which is marked disk-pressure (kubectl describe node a)"),
        ("node.kubernetes.io/out-of-service", "add to spec.tolerations of the pod: {key: node.kubernetes.io/out-of-"),
        ("example.com/gpus", "add to spec.tolerations of the pod: {key: example.com/gpus, operator: Exists, effect: "),
    ],
)
def test_nobody_is_told_to_tolerate_what_is_wrong_with_a_node(key: str, remedy: str) -> None:
    tainted = {**machine("a"), "spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}
    snapshot = Cluster.from_objects([tainted, pod_of()]).snapshot
    (unmet,) = SchedulerChecks(snapshot).unmet(parse_whole_pod(pod_of()), snapshot.nodes["a"])
    assert unmet.remedy.startswith(remedy)
