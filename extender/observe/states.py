"""The states of pods and claims: where each is on its way."""

from enum import Enum

from extender.state.objects import ClaimObject, Pod
from extender.state.snapshot import Snapshot


class PodState(Enum):
    """Where a pod is on its way."""

    PENDING = "pending"
    BOUND = "bound"
    FINISHED = "finished"
    DELETING = "deleting"


class ClaimState(Enum):
    """Where a claim is on its way."""

    PENDING = "pending"
    IN_FLIGHT = "in flight"
    """It is decided what it gets; the API server has not shown it yet."""
    ALLOCATED = "allocated"
    RESERVED = "reserved"
    """Allocated, and some pod may use it."""
    DELETING = "deleting"


def state_of_pod(pod: Pod) -> PodState:
    """The state of a pod with devices."""
    if pod.is_finished:
        return PodState.FINISHED
    if pod.deleting:
        return PodState.DELETING
    return PodState.BOUND if pod.node_name else PodState.PENDING


def state_of_claim(claim: ClaimObject, snapshot: Snapshot) -> ClaimState:
    """The state of a claim; the snapshot knows what is in flight."""
    if claim.claim.deleting:
        return ClaimState.DELETING
    if claim.claim.allocation is None:
        return ClaimState.IN_FLIGHT if claim.claim.uid in snapshot.assumed else ClaimState.PENDING
    return ClaimState.RESERVED if claim.claim.reserved_for else ClaimState.ALLOCATED
