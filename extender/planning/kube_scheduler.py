"""What kube-scheduler itself says of a pod and its nodes, apart from devices; and what the daemon controller tolerates.

kube-scheduler's own conditions on nodes are cordons, taints, node selection, and what device plugins have left. The
first plugin that rejects a node gives the reason.

Source: the plugins NodeUnschedulable, TaintToleration, NodeAffinity and NodeResourcesFit of Kubernetes 1.36 (the part
that is about devices); and the daemon controller of kube-controller-manager, Kubernetes 1.36.

A `NodeChoice` is kube-scheduler's own part in the choice of a node, for one pod after the other.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self

from allocator import DeviceTaint, selector_matches
from allocator.checks import taint_text, tolerates
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import CORDON, NodeRequirements, Pod, asked
from extender.cluster.snapshot import Snapshot


class PluginCapacity:
    """Extended resources that pods on nodes hold; ``pods`` are all pods of the cluster."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._held: dict[str, Counter[str]] = {}
        for pod in pods:
            if pod.node_name and not pod.is_finished:
                self.take(pod, pod.node_name)

    def take(self, pod: Pod, node: str) -> None:
        """Count a pod on a node."""
        self._held.setdefault(node, Counter()).update(asked(pod.containers))

    def lacking(self, pod: Pod, node: NodeObject) -> str:
        """The first resource that the node's plugins have too little of for a pod; empty if there is none.

        Resources that no plugin of the node offers are left to device classes.
        """
        held = self._held.get(node.name, Counter())
        for resource, amount in asked(pod.containers).items():
            offered = node.allocatable.get(resource)
            if offered is not None and offered.nano and held[resource] + amount > offered.nano:
                return resource
        return ""


class Unmet(NamedTuple):
    """A requirement that a node does not meet: the reason against the node, and what a person can do about it."""

    reason: str
    remedy: str


def rejection(requirements: NodeRequirements, node: NodeObject) -> str:
    """Why a node does not meet a pod's requirements, however empty the node is; empty if it meets them."""
    return next((each.reason for each in unmet_requirements(requirements, node)), "")


def unmet_requirements(requirements: NodeRequirements, node: NodeObject) -> Iterator[Unmet]:
    """Everything about a node that does not meet a pod's requirements, in kube-scheduler's order."""
    for taint in node.taints:
        if not any(tolerates(each, taint) for each in requirements.tolerations):
            yield _untolerated(taint, node)
    for key, value in requirements.labels:
        if node.node.labels.get(key) != value:
            remedy = f"correct spec.nodeSelector of the pod, or kubectl label node {node.name} {key}={value}"
            yield Unmet(f"node does not match spec.nodeSelector {key}={value}", remedy)
    if requirements.affinity is not None and not selector_matches(requirements.affinity, node.node):
        remedy = f"correct the required node affinity of the pod, or the labels of node {node.name}"
        yield Unmet("node does not match the required node affinity", remedy)


class SchedulerChecks:
    """What kube-scheduler itself says of the nodes of a cluster, pod after pod.

    CPU, memory, volumes and conditions between pods are not modeled.

    Args:
        nodes: by name.
        pods: all pods of the cluster that request extended resources; others do not matter.
    """

    def __init__(self, nodes: Mapping[str, NodeObject], pods: Iterable[Pod]) -> None:
        self._nodes = nodes
        self._plugins = PluginCapacity(pods)
        self._known: dict[NodeRequirements, Mapping[str, str]] = {}

    @classmethod
    def of(cls, snapshot: Snapshot, names: Iterable[str] | None = None) -> Self:
        """The checks of some nodes of a cluster; None: of all nodes."""
        nodes = snapshot.nodes if names is None else {name: snapshot.nodes[name] for name in names}
        return cls(nodes, (pod for pod in snapshot.pods.values() if pod.containers))

    def rejections(self, pod: Pod) -> Mapping[str, str]:
        """The nodes that kube-scheduler rejects for a pod, each with the reason."""
        found = self._of_requirements(pod.requirements)
        if not pod.containers:
            return found
        lacking = {name: self._plugins.lacking(pod, node) for name, node in self._nodes.items() if name not in found}
        return {**found, **{name: f"Insufficient {resource}" for name, resource in lacking.items() if resource}}

    def place(self, pod: Pod, node: str) -> None:
        """Count a pod that has got a node."""
        self._plugins.take(pod, node)

    def _of_requirements(self, requirements: NodeRequirements) -> Mapping[str, str]:
        if requirements not in self._known:
            reasons = ((name, rejection(requirements, node)) for name, node in self._nodes.items())
            self._known[requirements] = {name: reason for name, reason in reasons if reason}
        return self._known[requirements]


