"""A question on a snapshot: the fork in which things are as the question says."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from allocator import Claim, ClaimSpec, Features, Node, Problem, hint
from extender.autoscaler.simulated_cluster import with_claims
from extender.autoscaler.templates.blueprints import Blueprint, learned
from extender.autoscaler.templates.catalog import Catalog, Supply
from extender.defragmentation.mobility import TIED, unbound
from extender.explain.absence import unknown_pod
from extender.kube.api import ObjectKey
from extender.kube_scheduler.attempts import DEFAULT_SCHEDULER
from extender.pods.claims import without_pods
from extender.state.objects.claims import ClaimObject
from extender.state.objects.nodes import NodeObject
from extender.state.objects.pods import Pod, PodClaim
from extender.state.pod_fields.node_requirements import CORDON
from extender.state.snapshot import Snapshot
from extender.verbs.preempt.victims import budgets_covering
from extender.whatif.edits import edited
from extender.whatif.question import NewNodes, NewPods, Question, QuestionError, RequestEdit

_MOST_HINTS: Final = 10
"""Similar names are looked for: each look compares with all nodes."""

_HOSTNAME: Final = "kubernetes.io/hostname"
_OF_KUBERNETES: Final = "node.kubernetes.io/"
"""Prefix of the taints by which Kubernetes tells the condition of a node. A new node has none of them."""


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node that does not exist, and where it is known from what it brings."""

    name: str
    origin: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """A pod that leaves a drained node.

    Attributes:
        caution: why that is not as simple as it looks; empty if it is.
    """

    pod: Pod
    caution: str


