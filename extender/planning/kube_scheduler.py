"""kube-scheduler's own checks of a pod and its nodes, apart from devices; and what the daemon controller tolerates.

kube-scheduler's own conditions on nodes are cordons, taints, node selection, host ports, resources, the number of pods,
topology spread, and affinity between pods. The first plugin that rejects a node gives the reason. Volumes are not
modeled. Where a snapshot does not have whole pods (`Snapshot.placed`), as in the service of a live cluster, only
cordons, taints, node selection and what device plugins have left are compared.

Source: the plugins NodeName, NodeUnschedulable, TaintToleration and NodeAffinity of Kubernetes 1.37;
`extender.planning.node_room` and `extender.planning.neighbors` have the other plugins; and the daemon controller of
kube-controller-manager, Kubernetes 1.36.

A `NodeChoice` is kube-scheduler's own part in the choice of a node, for one pod after the other.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from allocator import DeviceTaint, selector_matches
from allocator.checks import taint_text, tolerates
from extender.cluster.objects.extended_resources import MARKER
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pod_conditions import REQUESTS, VOLUMES
from extender.cluster.objects.pods import CORDON, GATE, NodeRequirements, Pod
from extender.cluster.snapshot import Snapshot
from extender.planning.neighbors import (
    GUARDED,
    NO_DOMAIN,
    NOT_BESIDE,
    NOT_SPREAD,
    TOO_CLOSE,
    Neighbors,
    NodeInclusion,
)
from extender.planning.node_room import NodeRooms


class Unmet(NamedTuple):
    """A requirement that a node does not meet: the reason against the node, and what a person can do about it."""

    reason: str
    remedy: str


def rejection(requirements: NodeRequirements, node: NodeObject) -> str:
    """Why a node does not meet a pod's requirements, however empty the node is; empty if it meets them."""
    return next((each.reason for each in unmet_requirements(requirements, node)), "")


def unmet_requirements(requirements: NodeRequirements, node: NodeObject) -> Iterator[Unmet]:
    """Everything about a node that does not meet a pod's requirements, in kube-scheduler's order."""
    for taint in _untolerated(requirements, node):
        yield _unmet_taint(taint, node)
    yield from _unmet_selection(requirements, node)


def _unmet_selection(requirements: NodeRequirements, node: NodeObject) -> Iterator[Unmet]:
    for key, value in requirements.labels:
        if node.node.labels.get(key) != value:
            remedy = f"correct spec.nodeSelector of the pod, or kubectl label node {node.name} {key}={value}"
            yield Unmet(f"node does not match spec.nodeSelector {key}={value}", remedy)
    if requirements.affinity is not None and not selector_matches(requirements.affinity, node.node):
        remedy = f"correct the required node affinity of the pod, or the labels of node {node.name}"
        yield Unmet("node does not match the required node affinity", remedy)


class SchedulerChecks:
    """kube-scheduler's own checks of the nodes of a cluster, pod after pod.

    Args:
        snapshot: the cluster; all of its nodes and pods count.
        names: the nodes that are asked about; None: all.
    """

    def __init__(self, snapshot: Snapshot, names: Iterable[str] | None = None) -> None:
        every = snapshot.nodes
        self._nodes: Mapping[str, NodeObject] = every if names is None else {name: every[name] for name in names}
        placed = snapshot.placed
        pods_at = _pods_with_devices(snapshot) if placed is None else placed.at
        self._rooms = NodeRooms(every, pods_at, self._nodes, is_whole=placed is not None)
        inclusion = NodeInclusion(_tolerates_all, _is_selected)
        self._neighbors = None if placed is None else Neighbors(every, placed, inclusion)
        self._known: dict[NodeRequirements, Mapping[str, str]] = {}

    def rejections(self, pod: Pod) -> Mapping[str, str]:
        """The nodes that kube-scheduler rejects for a pod, each with the reason."""
        found = self._of_requirements(pod.requirements)
        lacking = self._rooms.lacking(self._rooms.demand(pod))
        if lacking:
            found = {**{name: " and ".join(lacks) for name, lacks in lacking.items()}, **found}
        if self._neighbors is None or not self._neighbors.concerns(pod):
            return found
        found = dict(found)
        for rejects, reason in self._neighbors.rejections(pod):
            left = ((name, node) for name, node in self._nodes.items() if name not in found)
            found.update({name: reason for name, node in left if rejects(node)})
        return found

    def kind_of(self, pod: Pod) -> Hashable:
        """Pods of equal kinds are rejected on the same nodes, as long as no pod is placed."""
        about = (pod.requirements, self._rooms.demand(pod))
        if self._neighbors is None or not self._neighbors.concerns(pod):
            return about
        return (*about, pod.conditions, pod.namespace, tuple(sorted(pod.labels.items())))

    def unmet(self, pod: Pod, node: NodeObject) -> Iterator[Unmet]:
        """What keeps a pod off a node. Without whole pods, what device plugins lack is left out."""
        yield from unmet_requirements(pod.requirements, node)
        if self._neighbors is None:
            return
        room, demand = self._rooms.at(node.name), self._rooms.demand(pod)
        yield from map(Unmet, room.lacks(demand), room.remedies(demand, node.name))
        for rejects, reason in self._neighbors.rejections(pod):
            if rejects(node):
                yield Unmet(reason, _BETWEEN_PODS[reason].format(node.name))
                return

    def place(self, pod: Pod, node: str) -> None:
        """Count a pod that has got a node."""
        self._rooms.place(pod, node)
        if self._neighbors is not None:
            self._neighbors.place(pod, node)

    def _of_requirements(self, requirements: NodeRequirements) -> Mapping[str, str]:
        if requirements not in self._known:
            reasons = ((name, rejection(requirements, node)) for name, node in self._nodes.items())
            self._known[requirements] = {name: reason for name, reason in reasons if reason}
        return self._known[requirements]


