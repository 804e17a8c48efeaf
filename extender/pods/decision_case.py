"""A pod's case: what its claims need, decided against a snapshot, for all verbs.

For a what-if, such as a cluster without some pods, the same code runs on a fork of the snapshot.
"""

from dataclasses import dataclass, replace

from allocator import Allocation, Reason
from allocator.policies import Merit
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.resources import ClaimResources
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import No, Solver
from extender.kube.raw import revision
from extender.pods.claims import Blocked, PodClaims, claims_of
from extender.pods.extended_resources.special_claim import NO_SPECIAL, Needs
from extender.pods.node_resources import HeldClaim, ShortageError, is_counted, taken
from extender.pods.pod_quota import within_quota
from extender.pods.policy import policy_of, unknown_policy
from extender.pods.reduced_claims import reduced

NOTHING_TO_ALLOCATE = Allocation(results=(), merit=Merit(), steps=0)


@dataclass(frozen=True, slots=True)
class Case:
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


def found_at_hand(case: Case, node: NodeObject) -> Allocation | No | None:
    """What a pod would get on a node; None if the search may take more than about a millisecond.

    Raises:
        InvalidClaimError, SelectorError: the pod can run on no node.
        TimeoutError: the solver's time is up.
    """
    needs = case.claims.on(node)
    if isinstance(needs, Reason):
        return No(needs)
    if not needs.pending:
        return case.checked(node, needs, NOTHING_TO_ALLOCATE)
    if case.snapshot.nominated:
        return None
    claims = tuple(each.claim for each in needs.pending)
    found = case.solver.at_hand(needs.world(case.snapshot), node.node, claims)
    return None if found is None else case.checked(node, needs, found)


def open_case(pod: Pod, snapshot: Snapshot, solver: Solver) -> Case | Blocked:
    """The case of a pod in a snapshot, or why it can run on no node now. The case's solver has the pod's policy."""
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
    if snapshot.device_quotas and any(each.claim.spec.optional for each in claims.pending):
        claims = within_quota(pod, claims, snapshot, solver)
    if not solver.features.extended_resource:
        claims = replace(claims, special=NO_SPECIAL)
    if policy.weighs_leftover:
        pending = [each.claim for each in (*claims.pending, *claims.special.asked)]
        solver = solver.informed(pod, pending, snapshot)
    return Case(pod, claims, snapshot, solver)


def refreshed(pod: Pod, snapshot: Snapshot) -> Pod:
    """The pod with the claims that were made and the devices that were kept for it since the scheduler read it."""
    known = snapshot.pod(pod.uid)
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
    case = open_case(pod, snapshot, solver)
    return isinstance(case, Case) and isinstance(case.at(node), Allocation)


def holding(found: Allocation, snapshot: Snapshot) -> Snapshot:
    """The cluster in which an allocation is taken."""
    usage = snapshot.usage
    for allocation in found.results:
        usage = usage.with_allocation(allocation)
    return snapshot._replace(usage=usage)
