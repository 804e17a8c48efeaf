"""What an allocation attempt answers: the allocation, or why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from allocator.model.claims import AllocationResult
from allocator.model.devices import DeviceId


class Cause(Enum):
    """Why a device did not serve a request, or a request could not be served, with the text for the request.

    Of several causes the first here is told: what came closest to being served.
    """

    CONSTRAINT = "no devices for request {request} satisfy constraint on {detail}"
    RESULTS = "request {request} needs more devices than a claim can hold"
    COUNT = "not enough free devices for request {request}"
    COUNTERS = "not enough shared counters for request {request}"
    COMPATIBILITY = "no compatible device for request {request}"
    CAPACITY = "not enough device capacity for request {request}"
    TAINT = "untolerated device taint for request {request}"
    IN_USE = "no free device for request {request}"
    NODE_OPERATIONS = "node lacks a feature for the devices of request {request}"
    PARTITION = "partitionable devices are off, request {request}"
    BINDING_CONDITIONS = "device binding conditions are off, request {request}"
    POOL = "resource pool is not usable for request {request}"
    UNREACHABLE = "no device for request {request}"
    SELECTOR = "no device matches request {request}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one device (None: the request as a whole) did not serve a request.

    Attributes:
        claim: namespace/name.
        request: request, or request/subrequest.
        detail: the taint, counter, capacity or attribute at fault, where there is one.
    """

    claim: str
    request: str
    cause: Cause
    device: DeviceId | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Merit:
    """What speaks for an allocation, to compare nodes by.

    Attributes:
        preference: sum of 8 - index of the alternatives chosen from `firstAvailable`.
        capacity: qualified name to what the devices have of it in all, in units of 10**-9.
        free: share of the devices in the pools concerned that stays free, 0 to 1.
        broken: counter sets of which nothing was taken before.
    """

    preference: int = 0
    capacity: Mapping[str, int] = field(default_factory=dict)
    free: float = 0.0
    broken: int = 0


@dataclass(frozen=True, slots=True)
class Allocation:
    """One result per claim, in the order of the claims.

    Attributes:
        merit: how well the node suits; a policy turns the merits of nodes into scores.
        steps: devices tried by the search.
    """

    results: tuple[AllocationResult, ...]
    merit: Merit
    steps: int


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """No choice of devices on this node serves the claims: the reasons of the request that failed."""

    reasons: tuple[Reason, ...]
    steps: int

    @property
    def summary(self) -> str:
        """A short text, the same from try to try and for many nodes: no device names, no counts."""
        if not self.reasons:
            return "no suitable devices"
        reason = min(self.reasons, key=lambda each: _PRECEDENCE[each.cause])
        return reason.cause.value.format(request=reason.request, detail=reason.detail)


_PRECEDENCE = {cause: number for number, cause in enumerate(Cause)}
