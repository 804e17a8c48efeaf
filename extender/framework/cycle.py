"""A scheduling cycle: one try to place one pod on a snapshot, for all verbs.

`open_cycle` reads what the pod's claims need. `admitted` also asks the plugins, so it is what filter begins with. Both
ways to evict pods (the verb preempt, and preemption for devices) ask about one node in a fork of the cluster, once the
victims are gone there (`feasible_on`): a pod that could not be bound then evicts nobody.

For a what-if, such as a cluster without some pods, the same code runs on a fork of the snapshot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from allocator import Allocation, Reason
from allocator.policies import POLICIES, Merit, Policy
from allocator.reason import Cause
from allocator.tools import hint, shown
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import POLICY, Pod
from extender.cluster.resources import ClaimResources
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import No, Solver
from extender.framework.plugin import NodeCheck, NodeOffer, Refusal, Refused
from extender.framework.pods.claims import Blocked, PodClaims, claims_of
from extender.framework.pods.extended_resources import NO_SPECIAL, Needs
from extender.framework.pods.node_resources import HeldClaim, ShortageError, is_counted, taken
from extender.framework.pods.reduced_claims import reduced
from extender.kube.api import revision

CLAIMS: Final = "claims"
"""Refuses, beside the plugins: a claim of the pod cannot be used, or the pod itself cannot."""

DEVICES: Final = "devices"
"""Refuses, beside the plugins: the devices of nodes, and what else is compared on each node."""

_KEPT_ELSEWHERE: Final = Cause("kept-elsewhere", "devices are kept for the pod on node {detail}")
_UNKNOWN_POLICY: Final = Cause("policy", f"annotation {POLICY} of the pod: {{detail}}")
_BOUND: Final = Cause("bound", "the pod is bound to node {detail}")

NOTHING_TO_ALLOCATE = Allocation(results=(), merit=Merit(), steps=0)


@dataclass(frozen=True, slots=True)
class Cycle:
    """A pod, its claims, and the cluster for which they are decided."""

    pod: Pod
    claims: PodClaims
    snapshot: Snapshot
    solver: Solver

    def at(self, node: NodeObject) -> Allocation | No:
        """What the pod's pending claims would get on a node, all of them together.

        Raises:
            InvalidClaimError, SelectorError: the pod can run on no node.
            TimeoutError: the solver's time is up.
        """
        needs = self.claims.on(node)
        if isinstance(needs, Reason):
            return No(needs)
        found: Allocation | No = NOTHING_TO_ALLOCATE
        if needs.pending:
            claims = tuple(each.claim for each in needs.pending)
            found = self.solver.judge(needs.world(self.snapshot), node.node, claims)
        return self.checked(node, needs, found)

    @property
    def counts_resources(self) -> bool:
        """Whether what devices take of their node is counted."""
        return bool(self.snapshot.inventory.taking) and is_counted(self.snapshot, self.solver.features)

    def checked(self, node: NodeObject, needs: Needs, found: Allocation | No) -> Allocation | No:
        """An allocation that was found for the pod's claims on a node, or that the node has too little for it."""
        if isinstance(found, No) or not self.counts_resources:
            return found
        try:
            self.resources(node, needs, found)
        except ShortageError as shortage:
            return No(shortage.reason)
        return found

    def resources(self, node: NodeObject, needs: Needs, found: Allocation) -> tuple[ClaimResources, ...]:
        """What the pod takes of a node by its claims.

        Raises:
            ShortageError: the pod cannot run on the node with these devices.
        """
        held = [(each, each.claim.allocation) for each in self.claims.allocated]
        held += [(needs.kept, needs.kept.claim.allocation)] if needs.kept else []
        held += zip(needs.pending, found.results, strict=True)
        claims = (
            HeldClaim(each, allocation, is_special=bool(each.special_of))
            for each, allocation in held
            if allocation is not None
        )
        return taken(self.pod, node, claims, self.snapshot, self.solver.features)


def found_at_hand(cycle: Cycle, node: NodeObject) -> Allocation | No | None:
    """What a pod would get on a node; None if the search may take more than about a millisecond.

    Raises:
        InvalidClaimError, SelectorError: the pod can run on no node.
        TimeoutError: the solver's time is up.
    """
    needs = cycle.claims.on(node)
    if isinstance(needs, Reason):
        return No(needs)
    if not needs.pending:
        return cycle.checked(node, needs, NOTHING_TO_ALLOCATE)
    if cycle.snapshot.nominated:
        return None
    claims = tuple(each.claim for each in needs.pending)
    found = cycle.solver.at_hand(needs.world(cycle.snapshot), node.node, claims)
    return None if found is None else cycle.checked(node, needs, found)


def policy_of(pod: Pod, default: Policy) -> Policy | None:
    """The policy that decides a pod; None if the annotation of the pod names an unknown policy."""
    return default if pod.policy is None else POLICIES.get(pod.policy)


def unknown_policy(pod: Pod) -> Reason:
    """The reason for a pod whose annotation names an unknown policy: it can run on no node."""
    return Reason(_UNKNOWN_POLICY, detail=policy_problem(pod.policy or ""))


def policy_problem(name: str) -> str:
    """The problem with the name of a policy; empty if there is a policy of this name."""
    if name in POLICIES:
        return ""
    similar = hint(name, POLICIES) or f"; there are {', '.join(sorted(POLICIES))}"
    return f"unknown policy {shown(name)}{similar}"


