"""The answer of `allocate`: the allocation, or the reasons why there is none."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from allocator.model.allocations import AllocationResult
from allocator.model.devices import DeviceId
from allocator.policies.merit import Merit
from allocator.reason import Cause, Reason

_NOTHING_SUITS: Final = Cause("nothing-suits", "no suitable devices")


@dataclass(frozen=True, slots=True)
class Unserved:
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
    """An optional request that is not served on a node: namespace/name of the claim, the request, and why, in words."""

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

    reasons: tuple[Unserved, ...]
    steps: int

    @property
    def reason(self) -> Reason:
        """What is in the way of the device that came closest.

        It has a detail only if the cause tells it: other details name pools and devices, and differ between like nodes.
        """
        if not self.reasons:
            return Reason(_NOTHING_SUITS)
        nearest = min(self.reasons, key=lambda each: each.cause.rank)
        cause = nearest.cause
        return Reason(cause, nearest.request, nearest.detail if "{detail}" in cause.text else "")
