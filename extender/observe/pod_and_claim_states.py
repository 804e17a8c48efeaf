"""The states of pods and claims, from creation to use, and what a pending pod waits for."""

from enum import Enum

from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot


class PodState(Enum):
    """How far a pod has come."""

    PENDING = "pending"
    BOUND = "bound"
    FINISHED = "finished"
    DELETING = "deleting"


class PendingReason(Enum):
    """What a pending pod waits for."""

    NO_ATTEMPT = "no_attempt"
    """A scheduling gate keeps it from its scheduler, or its scheduler does not call the extender."""
    NOT_ASKED = "not_asked"
    """No scheduler has asked this replica about it."""
    CLAIMS = "claims"
    """A claim of the pod cannot be used on any node: it does not exist, is invalid, or is not ready."""
    GANG = "gang"
    """Pods of its gang are missing, or the devices for all of them."""
    QUOTA = "quota"
    """A DeviceQuota of its namespace allows no more."""
    DEVICES = "devices"
    """No node has the devices."""
    TERMINATING = "terminating"
    """The pod fits once terminating pods are gone."""
    SEARCH = "search"
    """No node was found, and a limit has stopped a search."""
    FILTER_ERROR = "filter_error"
    """Filter has ended with an error."""
    FITS = "fits"
    """Its devices fit on a node; the rest is up to its scheduler."""
    BIND_ERROR = "bind_error"
    """Bind has ended with an error, or waits for the devices to be ready."""


class ClaimState(Enum):
    """How far a claim has come."""

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