def open_cycle(pod: Pod, snapshot: Snapshot, solver: Solver) -> Cycle | Blocked:
    """The cycle of a pod in a snapshot, or why it can run on no node now. The cycle's solver has the pod's policy."""
    policy = policy_of(pod, solver.policy)
    if policy is None:
        return Blocked(unknown_policy(pod))
    if policy is not solver.policy:
        solver = replace(solver, policy=policy)
    claims = claims_of(pod, snapshot)
    if isinstance(claims, Blocked):
        return claims
    if pod.kept.without:
        claims = reduced(claims, pod.kept.without)
    if any(each.claim.spec.optional for each in claims.pending):
        claims = solver.plugins.withheld(pod, claims, snapshot, solver)
    if not solver.features.extended_resource:
        claims = replace(claims, special=NO_SPECIAL)
    if policy.weighs_leftover:
        pending = [each.claim for each in (*claims.pending, *claims.special.asked)]
        solver = solver.informed(pod, pending, snapshot)
    return Cycle(pod, claims, snapshot, solver)


def refreshed(pod: Pod, snapshot: Snapshot) -> Pod:
    """The pod with the claims that were made and the devices that were kept for it since the scheduler read it.

    It has the priority of its PodGroup, if that has one.
    """
    known, pod = snapshot.pod(pod.uid), snapshot.with_rank(pod)
    if known is None:
        return pod
    if known.claim_statuses != pod.claim_statuses:
        pod = replace(pod, claim_statuses={**pod.claim_statuses, **known.claim_statuses})
    if known.kept != pod.kept and revision(known.resource_version) > revision(pod.resource_version):
        pod = replace(pod, kept=known.kept, nominated_node=known.nominated_node)
    return pod


def fits(pod: Pod, node: NodeObject, snapshot: Snapshot, solver: Solver) -> bool:
    """Whether the pod's claims could be served on the node.

    Raises:
        InvalidClaimError, SelectorError: the pod can run on no node.
    """
    cycle = open_cycle(pod, snapshot, solver)
    return isinstance(cycle, Cycle) and isinstance(cycle.at(node), Allocation)


def holding(found: Allocation, snapshot: Snapshot) -> Snapshot:
    """The cluster in which an allocation is taken."""
    usage = snapshot.usage
    for allocation in found.results:
        usage = usage.with_allocation(allocation)
    return snapshot._replace(usage=usage)


def kept_elsewhere(node: str) -> Reason:
    """The reason for all nodes but the one where devices are kept for the pod."""
    return Reason(_KEPT_ELSEWHERE, detail=node)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A pod that may be bound where its claims can be served.

    Attributes:
        checks: of plugins, each with the plugin's name: they compare what is found on each node.
    """

    cycle: Cycle
    checks: Sequence[tuple[str, NodeCheck]] = ()

    def refused(self, node: NodeObject, found: Allocation) -> Refused | None:
        """Who refuses what was found for the pod on a node, and why; None if nobody does.

        Raises:
            TimeoutError: there was not enough time.
        """
        needs = self.cycle.claims.on(node)
        if isinstance(needs, Reason):
            return None
        offer = NodeOffer(node, needs, found)
        for name, check in self.checks:
            refusal = check(offer)
            if refusal is not None:
                return Refused(name, refusal)
        return None


def admitted(pod: Pod, snapshot: Snapshot, solver: Solver) -> Admitted | Refused:
    """The cycle of a pod, or who refuses the pod on all nodes, and why. Searches no devices.

    Raises:
        TimeoutError: selectors of a plugin's rules took too long.
    """
    return solver.plugins.pre_enqueue(pod, snapshot) or _admitted(pod, snapshot, solver)


def tried_in_vain(pod: Pod, snapshot: Snapshot, solver: Solver) -> Refused | None:
    """Who refuses a pod whatever devices are free, so that a try changes nothing, and why; None if nobody does.

    Searches no devices.

    Raises:
        TimeoutError: selectors of a plugin's rules took too long.
    """
    found = solver.plugins.in_vain(pod, snapshot) or _admitted(pod, snapshot, solver)
    return found if isinstance(found, Refused) else None


def _admitted(pod: Pod, snapshot: Snapshot, solver: Solver) -> Admitted | Refused:
    """Like `admitted`, for a pod that may be tried."""
    cycle = open_cycle(pod, snapshot, solver)
    if isinstance(cycle, Blocked):
        return Refused(CLAIMS, Refusal(cycle.reason))
    if cycle.claims.is_empty:
        return Admitted(cycle)
    found = solver.plugins.pre_filter(pod, cycle.claims, snapshot, solver)
    return found if isinstance(found, Refused) else Admitted(cycle, found)


def feasible_on(pod: Pod, node: NodeObject, snapshot: Snapshot, solver: Solver) -> Allocation | No:
    """What a pod would be bound with on a node, or why it could not be bound there.

    Args:
        pod: pending.
        node: passes kube-scheduler's own checks.
        snapshot: the cluster, or a fork. What is held for other pods counts as in use there.
        solver: the allocator.

    Raises:
        InvalidClaimError, SelectorError: the pod can run on no node.
        TimeoutError: the solver's time is up.
    """
    if pod.node_name:
        return No(Reason(_BOUND, detail=pod.node_name))
    found = admitted(pod, snapshot, solver)
    if isinstance(found, Refused):
        return No(found.refusal.reason, by=found.by)
    if pod.kept.node not in ("", node.name) and solver.plugins.keeper(pod, snapshot):
        return No(kept_elsewhere(pod.kept.node))
    allocation = found.cycle.at(node)
    if isinstance(allocation, No):
        return allocation
    refused = found.refused(node, allocation)
    return allocation if refused is None else No(refused.refusal.reason, by=refused.by)


def is_feasible(pod: Pod, node: NodeObject, snapshot: Snapshot, solver: Solver) -> bool:
    """Whether `feasible_on` finds something. Raises as `feasible_on`."""
    return isinstance(feasible_on(pod, node, snapshot, solver), Allocation)
