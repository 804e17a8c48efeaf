"""Pending pods in the order of their turns, and by shape: what helps one pod of a shape helps each.

Pods of one likeness (`likeness_of`) get the same answer about devices from every node. Pods of one shape also get the
same answers from kube-scheduler's own checks.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from allocator.policies import FIRST_FIT
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import open_cycle
from extender.framework.decisions.evaluate import signature_of
from extender.framework.decisions.solver import Solver
from extender.framework.pods.claims import Blocked, claims_of
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import Attempts, SchedulerChecks
from extender.planning.planner import Queued, as_planned


@dataclass(frozen=True, slots=True)
class PendingShape:
    """Pending pods of one shape: they ask for the same, and get the same answer from every node.

    Attributes:
        key: equal for pods of one shape.
        pods: in the order of the queue.
    """

    key: Hashable
    pods: tuple[Pod, ...]

    @property
    def pod(self) -> Pod:
        """The first pod, which stands for all."""
        return self.pods[0]


def waiting_pods(
    snapshot: Snapshot, solver: Solver, schedulers: Collection[str], wanted: Callable[[Pod], bool] = lambda _: True
) -> tuple[Snapshot, tuple[Queued, ...]]:
    """The pending pods with devices, in kube-scheduler's order: by priority, then by age.

    Pods that no scheduler of ours tries are left out.

    Args:
        snapshot: the cluster.
        solver: tells which pods have one shape.
        schedulers: names of the schedulers that call the extender; empty: not known.
        wanted: whether a pod counts.

    Returns:
        The cluster in which the claims of the pods are made from their templates, and the pods.

    Raises:
        TimeoutError: the solver's time is up.
    """
    pods = _looking(snapshot.pods.values(), solver)
    pending = sorted((pod for pod in pods if pod.is_pending and pod.needs_devices and wanted(pod)), key=_turn)
    users = Counter(key for pod in _looking(snapshot.pods.values(), solver) for key in claim_keys(pod))
    queue: list[Queued] = []
    attempts = Attempts(snapshot, schedulers)
    kinds = _Kinds(SchedulerChecks(snapshot), any(pod.conditions.anti_affinity for pod in pending))
    for each in _looking(pending, solver):
        if attempts.hindrance(each):
            continue
        pod, snapshot = as_planned(each, snapshot)
        queue.append(Queued(pod, _key(pod, snapshot, users, solver, kinds)))
    return snapshot, tuple(queue)


def _looking(pods: Iterable[Pod], solver: Solver) -> Iterator[Pod]:
    """Pods, with a look at the clock before each: other work goes on meanwhile."""
    for pod in pods:
        solver.look()
        yield pod


def shapes_of(queue: Iterable[Queued]) -> tuple[PendingShape, ...]:
    """The shapes of some pods, in the order of their first pods."""
    found: dict[Hashable, list[Pod]] = {}
    for pod, key in queue:
        found.setdefault(key, []).append(pod)
    return tuple(PendingShape(key, tuple(pods)) for key, pods in found.items())


def _turn(pod: Pod) -> tuple[int, str, ObjectKey]:
    return -pod.priority, pod.created, pod.key


class _Kinds(NamedTuple):
    """The kinds of pods that are different for kube-scheduler.

    Attributes:
        has_guards: pods that are placed before may keep others away.
    """

    checks: SchedulerChecks
    has_guards: bool

    def of(self, pod: Pod) -> Hashable:
        """Equal for pods that kube-scheduler treats alike, whatever pods are placed before."""
        if pod.conditions.affinity or pod.conditions.spread:
            return pod.uid
        labels = (pod.namespace, tuple(sorted(pod.labels.items()))) if self.has_guards else ()
        return self.checks.kind_of(pod), labels


def _key(pod: Pod, snapshot: Snapshot, users: Counter[ObjectKey], solver: Solver, kinds: _Kinds) -> Hashable:
    cycle = open_cycle(pod, snapshot, solver)
    if isinstance(cycle, Blocked):
        return pod.priority, cycle.reason
    claims = cycle.claims
    if claims.allocated or pod.nominated_node or any(users[each.key] > 1 for each in claims.pending):
        return pod.uid
    return (
        signature_of([each.claim for each in claims.pending], snapshot.classes, cycle.solver.policy),
        pod.containers,
        kinds.of(pod),
        pod.priority,
        snapshot.never_preempts(pod),
        pod.namespace if solver.plugins.count_holders(pod, snapshot) else "",
    )


def likeness_of(pod: Pod, snapshot: Snapshot) -> Hashable:
    """Equal for pods that get the same answer from every node."""
    claims = claims_of(pod, snapshot)
    if isinstance(claims, Blocked) or claims.allocated or claims.negotiated:
        return pod.uid
    special = claims.special
    if special.made or special.void or special.assumed or pod.extended_claim or pod.nominated_node:
        return pod.uid
    namespace = pod.namespace if snapshot.quotas_in.get(pod.namespace) else ""
    signature = signature_of([each.claim for each in claims.pending], snapshot.classes, FIRST_FIT)  # all policies agree
    resources = likeness_of_resources(pod) if snapshot.node_requests is not None and snapshot.inventory.taking else ()
    return pod.priority, pod.requirements, pod.policy, namespace, signature, pod.containers, resources


def likeness_of_resources(pod: Pod) -> Hashable:
    """Equal for pods that take the same of a node, with devices that take some of the node as well."""
    own, places = pod.resources, {each.name: place for place, each in enumerate(pod.claims)}
    amounts = [tuple(sorted(each.items())) for each in (own.containers, own.overhead)]
    users = tuple(tuple(places.get(name) for name in names) for _, names in own.users)
    return *amounts, users, repr(own.envelope)