def _untolerated(taint: DeviceTaint, node: NodeObject) -> Unmet:
    if taint == CORDON:
        return Unmet("node is unschedulable", f"kubectl uncordon {node.name}")
    value = f'operator: Equal, value: "{taint.value}"' if taint.value else "operator: Exists"
    toleration = f"{{key: {taint.key}, {value}, effect: {taint.effect}}}"
    return Unmet(
        f"untolerated taint {taint_text(taint)} of the node", f"add to spec.tolerations of the pod: {toleration}"
    )


DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The scheduler of pods that name none."""


def no_attempt(pod: Pod, schedulers: Collection[str]) -> str:
    """Why no scheduler of ours tries a pod, whatever its nodes have; empty if one does.

    Args:
        pod: without a node.
        schedulers: names of the schedulers that call the extender; empty: not known, so that any scheduler may be one.
    """
    scheduler = pod.scheduler_name or DEFAULT_SCHEDULER
    if schedulers and scheduler not in schedulers:
        names = " or ".join(sorted(schedulers))
        return f"no scheduler of ours is asked: schedulerName is {scheduler}; write {names}"
    if pod.gates:
        one = len(pod.gates) == 1
        names = ", ".join(pod.gates)
        return (
            f"scheduling {'gate' if one else 'gates'} {names} {'keeps' if one else 'keep'} the pod from its scheduler"
        )
    return ""


_TOLERATED: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
"""Taints of nodes (``node.kubernetes.io/...``)."""

_ON_HOST_NETWORK: Final = ("network-unavailable", "NoSchedule")


def tolerating(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec of a pod, with the tolerations that the daemon controller adds."""
    taints = (*_TOLERATED, _ON_HOST_NETWORK) if spec.get("hostNetwork") else _TOLERATED
    added = [{"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect} for name, effect in taints]
    return {**spec, "tolerations": [*(spec.get("tolerations") or []), *added]}


class NodeChoice(Protocol):
    """kube-scheduler's own judgment of the nodes, for one pod after the other."""

    def rejections(self, pod: Pod, /) -> Mapping[str, str]:
        """The nodes that kube-scheduler rejects, each with the reason."""

    def choose(self, pod: Pod, names: Sequence[str], /) -> str:
        """The node that kube-scheduler takes if several nodes have the highest score."""

    def place(self, pod: Pod, node: str, /) -> None:
        """Count a pod that has got a node."""


class FirstNode(SchedulerChecks):
    """The conditions that the extender knows. If several nodes have the highest score, the first one is taken."""

    def choose(self, _: Pod, names: Sequence[str]) -> str:
        """The first of the nodes. kube-scheduler would take any of them."""
        return names[0]


def likely_nodes(snapshot: Snapshot) -> Callable[[Pod], Sequence[str]]:
    """The nodes on which kube-scheduler might bind a pod, as far as its conditions are known here."""
    checks, names = SchedulerChecks.of(snapshot), sorted(snapshot.nodes)
    known: dict[Hashable, Sequence[str]] = {}

    def likely(pod: Pod) -> Sequence[str]:
        kind = pod.requirements, pod.containers
        if kind not in known:
            rejected = checks.rejections(pod)
            known[kind] = tuple(name for name in names if name not in rejected)
        return known[kind]

    return likely
