"""Usage: what allocated claims hold, per pool and device. A change makes a new value that shares the rest."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from immutables import Map

from allocator.model.allocations import AllocationResult, DeviceResult
from allocator.model.devices import DeviceId, PoolId


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """The use of one device: what is held of it.

    Attributes:
        holders: how many allocations hold it exclusively; more than one is a double allocation.
        shares: ids of the shares held.
        consumed: capacity name to the amount consumed by all shares, in units of 10**-9.
    """

    holders: int = 0
    shares: frozenset[str] = frozenset()
    consumed: Map[str, int] = field(default_factory=Map)

    @property
    def is_free(self) -> bool:
        """Whether nothing is held."""
        return not self.holders and not self.shares and not self.consumed

    @property
    def has_shares(self) -> bool:
        """Whether a share of it is held."""
        return bool(self.shares or self.consumed)

    def _consume(self, amounts: Iterable[tuple[str, int]]) -> Map[str, int]:
        consumed = self.consumed
        for name, nano in amounts:
            left = consumed.get(name, 0) + nano
            if left:
                consumed = consumed.set(name, left)
            elif name in consumed:
                consumed = consumed.delete(name)
        return consumed


FREE = DeviceUsage()
PoolUsage = Map[str, DeviceUsage]
NOTHING_USED: PoolUsage = Map()

_MOST_TOUCHED: Final = 64
"""Changes after which a usage counts as a new origin."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Pool to device name to what is held of the device; free devices are left out."""

    pools: Map[PoolId, PoolUsage] = field(default_factory=Map)
    _origin: Map[PoolId, PoolUsage] | None = field(default=None, repr=False, compare=False)
    """The pools of an earlier usage, from which this one was made by few changes."""
    _touched: tuple[PoolId, ...] = field(default=(), repr=False, compare=False)
    """The pools that these changes concern."""

    @classmethod
    def of(
        cls,
        devices: Iterable[DeviceId] = (),
        shares: Iterable[tuple[DeviceId, str]] = (),
        consumed: Mapping[DeviceId, Mapping[str, int]] | None = None,
    ) -> "Usage":
        """The usage by what is held exclusively, the shares, and the capacity (units of 10**-9) consumed by shares."""
        usage = cls()
        for device in devices:
            usage = usage._changed(device, holders=1)
        for device, share in shares:
            usage = usage._changed(device, add=share)
        for device, amounts in (consumed or {}).items():
            usage = usage._changed(device, amounts=tuple(amounts.items()))
        return usage

    def device(self, device: DeviceId) -> DeviceUsage:
        """What is held of a device."""
        return self.pools.get(device.pool_id, NOTHING_USED).get(device.device, FREE)

    def differing(self, before: "Usage") -> set[PoolId]:
        """The pools in which something else is held than in another usage. It is quick if few changes lie between."""
        now, then = self.pools, before.pools
        if self._origin is not None and (self._origin is before._origin or self._origin is then):
            near = {*self._touched, *before._touched}
        else:
            near = {*now, *then}
        return {pool for pool in near if now.get(pool) is not then.get(pool)}

    def with_pool(self, pool: PoolId, used: PoolUsage) -> "Usage":
        """The usage with all that is held of a pool replaced."""
        if not used and pool not in self.pools:
            return self
        pools = self.pools.set(pool, used) if used else self.pools.delete(pool)
        if self._origin is None or len(self._touched) == _MOST_TOUCHED:
            return Usage(pools, self.pools, (pool,))
        return Usage(pools, self._origin, (*self._touched, pool))

    def with_allocation(self, allocation: AllocationResult) -> "Usage":
        """The usage with an allocation added. Admin access holds nothing."""
        return self._applied(allocation, sign=1)

    def without_allocation(self, allocation: AllocationResult) -> "Usage":
        """Without an allocation that was added before."""
        return self._applied(allocation, sign=-1)

    def _applied(self, allocation: AllocationResult, sign: int) -> "Usage":
        usage = self
        for result in allocation.results:
            if result.admin_access:
                continue
            if result.share_id is None:
                usage = usage._changed(result.device, holders=sign)
            else:
                add, drop = (result.share_id, None) if sign > 0 else (None, result.share_id)
                usage = usage._changed(result.device, add=add, drop=drop, amounts=_amounts(result, sign))
        return usage

    def _changed(
        self,
        device: DeviceId,
        *,
        holders: int = 0,
        add: str | None = None,
        drop: str | None = None,
        amounts: tuple[tuple[str, int], ...] = (),
    ) -> "Usage":
        pool_id = device.pool_id
        pool = self.pools.get(pool_id, NOTHING_USED)
        old = pool.get(device.device, FREE)
        shares = (old.shares | {add}) if add else (old.shares - {drop}) if drop else old.shares
        new = DeviceUsage(old.holders + holders, shares, old._consume(amounts))
        if not new.is_free:
            pool = pool.set(device.device, new)
        elif device.device in pool:
            pool = pool.delete(device.device)
        return self.with_pool(pool_id, pool)


def _amounts(result: DeviceResult, sign: int) -> tuple[tuple[str, int], ...]:
    return tuple((name, sign * amount.nano) for name, amount in (result.consumed_capacity or {}).items())
