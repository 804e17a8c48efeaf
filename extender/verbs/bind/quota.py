"""The checks of a bind against DeviceQuotas: before its writes, and after them."""

from allocator import Allocation, Reason
from extender.cluster.consumers import is_in_use
from extender.cluster.controller_marks import is_marked
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import Solver
from extender.pods.decision_case import Case
from extender.pods.pod_quota import PodQuota
from extender.verbs.bind.errors import BindError, QuotaExceededError

_LATE = "out of time: selectors of the namespace's DeviceQuotas take too long"


def check_planned(case: Case, node: NodeObject, found: Allocation, now: Snapshot) -> None:
    """Compare what a pod would get on a node with its quotas. Assumed allocations of other binds of this process count.

    Raises:
        QuotaExceededError: it is over quota.
        BindError: there was not enough time.
    """
    needs = case.claims.on(node)
    quota = PodQuota.of(case.pod, now, case.solver)
    negotiated = case.claims.negotiated
    if isinstance(needs, Reason) or not (needs.pending or negotiated) or quota is None:
        return
    if quota.unreadable:
        raise QuotaExceededError(quota.unreadable.in_words())
    try:
        refusal = quota.refusal_of(needs.pending, found, negotiated)
    except TimeoutError as error:
        raise BindError(_LATE) from error
    if refusal is not None:
        raise QuotaExceededError(str(refusal))


def check_written(claim: ClaimObject, pod: Pod, snapshot: Snapshot, solver: Solver) -> None:
    """Compare an allocation with earlier allocations, also by other replicas.

    A claim that a bound pod uses is not compared: it was compared when that pod was bound.

    Raises:
        QuotaExceededError: it is over quota, and is to be given back.
        BindError: there was not enough time.
    """
    quota = PodQuota.of(pod, snapshot, solver)
    if quota is None or is_in_use(claim.claim, snapshot):
        return
    try:
        refusal = quota.refusal_after(claim)
    except TimeoutError as error:
        raise BindError(_LATE) from error
    if refusal is not None:
        if claim.claim.allocation is not None and is_marked(claim.claim):
            solver.totals.returned.note(claim.claim.uid, claim.claim.allocation, solver.clock())
        raise QuotaExceededError(f"claim {claim.key} was allocated after others: {refusal}")
