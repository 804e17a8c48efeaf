"""A pod's case: what its claims need, decided against a snapshot, for all verbs.

For a what-if, such as a cluster without some pods, the same code runs on a fork of the snapshot.
"""

from dataclasses import dataclass, replace

from allocator import Allocation, Claim, Features, Merit
from extender.decisions.solver import No, Solver
from extender.kube.raw import revision
from extender.pods.claims import Blocked, PodClaims, claims_of
from extender.pods.device_quota import within_quota
from extender.pods.extended_resources.special_claim import NO_SPECIAL
from extender.pods.policy import policy_of, unknown_policy
from extender.state.objects import NodeObject, Pod
from extender.state.snapshot import Snapshot

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
        if isinstance(needs, str):
            return No(needs)
        if not needs.pending:
            return NOTHING_TO_ALLOCATE
        return self.solver.judge(needs.world(self.snapshot), node.node, tuple(each.claim for each in needs.pending))


def found_at_hand(case: Case, node: NodeObject) -> Allocation | No | None:
    """What a pod would get on a node; None if the search may take more than about a millisecond.

    Raises:
        InvalidClaimError, SelectorError: the pod can run on no node.
        TimeoutError: the solver's time is up.
    """
    needs = case.claims.on(node)
    if isinstance(needs, str):
        return No(needs)
    if not needs.pending:
        return NOTHING_TO_ALLOCATE
    if case.snapshot.nominated:
        return None
    claims = tuple(each.claim for each in needs.pending)
    return case.solver.at_hand(needs.world(case.snapshot), node.node, claims)


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


def after_departures(snapshot: Snapshot, node: NodeObject, features: Features) -> Snapshot:
    """The cluster once pods that are gone or terminating have released the devices that a node can reach."""
    for pool in snapshot.inventory.for_node(node.node, features):
        for uid in snapshot.holders.get(pool.id, ()):
            found = snapshot.claim(uid)
            if found is not None and uid not in snapshot.assumed and _is_left(found.claim, snapshot):
                released = replace(found.claim, allocation=None, reserved_for=())
                snapshot = snapshot.with_claim(replace(found, claim=released))
    return snapshot


def holding(found: Allocation, snapshot: Snapshot) -> Snapshot:
    """The cluster in which an allocation is taken."""
    usage = snapshot.usage
    for allocation in found.results:
        usage = usage.with_allocation(allocation)
    return snapshot._replace(usage=usage)


def _is_left(claim: Claim, snapshot: Snapshot) -> bool:
    """Whether all users of the claim are gone or terminating, so that its devices will be released."""
    if any(consumer.resource != "pods" for consumer in claim.reserved_for):
        return False
    users = [consumer.uid for consumer in claim.reserved_for] or ([claim.owner_uid] if claim.owner_uid else [])
    pods = [snapshot.pod(uid) for uid in users]
    return bool(pods) and all(pod is None or pod.deleting or pod.is_finished for pod in pods)
