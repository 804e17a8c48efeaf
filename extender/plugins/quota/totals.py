"""The amounts that namespaces are allocated of the limits of their quotas, and the largest capacities of devices.

They are remembered: on a later snapshot, only claims and pools that have changed are measured again. What is kept for
nominated pods is counted apart, by claims without devices. A claim with devices counts by these. So a device that is
kept for a claim and is allocated to it counts once.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from immutables import Map

from allocator import AllocationResult, Inventory, PoolId, Quantity
from allocator.pools import Pool
from allocator.tools import Recent
from extender.cluster.indexes import NO_SPEC
from extender.cluster.objects.device_quotas import Amounts, DeviceLimit, DeviceQuota
from extender.cluster.snapshot import Snapshot
from extender.plugins.quota.kept_claims import KeptClaim
from extender.plugins.quota.usage import LimitMeter, Taken, qualified

_NO_CLAIMS: Final[Map[str, AllocationResult]] = Map()

_MOST_PARTS: Final = 200_000
"""The most claims whose devices are remembered, and as many for which devices are kept. A claim counts once a limit."""

_MOST_RETURNED: Final = 4096
_RETURNED_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """The largest capacities in an inventory, by qualified name, in units of 10**-9: of each pool, and of all pools."""

    inventory: Inventory | None = None
    of_pool: Mapping[PoolId, tuple[Pool, Mapping[str, int]]] = field(default_factory=dict)
    of_all: Mapping[str, int] = field(default_factory=dict)


class Largest:
    """Remembers the largest capacities of published devices: no device takes more of a limit.

    Threads may ask at the same time.
    """

    def __init__(self) -> None:
        self._seen = _Seen()

    @property
    def is_known(self) -> bool:
        """Whether they were worked out before, so that only changes have to be looked at."""
        return self._seen.inventory is not None

    def of(self, inventory: Inventory) -> Mapping[str, int]:
        """Qualified name of a capacity to the largest amount of a device, in units of 10**-9."""
        seen = self._seen
        if seen.inventory is not inventory:
            seen = self._seen = _seen_in(inventory, seen)
        return seen.of_all


def _seen_in(inventory: Inventory, old: _Seen) -> _Seen:
    of_pool: dict[PoolId, tuple[Pool, Mapping[str, int]]] = {}
    of_all: dict[str, int] = {}
    for pool_id, pool in inventory.pools.items():
        known = old.of_pool.get(pool_id)
        if known is None or known[0] is not pool:
            known = pool, _of_pool(pool)
        of_pool[pool_id] = known
        _raise(of_all, known[1])
    return _Seen(inventory, of_pool, of_all)


def _of_pool(pool: Pool) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for each in pool.newest:
        for device in each.devices:
            driver, capacity = device.id.driver, device.capacity
            _raise(found, {qualified(name, driver): amount.value.nano for name, amount in capacity.items()})
    return found


def _raise(largest: dict[str, int], amounts: Mapping[str, int]) -> None:
    """Raise each amount to another one that is larger."""
    for name, amount in amounts.items():
        if amount > largest.get(name, -1):
            largest[name] = amount


class LimitPart(NamedTuple):
    """The part of a limit that a claim takes.

    Attributes:
        pools: the pools of the allocated devices. The amounts depend on nothing else that changes.
    """

    allocation: AllocationResult
    pools: frozenset[PoolId]
    amounts: Amounts


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """The part of a limit that the claims of a namespace take. Assumed allocations do not count.

    Attributes:
        held: the allocated claims of the namespace, by uid.
        inventory: has the devices.
        parts: by uid of the claim.
        pools: the pools of all parts as they were when the parts were measured; None: not published.
        amounts: the sum.
    """

    limit: DeviceLimit
    held: Map[str, AllocationResult] = _NO_CLAIMS
    inventory: Inventory = field(default_factory=Inventory)
    parts: Mapping[str, LimitPart] = field(default_factory=dict)
    pools: Mapping[PoolId, Pool | None] = field(default_factory=dict)
    amounts: Amounts = field(default_factory=dict)


class Returned:
    """The devices that controllers have allocated to claims, and those that were given back: they were over quota.

    A controller may return devices of which nobody knew before. So it is asked to allocate for such a claim again only
    when the quota has room for as much; or after some minutes, because it may return less then.
    """

    def __init__(self) -> None:
        self._known: Recent[tuple[float, AllocationResult]] = Recent(_MOST_RETURNED)

    def note(self, claim_uid: str, allocation: AllocationResult, now: float) -> None:
        """Note the allocation of a claim that is over quota; ``now`` is in seconds of the solver's clock."""
        self._known.keep(claim_uid, (now + _RETURNED_SECONDS, allocation))

    def of(self, claim_uid: str, now: float) -> AllocationResult | None:
        """The latest allocation of a claim that was over quota; None if it is not known, or too old."""
        until, allocation = self._known.find(claim_uid) or (now, None)
        return allocation if now < until else None


