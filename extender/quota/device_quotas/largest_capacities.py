"""The largest capacities of published devices: no device takes more of a limit.

They are remembered: on a later snapshot, only pools that have changed are looked at again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from allocator import Inventory, PoolId
from allocator.pools import Pool


@dataclass(frozen=True, slots=True)
class _Seen:
    """The largest capacities in an inventory, by qualified name, in units of 10**-9: of each pool, and of all pools."""

    inventory: Inventory | None = None
    of_pool: Mapping[PoolId, tuple[Pool, Mapping[str, int]]] = field(default_factory=dict)
    of_all: Mapping[str, int] = field(default_factory=dict)


class Largest:
    """Remembers the largest capacities of one cluster. Threads may ask at the same time."""

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
            seen = self._seen = _moved(seen, inventory)
        return seen.of_all


def _moved(old: _Seen, inventory: Inventory) -> _Seen:
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


def qualified(name: str, driver: str) -> str:
    """The name of a capacity with a domain: by default the domain of the driver."""
    return name if "/" in name else f"{driver}/{name}"
