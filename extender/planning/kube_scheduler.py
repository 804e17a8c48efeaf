"""kube-scheduler's own checks of a pod and its nodes, apart from devices; and what the daemon controller tolerates.

kube-scheduler's own conditions on nodes are cordons, taints, node selection, host ports, resources, the number of pods,
topology spread, and affinity between pods. The first plugin that rejects a node gives the reason. Volumes are not
modeled. Where a snapshot does not have whole pods (`Snapshot.placed`), as in the service of a live cluster, only
cordons, taints, node selection and what device plugins have left are compared.

Source: the plugins NodeName, NodeUnschedulable, TaintToleration, NodeAffinity, PodTopologySpread and InterPodAffinity
of Kubernetes 1.37; the strategy for pods of its API server, which writes the values of ``matchLabelKeys`` and
``mismatchLabelKeys`` into selectors; and the daemon controller of kube-controller-manager, Kubernetes 1.36.
`extender.planning.node_room` has the other plugins.

kube-scheduler tries none of the pods of a PodGroup as long as they contradict the group. Source: validatePodGroup of
kube-scheduler 1.37. A group without a priority is one of 1.36, which compares the names of schedulers alone.

A `NodeChoice` is kube-scheduler's own part in the choice of a node, for one pod after the other.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from allocator import DeviceTaint, selector_matches
from allocator.checks import taint_text, tolerates
from extender.cluster.indexes import PlacedPods
from extender.cluster.objects.extended_resources import MARKER
from extender.cluster.objects.label_selectors import LabelSelector
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pod_conditions import REQUESTS, VOLUMES, AffinityTerm, SpreadConstraint
from extender.cluster.objects.pod_groups import NEVER, PodGroup
from extender.cluster.objects.pods import CORDON, GATE, GangKey, NodeRequirements, Pod
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ObjectKey
from extender.planning.node_room import NodeRooms

NOT_SPREAD: Final = "node(s) didn't match pod topology spread constraints"
NO_DOMAIN: Final = f"{NOT_SPREAD} (missing required label)"
NOT_BESIDE: Final = "node(s) didn't match pod affinity rules"
TOO_CLOSE: Final = "node(s) didn't match pod anti-affinity rules"
GUARDED: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

_NAME: Final = "kubernetes.io/metadata.name"
"""The label that each namespace has."""


class Domain(NamedTuple):
    """Nodes that have a value of a label."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class PodMatcher:
    """Which pods a term or a constraint is about: a term of a pod, with what depends on that pod.

    Attributes:
        is_spread: terminating pods do not count.
    """

    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None = None
    is_spread: bool = False

    def matches(self, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
        """Whether a pod is one of these."""
        if self.selector is None or (self.is_spread and pod.deleting):
            return False
        is_there = pod.namespace in self.namespaces or (
            self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)
        )
        return is_there and self.selector.matches(pod.labels)


def matcher_of(term: AffinityTerm, pod: Pod) -> PodMatcher:
    """The pods that a term of a pod is about."""
    selector, namespaces = term.selector, term.namespaces
    if selector is not None:
        selector = selector.requiring("In", term.match_keys, pod.labels)
        selector = selector.requiring("NotIn", term.mismatch_keys, pod.labels)
    if not namespaces and term.namespace_selector is None:
        namespaces = frozenset({pod.namespace})
    return PodMatcher(selector, namespaces, term.namespace_selector)


def spread_matcher(constraint: SpreadConstraint, pod: Pod) -> PodMatcher:
    """The pods that a constraint of a pod spreads."""
    selector = constraint.selector
    if selector is not None:
        selector = selector.requiring("In", constraint.match_keys, pod.labels)
    return PodMatcher(selector, frozenset({pod.namespace}), is_spread=True)


class NodeInclusion(NamedTuple):
    """Whether a node counts for a pod's topology spread: its taints, and the pod's node selection."""

    tolerates: Callable[[Pod, NodeObject], bool]
    selects: Callable[[Pod, NodeObject], bool]


