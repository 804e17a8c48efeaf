"""Devices that are kept for the nominated pods of a namespace, and what they take of the limits of its quotas.

It is counted by claims without devices. A claim with devices counts by these (`extender.plugins.quota.totals`).
So a device that is kept for a claim and is allocated to it counts once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from allocator import AllocationResult, ClaimSpec, DeviceId, DeviceResult, Quantity
from allocator.tools import Recent
from extender.cluster.indexes import NO_SPEC
from extender.cluster.objects.device_quotas import Amounts, DeviceLimit, DeviceQuota
from extender.cluster.objects.pods import Pod
from extender.plugins.quota.usage import LimitMeter, Taken, least

_MOST_PARTS: Final = 200_000
"""The most claims that are remembered. A claim counts once for each limit."""


class KeptClaim(NamedTuple):
    """A claim without devices of a nominated pod, and what is kept for it.

    Attributes:
        uid: of the claim. The name of a controller follows, if this is what the controller is asked for. It is the uid
            of the pod, if it is not known which claim gets the devices.
        pod: for which it is kept. Of pods that share the claim, the first in the order of `rank`.
        spec: of the claim.
        allocation: what the claim gets of the devices that are kept by name. None: no device is kept by name, so the
            least that the claim asks for counts.
        loose: kept devices of which it is not known which request gets them. They count in limits of each class.
    """

    uid: str
    pod: Pod
    spec: ClaimSpec = NO_SPEC
    allocation: AllocationResult | None = None
    loose: tuple[DeviceId, ...] = ()

    @property
    def claim_uid(self) -> str:
        """The uid of the claim."""
        return self.uid.partition(" ")[0]

    @property
    def devices(self) -> Sequence[DeviceId]:
        """The devices that are kept for it by name."""
        return self.loose if self.allocation is None else [each.device for each in self.allocation.results]

    def without(self, devices: frozenset[DeviceId]) -> "KeptClaim":
        """Without some of the devices: they count for a claim that holds them."""
        if devices.isdisjoint(self.devices):
            return self
        left = tuple(each for each in self.loose if each not in devices)
        if self.allocation is None:
            return self._replace(loose=left)
        results = tuple(each for each in self.allocation.results if each.device not in devices)
        return self._replace(allocation=AllocationResult(results))

    def measured(self, limit: DeviceLimit, meter: LimitMeter) -> Amounts:
        """What it takes of a limit. Raises SearchLimitError: time is up."""
        if self.allocation is not None:
            return meter.measured(limit, [Taken(self.spec, self.allocation)])
        if not self.loose:
            return least(limit, [self.spec])
        results = tuple(DeviceResult("", each) for each in self.loose)
        return meter.measured(replace(limit, device_class=""), [Taken(NO_SPEC, AllocationResult(results))])


@dataclass(frozen=True, slots=True, eq=False)
class KeptTotal:
    """What is kept in a namespace, by a limit.

    Attributes:
        claims: for which something is kept.
        parts: what each of them takes, by uid of the claim.
        amounts: the sum.
    """

    limit: DeviceLimit
    claims: Sequence[KeptClaim] = ()
    parts: Mapping[str, tuple[KeptClaim, Amounts]] = field(default_factory=dict)
    amounts: Amounts = field(default_factory=dict)


class KeptTotals:
    """Remembers what is kept, for all limits. Threads may ask about different snapshots and forks at the same time."""

    def __init__(self) -> None:
        self._known: Recent[KeptTotal] = Recent(_MOST_PARTS, lambda _, total: 1 + len(total.parts))

    def of(self, quota: DeviceQuota, limit: DeviceLimit, claims: Sequence[KeptClaim], meter: LimitMeter) -> KeptTotal:
        """What is kept in the namespace of a quota, by one of its limits. Only new claims are measured.

        Args:
            quota: of the namespace.
            limit: of the quota.
            claims: for which something is kept in the namespace. The same object while they are the same.
            meter: measures a claim.

        Raises:
            SearchLimitError: time is up.
        """
        known = self._known.find((quota.key, limit.name))
        if known is None or known.limit != limit:
            known = KeptTotal(limit)
        elif known.claims is claims:
            return known
        return self._known.keep((quota.key, limit.name), _moved(known, claims, meter))


def _moved(old: KeptTotal, claims: Sequence[KeptClaim], meter: LimitMeter) -> KeptTotal:
    """The total of other claims. A claim is the same object as long as what it takes is the same."""
    parts, nano = dict[str, tuple[KeptClaim, Amounts]](), dict[str, int]()
    for each in claims:
        before = old.parts.get(each.uid)
        is_known = before is not None and before[0] is each
        parts[each.uid] = part = before if before and is_known else (each, each.measured(old.limit, meter))
        for name, amount in part[1].items():
            nano[name] = nano.get(name, 0) + amount.nano
    amounts = {name: Quantity(nano[name], hard.format) for name, hard in old.limit.hard.items() if name in nano}
    return KeptTotal(old.limit, claims, parts, amounts)