def _pods_with_devices(snapshot: Snapshot) -> Callable[[str], Iterable[Pod]]:
    return lambda node: (pod for pod in snapshot.pods_on(node) if not pod.is_finished)


_BETWEEN_PODS: Final = {
    NO_DOMAIN: "correct spec.topologySpreadConstraints of the pod, or the labels of node {}",
    NOT_SPREAD: "correct spec.topologySpreadConstraints of the pod: node {} would have too many of these pods",
    NOT_BESIDE: "correct the required pod affinity of the pod: what it names does not run beside node {}",
    TOO_CLOSE: "correct the required pod anti-affinity of the pod: what it names runs beside node {}",
    GUARDED: "correct the labels of the pod, or the required pod anti-affinity of pods beside node {}",
}
"""What a person can do about a reason between pods."""


def _untolerated(requirements: NodeRequirements, node: NodeObject) -> Iterator[DeviceTaint]:
    return (taint for taint in node.taints if not any(tolerates(each, taint) for each in requirements.tolerations))


def _tolerates_all(pod: Pod, node: NodeObject) -> bool:
    return next(_untolerated(pod.requirements, node), None) is None


def _is_selected(pod: Pod, node: NodeObject) -> bool:
    return next(_unmet_selection(pod.requirements, node), None) is None


def _unmet_taint(taint: DeviceTaint, node: NodeObject) -> Unmet:
    if taint == CORDON:
        return Unmet("node is unschedulable", f"kubectl uncordon {node.name}")
    text = f"untolerated taint {taint_text(taint)} of the node"
    prefix, _, condition = taint.key.partition("/")
    if prefix == _OF_NODES and condition in _CONDITIONS:
        return Unmet(text, f"mend node {node.name}, which is marked {condition} (kubectl describe node {node.name})")
    value = f'operator: Equal, value: "{taint.value}"' if taint.value else "operator: Exists"
    toleration = f"{{key: {taint.key}, {value}, effect: {taint.effect}}}"
    return Unmet(text, f"add to spec.tolerations of the pod: {toleration}")


_MAX_NAMED: Final = 3


def not_modeled(pods: Iterable[Pod], snapshot: Snapshot) -> tuple[str, ...]:
    """What kube-scheduler checks of some pods and is not known of a cluster, in words; volumes with their pods."""
    found = _unmodeled(pods)
    users = found.pop(VOLUMES, ())
    words = [] if snapshot.placed is not None else list(found)
    if users:
        words.append(_with_users(VOLUMES, users))
    return tuple(sorted(words))


def not_modeled_on_new_nodes(pods: Iterable[Pod], snapshot: Snapshot) -> tuple[str, ...]:
    """Like `not_modeled`, where what a new node has for pods is known; each condition with its pods."""
    found = _unmodeled(pods)
    left = sorted(found.keys() - {REQUESTS}) if snapshot.placed is None else sorted(found.keys() & {VOLUMES})
    return tuple(_with_users(what, found[what]) for what in left)


def _unmodeled(pods: Iterable[Pod]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pod in pods:
        for what in pod.unmodeled:
            found.setdefault(what, set()).add(str(pod))
    return found


def _with_users(what: str, pods: Iterable[str]) -> str:
    names = sorted(pods)
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{what} ({', '.join(names[:_MAX_NAMED])}{more})"


DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The scheduler of pods that name none."""


def no_attempt(pod: Pod, schedulers: Collection[str]) -> str:
    """Why no scheduler of ours tries a pod, whatever its nodes have; empty if one does once the pod has its turn.

    Args:
        pod: without a node.
        schedulers: names of the schedulers that call the extender; empty: not known, so that any scheduler may be one.
    """
    scheduler = pod.scheduler_name or DEFAULT_SCHEDULER
    if schedulers and scheduler not in schedulers:
        names = " or ".join(sorted(schedulers))
        return f"no scheduler of ours is asked: schedulerName is {scheduler}; write {names}"
    if gates := pod.foreign_gates:
        one = len(gates) == 1
        names = ", ".join(gates)
        return (
            f"scheduling {'gate' if one else 'gates'} {names} {'keeps' if one else 'keep'} the pod from its scheduler"
        )
    return ""


def at_gate(pod: Pod) -> str:
    """What keeps a pod from its scheduler until it has its turn; empty: nothing does."""
    return f"scheduling gate {GATE} keeps the pod from its scheduler until it has its turn" if pod.awaits_turn else ""


def not_marked(pod: Pod) -> str:
    """Why a scheduler with `managedResources` does not ask about a pod with devices; empty if it asks."""
    if pod.marker is not None or not pod.needs_devices:
        return ""
    return f"the pod lacks the resource {MARKER}, so its scheduler chooses a node without asking dra-extender"


_OF_NODES: Final = "node.kubernetes.io"
_CONDITIONS: Final = frozenset(
    {"not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "network-unavailable"}
)
"""Taints by which Kubernetes says what is wrong with a node (``node.kubernetes.io/...``)."""

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
    added = [{"key": f"{_OF_NODES}/{name}", "operator": "Exists", "effect": effect} for name, effect in taints]
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
    checks, names = SchedulerChecks(snapshot), sorted(snapshot.nodes)
    known: dict[Hashable, Sequence[str]] = {}

    def likely(pod: Pod) -> Sequence[str]:
        kind = checks.kind_of(pod)
        if kind not in known:
            rejected = checks.rejections(pod)
            known[kind] = tuple(name for name in names if name not in rejected)
        return known[kind]

    return likely