class Neighbors:
    """The pods of all nodes, and what they mean for a pod that wants a node.

    What was counted for a matcher is remembered, and moved by each pod that is placed.

    Args:
        nodes: all nodes of the cluster, by name.
        placed: all pods that have a node.
        inclusion: which nodes count for topology spread.
    """

    def __init__(self, nodes: Mapping[str, NodeObject], placed: PlacedPods, inclusion: NodeInclusion) -> None:
        self._nodes = nodes
        self._placed = placed
        self._inclusion = inclusion
        self._new: list[tuple[Pod, str]] = []
        self._counts: dict[tuple[PodMatcher, ...], Counter[str]] = {}
        self._guarded: dict[tuple[PodMatcher, str], Counter[str]] = defaultdict(Counter)
        for key in placed.guards:
            guard = placed.pods[key]
            self._guard(guard, guard.node_name)

    def place(self, pod: Pod, node: str) -> None:
        """Count a pod that has got a node."""
        self._new.append((pod, node))
        for matchers, count in self._counts.items():
            count[node] += self._matches_all(matchers, pod)
        self._guard(pod, node)

    def concerns(self, pod: Pod) -> bool:
        """Whether anything between pods may keep this pod off a node."""
        return bool(self._guarded or pod.conditions.affinity or pod.conditions.anti_affinity or pod.conditions.spread)

    def rejections(self, pod: Pod) -> Iterator[tuple[Callable[[NodeObject], bool], str]]:
        """For each rule: which nodes are rejected by it, and the reason; in the order of the checks."""
        if pod.conditions.spread:
            yield from self._spread(pod)
        if pod.conditions.affinity:
            yield self._away_from(pod), NOT_BESIDE
        own = [(matcher_of(term, pod), term.topology_key) for term in pod.conditions.anti_affinity]
        if own:
            domains = {domain for matcher, key in own for domain in self._domains(self._counted((matcher,)), key)}
            yield _in_any(domains), TOO_CLOSE
        if self._guarded:
            labels = self._labels(pod.namespace)
            guards = ((count, key) for (matcher, key), count in self._guarded.items() if matcher.matches(pod, labels))
            yield _in_any({domain for count, key in guards for domain in self._domains(count, key)}), GUARDED

    def _spread(self, pod: Pod) -> Iterator[tuple[Callable[[NodeObject], bool], str]]:
        """A node is rejected by the first constraint that it breaks: so each one passes over the nodes of earlier ones.

        All constraints count only nodes that have the labels of all of them.
        """
        constraints = pod.conditions.spread
        keys = [each.topology_key for each in constraints]
        counting = [node for node in self._nodes.values() if all(key in node.node.labels for key in keys)]
        for each in constraints:
            yield _without(each.topology_key), NO_DOMAIN
            yield self._skewed(pod, each, counting), NOT_SPREAD

    def _skewed(
        self, pod: Pod, constraint: SpreadConstraint, counting: Iterable[NodeObject]
    ) -> Callable[[NodeObject], bool]:
        """Which nodes would have too many pods more than the emptiest domain."""
        matcher, key = spread_matcher(constraint, pod), constraint.topology_key
        has_selection = matcher.selector is not None and bool(matcher.selector.requirements)
        count = self._counted((matcher,)) if has_selection else Counter[str]()
        per_domain: Counter[str] = Counter()
        for node in counting:
            if not constraint.counts_all_nodes and not self._inclusion.selects(pod, node):
                continue
            if not constraint.counts_tainted_nodes and not self._inclusion.tolerates(pod, node):
                continue
            per_domain[node.node.labels[key]] += count[node.name]
        itself = matcher.selector is not None and matcher.selector.matches(pod.labels)
        least = 0 if len(per_domain) < constraint.min_domains else min(per_domain.values(), default=0)
        most = constraint.max_skew + least - itself
        return lambda node: per_domain.get(node.node.labels[key], 0) > most

    def _away_from(self, pod: Pod) -> Callable[[NodeObject], bool]:
        """Which nodes are not beside the pods that all affinity terms of a pod are about.

        A pod that matches its own terms may be the first one.
        """
        terms = pod.conditions.affinity
        matchers, keys = tuple(matcher_of(each, pod) for each in terms), {each.topology_key for each in terms}
        count = self._counted(matchers)
        domains = {domain for key in keys for domain in self._domains(count, key)}
        is_first = not domains and self._matches_all(matchers, pod)

        def is_away(node: NodeObject) -> bool:
            labels = node.node.labels
            if any(key not in labels for key in keys):
                return True
            return not is_first and any(Domain(key, labels[key]) not in domains for key in keys)

        return is_away

    def _guard(self, pod: Pod, node: str) -> None:
        for term in pod.conditions.anti_affinity:
            self._guarded[matcher_of(term, pod), term.topology_key][node] += 1

    def _counted(self, matchers: tuple[PodMatcher, ...]) -> Counter[str]:
        """The number of pods that all of some matchers match, by node."""
        if matchers not in self._counts:
            every = (*((pod, pod.node_name) for pod in self._placed.pods.values()), *self._new)
            self._counts[matchers] = Counter(node for pod, node in every if self._matches_all(matchers, pod))
        return self._counts[matchers]

    def _matches_all(self, matchers: tuple[PodMatcher, ...], pod: Pod) -> bool:
        labels = self._labels(pod.namespace)
        return all(each.matches(pod, labels) for each in matchers)

    def _labels(self, namespace: str) -> Mapping[str, str]:
        return {**self._placed.namespaces.get(namespace, {}), _NAME: namespace}

    def _domains(self, count: Counter[str], key: str) -> Iterator[Domain]:
        """The domains with a pod."""
        for name, pods in count.items():
            node = self._nodes.get(name)
            if pods and node is not None and key in node.node.labels:
                yield Domain(key, node.node.labels[key])