@dataclass(frozen=True, slots=True, eq=False)
class KeptTotal:
    """The devices that are kept in a namespace, by a limit.

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
        return self._known.keep((quota.key, limit.name), _kept_moved(known, claims, meter))


class Totals:
    """Remembers the totals of all limits. Threads may ask about different snapshots and forks at the same time.

    Attributes:
        largest: remembers the largest capacities.
        kept: remembers what is kept.
        returned: what controllers have allocated to claims that were over quota with it.
    """

    def __init__(self) -> None:
        self.largest = Largest()
        self.kept = KeptTotals()
        self.returned = Returned()
        self._known: Recent[Total] = Recent(_MOST_PARTS, lambda _, total: 1 + len(total.parts))

    def knows(self, quota: DeviceQuota) -> bool:
        """Whether the totals of all limits of a quota are remembered, so that only changes have to be measured."""
        found = ((limit, self._known.find((quota.key, limit.name))) for limit in quota.limits)
        return all(known is not None and known.limit == limit for limit, known in found)

    def of(self, quota: DeviceQuota, limit: DeviceLimit, snapshot: Snapshot, meter: LimitMeter) -> Total:
        """What the namespace of a quota is allocated of one of its limits.

        Raises:
            SearchLimitError: time is up.
        """
        held = snapshot.allocated_in.get(quota.namespace, _NO_CLAIMS)
        key = quota.key, limit.name
        known = self._known.find(key)
        if known is None or known.limit != limit:
            known = Total(limit)
        elif known.held is held and known.inventory is snapshot.inventory:
            return known
        return self._known.keep(key, _moved(known, held, snapshot, meter))


def _moved(old: Total, held: Map[str, AllocationResult], snapshot: Snapshot, meter: LimitMeter) -> Total:
    """The total of other claims. Only claims whose allocation or pools have changed are measured."""
    published, changed = snapshot.inventory.pools, _changed(old, snapshot.inventory)
    parts, pools = dict(old.parts), {**old.pools, **changed}
    nano = {name: amount.nano for name, amount in old.amounts.items()}
    for uid in _stale(old, held, changed):
        if uid in parts:
            _add(nano, parts.pop(uid).amounts, -1)
        if (allocation := held.get(uid)) is not None:
            claim = snapshot.claim(uid)
            taken = Taken(NO_SPEC if claim is None else claim.claim.spec, allocation)
            own = frozenset(each.device.pool_id for each in allocation.results)
            parts[uid] = part = LimitPart(allocation, own, meter.allocated(old.limit, [taken]))
            pools.update((each, published.get(each)) for each in own)
            _add(nano, part.amounts, 1)
    if None in changed.values():
        pools = {each: pools[each] for part in parts.values() for each in part.pools}
    amounts = {name: Quantity(nano.get(name, 0), hard.format) for name, hard in old.limit.hard.items()}
    return Total(old.limit, held, snapshot.inventory, parts, pools, amounts)


def _changed(old: Total, inventory: Inventory) -> Mapping[PoolId, Pool | None]:
    """The pools that are not what they were, as they are now."""
    if inventory is old.inventory:
        return {}
    now = ((pool_id, pool, inventory.pools.get(pool_id)) for pool_id, pool in old.pools.items())
    return {pool_id: new for pool_id, pool, new in now if new is not pool}


def _stale(old: Total, held: Map[str, AllocationResult], changed: Collection[PoolId]) -> set[str]:
    """The claims whose parts are missing, or not what they were."""
    stale = {uid for uid, part in old.parts.items() if not part.pools.isdisjoint(changed)} if changed else set()
    if held is not old.held:
        before = old.held.get
        stale |= {uid for uid, allocation in held.items() if before(uid) is not allocation}
        stale |= {uid for uid in old.parts if uid not in held}
    return stale


def _add(nano: dict[str, int], amounts: Amounts, sign: int) -> None:
    for name, amount in amounts.items():
        nano[name] = nano.get(name, 0) + sign * amount.nano


def _kept_moved(old: KeptTotal, claims: Sequence[KeptClaim], meter: LimitMeter) -> KeptTotal:
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
