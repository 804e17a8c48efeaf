"""Conditions between pods: affinity, anti-affinity and topology spread, as kube-scheduler checks them.

Source: the plugins PodTopologySpread and InterPodAffinity of Kubernetes 1.37, and the strategy for pods of its API
server, which writes the values of ``matchLabelKeys`` and ``mismatchLabelKeys`` into selectors.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.cluster.indexes import PlacedPods
from extender.cluster.objects.label_selectors import LabelSelector
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pod_conditions import AffinityTerm, SpreadConstraint
from extender.cluster.objects.pods import Pod

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