@dataclass(frozen=True, slots=True)
class Changed:
    """The cluster as a question wants it.

    Attributes:
        edited: pods with edited requests.
        leaving: pods that leave drained nodes, and are pending in the snapshot.
        staying: pods that stay on drained nodes, each with the reason.
    """

    snapshot: Snapshot
    nodes: tuple[NewNode, ...] = ()
    new: tuple[ObjectKey, ...] = ()
    edited: tuple[ObjectKey, ...] = ()
    leaving: tuple[Leaving, ...] = ()
    staying: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Applying:
    """Applies a question.

    Attributes:
        now: the time at which pods are made, as the API writes it.
        schedulers: names of the schedulers that call the extender; empty: not known.
    """

    catalog: Catalog
    features: Features
    now: str
    schedulers: Sequence[str]
    problems: list[Problem] = field(default_factory=list)

    def changed(self, question: Question, snapshot: Snapshot) -> Changed:
        """The cluster as the question wants it.

        Raises:
            QuestionError: something that the question names does not exist, or cannot be changed.
        """
        supply, nodes, new = Supply(self.catalog, snapshot), [], []
        fork, leaving, staying = self._drained(question.drained, snapshot)
        for added in question.nodes:
            fork, made = self._with_nodes(added, fork, supply)
            nodes += made
        for edit in question.edits:
            fork = self._with_edit(edit, fork)
        for pods in question.pods:
            fork, keys = self._with_pods(pods, fork)
            new += keys
        if self.problems:
            raise QuestionError(*self.problems)
        edited_pods = tuple(dict.fromkeys(each.pod for each in question.edits))
        return Changed(fork, tuple(nodes), tuple(new), edited_pods, leaving, staying)

    def _drained(
        self, names: Sequence[str], snapshot: Snapshot
    ) -> tuple[Snapshot, tuple[Leaving, ...], tuple[tuple[str, str], ...]]:
        leaving: list[Leaving] = []
        staying: list[tuple[str, str]] = []
        before = snapshot
        for index, name in enumerate(names):
            node = snapshot.nodes.get(name)
            if node is None:
                known = hint(name, snapshot.nodes) if len(self.problems) < _MOST_HINTS else ""
                self.problems.append(Problem(f"drain[{index}]", f"node {name} does not exist{known}"))
                continue
            taints = (CORDON, *(each for each in node.taints if each != CORDON))
            snapshot = snapshot.with_node(replace(node, taints=taints))
            for pod in before.pods_on(name):
                kind = "" if pod.controller is None else pod.controller.kind
                if kind in TIED:
                    staying.append((str(pod), TIED[kind].format(pod.controller)))
                elif not pod.is_finished:
                    leaving.append(Leaving(pod, _caution(pod, before)))
        snapshot = without_pods(snapshot, [each.pod for each in leaving])
        for each in leaving:
            snapshot = snapshot.with_pod(replace(unbound(each.pod), created=self.now, deleting=False))
        return snapshot, tuple(leaving), tuple(staying)

    def _with_nodes(self, added: NewNodes, fork: Snapshot, supply: Supply) -> tuple[Snapshot, list[NewNode]]:
        start = self._start(added, supply.snapshot)
        if start is None:
            return fork, []
        source = added.template or added.like
        names = (name for number in count(1) if (name := f"new-{source}-{number}") not in fork.nodes)
        made: list[NewNode] = []
        for name, _ in zip(names, range(added.count), strict=False):
            labels = {**start.node.labels, **added.labels, _HOSTNAME: name}
            node = replace(start, node=replace(start.node, name=name, labels=labels), created=self.now)
            blueprints = self._blueprints(added, node.node, start, supply)
            fork = fork.with_node(node)
            for each in (built for blueprint in blueprints for built in blueprint.build(name)):
                fork = fork.with_slice(each)
            made.append(NewNode(name, ", ".join(each.origin for each in blueprints)))
        return fork, made

    def _blueprints(self, added: NewNodes, node: Node, start: NodeObject, supply: Supply) -> Sequence[Blueprint]:
        if added.template:
            return supply.blueprints(node)
        model = learned([start.node], supply.snapshot, self.features)
        return [] if model is None else [model]

    def _start(self, added: NewNodes, snapshot: Snapshot) -> NodeObject | None:
        """The node that new ones are like, without what is only its own; None if there is none, which is noted."""
        if added.like:
            node = snapshot.nodes.get(added.like)
            if node is None:
                known = hint(added.like, snapshot.nodes)
                self.problems.append(Problem(f"{added.at}.like", f"node {added.like} does not exist{known}"))
                return None
            return replace(node, taints=tuple(t for t in node.taints if not t.key.startswith(_OF_KUBERNETES)))
        templates = {each.name: each for each in self.catalog.templates}
        if added.template not in templates:
            known = hint(added.template, templates) or (
                "" if templates else ": there are none (setting autoscaler.nodeTemplates)"
            )
            text = f"node template {added.template} does not exist{known}"
            self.problems.append(Problem(f"{added.at}.template", text))
            return None
        return NodeObject(Node(added.template, templates[added.template].labels))

    def _with_edit(self, edit: RequestEdit, fork: Snapshot) -> Snapshot:
        pod = fork.pods.get(edit.pod)
        if pod is None or not pod.is_pending:
            text = unknown_pod(edit.pod, fork.pods) if pod is None else f"pod {edit.pod} is not pending"
            self.problems.append(Problem(f"{edit.at}.pod", text))
            return fork
        pod, fork = with_claims(pod, fork)
        gang = fork.pods[edit.pod].gang
        fork = fork.with_pod(replace(pod, gang=gang))
        found = edited(edit, pod, fork)
        if isinstance(found, Problem):
            self.problems.append(found)
            return fork
        return fork.with_claim(found)

    def _with_pods(self, pods: NewPods, fork: Snapshot) -> tuple[Snapshot, list[ObjectKey]]:
        names = [pods.name] if pods.count == 1 else [f"{pods.name}-{number + 1}" for number in range(pods.count)]
        keys = [ObjectKey(pods.namespace, name) for name in names]
        there = next((key for key in keys if key in fork.pods or key in fork.claims), None)
        if there is not None:
            self.problems.append(Problem(f"{pods.at}.name", f"pod or claim {there} exists already"))
            return fork, []
        scheduler = self.schedulers[0] if self.schedulers else DEFAULT_SCHEDULER
        for key in keys:
            fork = fork.with_claim(_claim(key, pods.spec)).with_pod(
                Pod(
                    *key,
                    uid=f"what-if/{key}",
                    priority=pods.priority,
                    phase="Pending",
                    scheduler_name=scheduler,
                    claims=(PodClaim(key.name, key.name),),
                    created=self.now,
                )
            )
        return fork, keys


def _claim(key: ObjectKey, spec: ClaimSpec) -> ClaimObject:
    claim = Claim(*key, uid=f"what-if/{key}/claim", spec=spec)
    return ClaimObject(claim, resource_version="", created="", raw=b"{}")


def _caution(pod: Pod, snapshot: Snapshot) -> str:
    """Why `kubectl drain` does not move a pod as simply as this; empty if it does."""
    if pod.controller is None:
        return "no controller makes it again: kubectl drain needs --force, and somebody has to create it again"
    budgets = (key for key in budgets_covering(pod, snapshot) if snapshot.budgets[key].allowed <= 0)
    blocked = next(iter(sorted(budgets)), None)
    return "" if blocked is None else f"PodDisruptionBudget {blocked} allows no eviction: kubectl drain waits"
