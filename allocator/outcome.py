"""The answer of `allocate`: the allocation, or the reasons why there is none."""

from dataclasses import dataclass
from typing import NamedTuple

from allocator.cause import Cause
from allocator.model.allocations import AllocationResult
from allocator.model.devices import DeviceId
from allocator.policies.merit import Merit


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one device (None: the devices together) does not serve a request.

    Attributes:
        claim: namespace/name.
        request: request, or request/subrequest.
        detail: the taint, counter, capacity or attribute at fault, if any.
    """

    claim: str
    request: str
    cause: Cause
    device: DeviceId | None = None
    detail: str = ""


class LeftOut(NamedTuple):
    """An optional request that is not served on a node: namespace/name of the claim, the request, and why."""

    claim: str
    request: str
    reason: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """One result per claim, in the order of the claims.

    Attributes:
        steps: devices tried by the search.
        left_out: the optional requests that are not served.
        stopped: a limit stopped the search for one of them, so it may fit; or the search for earlier alternatives.
    """

    results: tuple[AllocationResult, ...]
    merit: Merit
    steps: int
    left_out: tuple[LeftOut, ...] = ()
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """No choice of devices on this node serves the claims: the reasons of the request that failed."""

    reasons: tuple[Reason, ...]
    steps: int

    @property
    def summary(self) -> str:
        """A short text without device names and counts, so that it is equal for many nodes and from try to try."""
        if not self.reasons:
            return "no suitable devices"
        reason = min(self.reasons, key=lambda each: each.cause.rank)
        return reason.cause.text.format(request=reason.request, detail=reason.detail)
