"""The states of pods and claims, from creation to use, and what a pending pod waits for."""

from enum import Enum

from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot


class PodState(Enum):
    """The state of a pod."""

    PENDING = "pending"
    BOUND = "bound"
    FINISHED = "finished"
    DELETING = "deleting"


class ClaimState(Enum):
    """The state of a claim."""

    PENDING = "pending"
    IN_FLIGHT = "in flight"
    """Its devices are decided; the watch has not shown the allocation yet."""
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
    """The state of a claim; the snapshot has the assumed allocations."""
    if claim.claim.deleting:
        return ClaimState.DELETING
    if claim.claim.allocation is None:
        return ClaimState.IN_FLIGHT if claim.claim.uid in snapshot.assumed else ClaimState.PENDING
    return ClaimState.RESERVED if claim.claim.reserved_for else ClaimState.ALLOCATED
