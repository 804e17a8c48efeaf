"""Explains preemption: which pods would be evicted for a pod that fits nowhere, and what protects the others."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from allocator import AllocatorError
from extender.answers.explain.explanation import Eviction, PreemptionReport, Spared
from extender.cluster.consumers import claim_keys, holders_near, without_pods
from extender.cluster.objects.budgets import Budget
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import THE_POD, Snapshot
from extender.framework.cycle import feasible_on
from extender.framework.decisions.solver import No, Solver
from extender.kube.api import ObjectKey
from extender.plugins.preemption.choice import choose
from extender.plugins.preemption.evictions import is_evictable_unbound

_Protection = tuple[str, str]
"""Why a pod or a claim keeps its devices, and its name."""

_SUFFICE: Final = "others suffice"

_MOST_NODES: Final = 16
"""At most this number of nodes is looked at for a rule that forbids the devices of other pods, such as a quota."""


def preemption_of(pod: Pod, nodes: Sequence[NodeObject], snapshot: Snapshot, solver: Solver) -> PreemptionReport | None:
    """The report of what device preemption would do for a pod that fits nowhere.

    None if preemption does not concern the pod: no other pod holds devices that the nodes reach, or the pod's priority
    is 0 or less and no holder has a lower one.

    Args:
        pod: a pod without a nomination.
        nodes: the nodes that kube-scheduler does not reject.
        snapshot: the cluster.
        solver: the allocator. When its time is up, the best preemption that was found so far is told.
    """
    holders = {each.uid: each for node in nodes for each in holders_near(node, snapshot, solver.features)}
    others = [each for each in holders.values() if each.uid != pod.uid]
    if not others or (pod.priority <= 0 and all(each.priority >= pod.priority for each in others)):
        return None
    found = choose(pod, [node.name for node in nodes], snapshot, solver)
    victims = found.victims if found else ()
    chosen = {victim.uid for victim in victims}
    entitled = solver.plugins.victim_order(victims, snapshot, solver).entitled(victims)
    needless = _SUFFICE if found else _refused(pod, nodes, snapshot, solver) or "its devices are not enough"
    spared = [_spared(each, pod, needless, snapshot) for each in others if each.uid not in chosen]
    return PreemptionReport(
        node=found.node.name if found else "",
        victims=tuple(Eviction(str(each), each.priority, each.node_name, each not in entitled) for each in victims),
        violations=found.violations if found else 0,
        spared=tuple(_grouped([*spared, *_consumers(nodes, snapshot, solver)])),
    )


def _refused(pod: Pod, nodes: Sequence[NodeObject], snapshot: Snapshot, solver: Solver) -> str:
    """Why a plugin would refuse a pod even if all pods of lower priority went; empty if room is all that it lacks."""
    if not solver.plugins.count_holders(pod, snapshot):
        return ""
    with suppress(AllocatorError, TimeoutError):
        for node in nodes[:_MOST_NODES]:
            near = holders_near(node, snapshot, solver.features)
            gone = [each for each in near if is_evictable_unbound(each, pod, snapshot)]
            found = feasible_on(pod, node, without_pods(snapshot, gone), solver)
            if isinstance(found, No) and found.by in solver.plugins.counting:
                return f"the pod may not have its devices: {found.reason.in_words()}"
    return ""


def _spared(other: Pod, pod: Pod, needless: str, snapshot: Snapshot) -> _Protection:
    """A pod that holds devices, with the reason why it is not evicted. ``needless``: why its eviction is of no use."""
    named = f"pod {other}"
    if other.deleting or other.is_finished:
        return "terminating already", named
    if whose := snapshot.never_preempts(pod):
        whose = f"pod {pod}" if whose == THE_POD else whose
        return f"spec.preemptionPolicy of {whose} is Never", named
    if other.priority >= pod.priority:
        return f"priority {other.priority} is not lower than {pod.priority}", named
    if not other.node_name:
        return "being bound", named
    if mate := _mate(other, pod, snapshot):
        return f"shares claim {mate[0]} with {mate[1]}, which is not evicted", named
    budgets = [key for key, budget in snapshot.objects(Budget).items() if budget.covers(other) and not budget.allowed]
    if budgets and needless == _SUFFICE:
        return f"PodDisruptionBudget {min(budgets)} allows no eviction, and others suffice", named
    return needless, named


def _mate(other: Pod, pod: Pod, snapshot: Snapshot) -> tuple[ObjectKey, str] | None:
    """A claim of the other pod that keeps its devices, and the consumer that keeps them; None if there is none."""
    for key in claim_keys(other):
        claim = snapshot.claims.get(key)
        for user in claim.claim.reserved_for if claim is not None else ():
            if user.resource != "pods":
                return key, str(user)
            mate = snapshot.pod(user.uid)
            if mate is not None and not mate.deleting and not is_evictable_unbound(mate, pod, snapshot):
                return key, f"pod {mate}"
    return None


def _consumers(nodes: Sequence[NodeObject], snapshot: Snapshot, solver: Solver) -> Iterator[_Protection]:
    """The claims with devices that the nodes reach, and whose consumers are no pods."""
    pools = {pool.id: None for node in nodes for pool in snapshot.inventory.for_node(node.node, solver.features)}
    for uid in {uid: None for pool in pools for uid in snapshot.holders.get(pool, ())}:
        claim = snapshot.claim(uid)
        users = claim.claim.reserved_for if claim is not None else ()
        if claim is not None and users and all(user.resource != "pods" for user in users):
            yield f"reserved for {users[0]}", f"claim {claim.key}"


def _grouped(reasons: Sequence[_Protection]) -> Iterator[Spared]:
    """The reasons, each with the names that it protects; the reason with the most names first."""
    groups: dict[str, list[str]] = {}
    for reason, name in reasons:
        groups.setdefault(reason, []).append(name)
    for reason, names in sorted(groups.items(), key=lambda each: (-len(each[1]), each[0])):
        yield Spared(reason, tuple(sorted(names)))
