"""What an allocation attempt answers: the allocation, or why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from allocator.model import AllocationResult, DeviceId


class Cause(Enum):
    """Why a device did not serve a request, or a request could not be served; the value is the short text."""

    IN_USE = "in use"
    SELECTOR = "does not match"
    UNREACHABLE = "not reachable from the node"
    BINDING_CONDITIONS = "has binding conditions, the feature is off"
    CAPACITY = "not enough capacity"
    NODE_OPERATIONS = "needs a feature that the node does not declare"
    PARTITION = "consumes counters, the feature is off"
    COMPATIBILITY = "not compatible with devices in use"
    COUNTERS = "not enough counters"
    TAINT = "tainted"
    CONSTRAINT = "violates a constraint"
    COUNT = "not enough devices"
    POOL = "pool is not usable"
    RESULTS = "more devices than a claim can hold"


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
        causes = {reason.cause for reason in self.reasons}
        cause = next(c for c in _PRECEDENCE if c in causes)
        reason = next(r for r in self.reasons if r.cause is cause)
        return _SUMMARIES[cause].format(request=reason.request, detail=reason.detail)


_SUMMARIES = {
    Cause.CONSTRAINT: "no devices for request {request} satisfy constraint on {detail}",
    Cause.RESULTS: "request {request} needs more devices than a claim can hold",
    Cause.COUNT: "not enough free devices for request {request}",
    Cause.COUNTERS: "not enough shared counters for request {request}",
    Cause.COMPATIBILITY: "no compatible device for request {request}",
    Cause.CAPACITY: "not enough device capacity for request {request}",
    Cause.TAINT: "untolerated device taint for request {request}",
    Cause.IN_USE: "no free device for request {request}",
    Cause.NODE_OPERATIONS: "node lacks a feature for the devices of request {request}",
    Cause.PARTITION: "partitionable devices are off, request {request}",
    Cause.BINDING_CONDITIONS: "device binding conditions are off, request {request}",
    Cause.POOL: "resource pool is not usable for request {request}",
    Cause.UNREACHABLE: "no device for request {request}",
    Cause.SELECTOR: "no device matches request {request}",
}
_PRECEDENCE = tuple(_SUMMARIES)
