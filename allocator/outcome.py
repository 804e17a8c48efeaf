"""The answer of `allocate`: the allocation, or the reasons why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from allocator.causes import Cause
from allocator.model.claims import AllocationResult
from allocator.model.devices import AttributeValue, Capacity, DeviceId


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


class DeviceModel(NamedTuple):
    """What tells devices apart in a policy that compares what allocations leave.

    Attributes:
        attributes: name, type and value of each attribute that the policy reads and that the device has.
        part: of a partition, the share of its hardware that it takes: the mean of the shares of all counters in its
            counter sets. 0 for a device that consumes no counters.
    """

    driver: str
    is_shared: bool
    capacity: tuple[tuple[str, Capacity], ...] = ()
    attributes: tuple[tuple[str, str, AttributeValue], ...] = ()
    part: float = 0.0


Leftover: TypeAlias = frozenset[tuple[tuple[DeviceModel, float], int]]
"""What is left on a node: how many devices there are of each model with each room; devices without room left out."""

NOTHING_LEFT: Leftover = frozenset()


@dataclass(frozen=True, slots=True)
class Merit:
    """What speaks for an allocation; a policy turns the merits of nodes into scores.

    Attributes:
        preference: sum of 8 - index of the alternatives chosen from `firstAvailable`.
        capacity: qualified name to the sum over the devices taken, in units of 10**-9.
        free: the share of the devices of the same pools that stays free, 0 to 1. A shared device counts with the share
            of its capacity that stays free.
        broken: counter sets from which nothing was taken before.
        demand: for each device that is taken, the number of device classes that it belongs to, added up. 0 if the
            policy does not weigh classes.
        before, after: what is left on the node without the allocation, and with it; empty unless the policy weighs
            what is left.
        loss: the room, in devices, that other pods can use before the allocation and not after it. Only the caller of
            the allocator knows it.
        optional: how many optional requests are served.
    """

    preference: int = 0
    capacity: Mapping[str, int] = field(default_factory=dict)
    free: float = 0.0
    broken: int = 0
    demand: int = 0
    before: Leftover = NOTHING_LEFT
    after: Leftover = NOTHING_LEFT
    loss: float = 0.0
    optional: int = 0

    @property
    def level(self) -> tuple[int, int]:
        """What counts more than anything else, with every policy: optional requests, then preferred alternatives."""
        return self.optional, self.preference


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