def _in_any(domains: set[Domain]) -> Callable[[NodeObject], bool]:
    keys = {each.key for each in domains}
    return lambda node: any(Domain(key, node.node.labels[key]) in domains for key in keys if key in node.node.labels)


def _without(key: str) -> Callable[[NodeObject], bool]:
    return lambda node: key not in node.node.labels


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


_POLICY: Final[Mapping[bool, str]] = {True: "PreemptLowerPriority", False: NEVER}


def contradiction(key: GangKey, snapshot: Snapshot) -> str:
    """Why kube-scheduler tries no pod of a PodGroup, by those of its pods that wait and need devices; empty: it does.

    Args:
        key: of any gang; of a group of annotations, nothing is demanded.
        snapshot: the cluster.
    """
    group = snapshot.objects(PodGroup).get(ObjectKey(key.namespace, key.name)) if key.is_pod_group else None
    if group is None:
        return ""
    pods = (pod for uid in snapshot.gangs.members.get(key, ()) if (pod := snapshot.pod(uid)) is not None)
    waiting = sorted((pod for pod in pods if pod.is_pending), key=lambda pod: pod.name)
    why = next(_contradictions(group, waiting), "")
    return f"kube-scheduler tries no pod of PodGroup {group.name}: {why}" if why else ""


class Attempts:
    """Which pods of one cluster a scheduler of ours tries. Each PodGroup is compared with its pods once.

    Args:
        snapshot: the cluster.
        schedulers: names of the schedulers that call the extender; empty: not known, so that any scheduler may be one.
    """

    def __init__(self, snapshot: Snapshot, schedulers: Collection[str]) -> None:
        self._snapshot = snapshot
        self._schedulers = schedulers
        self._groups: dict[GangKey, str] = {}

    def hindrance(self, pod: Pod) -> str:
        """Why no scheduler of ours tries a pod without a node, whatever its nodes have; empty if one does."""
        return no_attempt(pod, self._schedulers) or self._of_group(pod.gang_key)

    def _of_group(self, key: GangKey | None) -> str:
        if key is None or not key.is_pod_group:
            return ""
        if key not in self._groups:
            self._groups[key] = contradiction(key, self._snapshot)
        return self._groups[key]


def _contradictions(group: PodGroup, waiting: Sequence[Pod]) -> Iterator[str]:
    for each in waiting:
        first = waiting[0]
        if (each.scheduler_name or DEFAULT_SCHEDULER) != (first.scheduler_name or DEFAULT_SCHEDULER):
            yield f"pods {first.name} and {each.name} have different schedulerNames"
        if group.priority is None:
            continue
        own = each.priority if each.own_priority is None else each.own_priority
        if own != group.priority:
            yield (
                f"pod {each.name} has priority {own}, and the group has {group.priority}: give both the same "
                "priorityClassName"
            )
        if not group.policy and each.may_preempt != first.may_preempt:
            yield f"pods {first.name} and {each.name} have different preemptionPolicies"
        if group.policy and each.may_preempt != (group.policy != NEVER):
            yield f"pod {each.name} has preemptionPolicy {_POLICY[each.may_preempt]}, and the group has {group.policy}"
