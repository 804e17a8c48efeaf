"""The amounts that namespaces are allocated of the limits of their quotas.

They are remembered: on a later snapshot, only claims that have changed are measured again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from immutables import Map

from allocator import AllocationResult, Inventory, Pool, PoolId, Quantity, Recent
from extender.quota.device_usage import Meter, Taken
from extender.state.device_quotas import Amounts, DeviceLimit, DeviceQuota
from extender.state.snapshot import NO_SPEC, Snapshot

_NO_CLAIMS: Final[Map[str, AllocationResult]] = Map()

_MOST_PARTS: Final = 200_000
"""The most claims that are remembered. A claim counts once for each limit."""


class Part(NamedTuple):
    """What a claim takes of a limit.

    Attributes:
        pools: the pools of the allocated devices; None: not published. The amounts depend on nothing else that changes.
    """

    allocation: AllocationResult
    pools: Mapping[PoolId, Pool | None]
    amounts: Amounts


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """What the claims of a namespace take of a limit. Assumed allocations do not count.

    Attributes:
        held: the allocated claims of the namespace, by uid.
        inventory: has the devices.
        parts: by uid of the claim.
        amounts: the sum.
    """

    limit: DeviceLimit
    held: Map[str, AllocationResult] = _NO_CLAIMS
    inventory: Inventory = field(default_factory=Inventory)
    parts: Mapping[str, Part] = field(default_factory=dict)
    amounts: Amounts = field(default_factory=dict)


class Totals:
    """Remembers the totals of all limits. Threads may ask about different snapshots and forks at the same time."""

    def __init__(self) -> None:
        self._known: Recent[Total] = Recent(_MOST_PARTS, lambda _, total: 1 + len(total.parts))

    def of(self, quota: DeviceQuota, limit: DeviceLimit, snapshot: Snapshot, meter: Meter) -> Total:
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


def _moved(old: Total, held: Map[str, AllocationResult], snapshot: Snapshot, meter: Meter) -> Total:
    """The total of other claims. Only claims whose allocation or pools have changed are measured."""
    inventory, gone, parts = snapshot.inventory, dict(old.parts), {}
    nano = {name: amount.nano for name, amount in old.amounts.items()}
    for uid, allocation in held.items():
        part = gone.get(uid)
        if part is None or not _holds(part, allocation, inventory, is_same=inventory is old.inventory):
            claim = snapshot.claim(uid)
            taken = Taken(NO_SPEC if claim is None else claim.claim.spec, allocation)
            pools = {each.device.pool_id: inventory.pools.get(each.device.pool_id) for each in allocation.results}
            part = Part(allocation, pools, meter.measured(old.limit, [taken]))
            _add(nano, part.amounts, 1)
        else:
            del gone[uid]
        parts[uid] = part
    for part in gone.values():
        _add(nano, part.amounts, -1)
    amounts = {name: Quantity(nano.get(name, 0), hard.format) for name, hard in old.limit.hard.items()}
    return Total(old.limit, held, inventory, parts, amounts)


def _holds(part: Part, allocation: AllocationResult, inventory: Inventory, *, is_same: bool) -> bool:
    """Whether a claim takes the same amounts as before. ``is_same``: the inventory has not changed."""
    if part.allocation is not allocation:
        return False
    return is_same or all(inventory.pools.get(pool_id) is pool for pool_id, pool in part.pools.items())


def _add(nano: dict[str, int], amounts: Amounts, sign: int) -> None:
    for name, amount in amounts.items():
        nano[name] = nano.get(name, 0) + sign * amount.nano
