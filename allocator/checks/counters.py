"""Shared counters (KEP-4815): partitions of one device consume the counters of its counter sets."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Final

from allocator.checks.check import Check, Refusal, Undo
from allocator.model.devices import DeviceId, PoolId
from allocator.model.quantity import Quantity
from allocator.model.slices.device import Device
from allocator.obstacles.obstacle import Held, Obstacle, Seen
from allocator.pools import NodePool
from allocator.reason import Cause
from allocator.usage import NOTHING_USED, Usage

CounterKey = tuple[PoolId, str, str]
"""Pool, counter set, counter."""

SHORT: Final = Cause("counters", "not enough shared counters for {request}", rank=40, is_temporary=True, of_choice=True)
_OFF: Final = Cause("partition", "partitionable devices are off, {request} needs them", rank=100)
_GATE: Final = "DRAPartitionableDevices"
_REFUSAL: Final = Refusal(_OFF)

PARTITION: Final = Check(
    _OFF,
    lambda _, __, candidate, ___: _REFUSAL if candidate.device.consumes_counters else None,
    fields=("consumes_counters",),
    gate=("partitionable_devices", False),
    obstacle=Obstacle(_OFF, f"that consume shared counters, but the feature gate {_GATE} is off", gate=_GATE),
)


class Counters:
    """The rest of the counters in the pools of one node; a pool is looked at when it is first needed."""

    def __init__(self, pools: Mapping[PoolId, NodePool], usage: Usage) -> None:
        self._pools = pools
        self._usage = usage
        self._full: dict[PoolId, dict[CounterKey, int]] = {}
        self._left: dict[PoolId, dict[CounterKey, int]] = {}
        self._overdrawn: dict[PoolId, CounterKey | None] = {}

    def left(self, pool: PoolId) -> Mapping[CounterKey, int]:
        """What is left, in units of 10**-9; negative if the counter is overdrawn."""
        if pool not in self._left:
            left = self._left[pool] = self._initial(self._pools[pool])
            self._overdrawn[pool] = next((key for key, amount in left.items() if amount < 0), None)
        return self._left[pool]

    def full(self, pool: PoolId) -> Mapping[CounterKey, int]:
        """The full values, in units of 10**-9."""
        if pool not in self._full:
            self._full[pool] = full(self._pools[pool])
        return self._full[pool]

    def refusal(self, device: Device, /) -> Refusal | None:
        """The first counter that does not suffice for the device."""
        key = self._shortage(device) if device.consumes_counters else None
        return None if key is None else Refusal(SHORT, f"{key[1]}/{key[2]}")

    def obstacles(self, device: Device, /) -> Iterator[Seen]:
        """`refusal` for people, with what is needed and what is left."""
        key = self._shortage(device) if device.consumes_counters else None
        if key is None:
            return
        pool, counter_set, counter = key
        full, name = self._pools[pool].counter_sets[counter_set][counter], f"{counter_set}/{counter}"
        need = Quantity.from_nano(dict(counter_demand(device)).get(key, 0), full.format)
        rest = Quantity.from_nano(self.left(pool)[key], full.format)
        text = f"short of shared counter {name}: {need} needed"
        short = Obstacle(SHORT, text, subject=name, need=str(need), held=Held.SHARED)
        yield Seen(short, ((name, f"{rest} of {full} left"),))

    def _shortage(self, device: Device) -> CounterKey | None:
        """An overdrawn counter refuses all devices of its pool, as upstream does: the pool's counters are wrong."""
        left = self.left(device.id.pool_id)
        overdrawn = self._overdrawn[device.id.pool_id]
        if overdrawn is not None:
            return overdrawn
        for key, amount in counter_demand(device):
            if left[key] < amount:
                return key
        return None

    def take(self, device: Device, /) -> Undo | None:
        """Consume what the device needs; returns the undo."""
        if not device.consumes_counters:
            return None
        self.left(device.id.pool_id)
        left = self._left[device.id.pool_id]
        needs = counter_demand(device)
        for key, amount in needs:
            left[key] -= amount

        def undo() -> None:
            for key, amount in needs:
                left[key] += amount

        return undo

    def _initial(self, pool: NodePool) -> dict[CounterKey, int]:
        left = dict(self.full(pool.id))
        used = self._usage.pools.get(pool.id, NOTHING_USED)
        if used:
            for device in (*(c.device for c in pool.candidates), *pool.elsewhere):
                if device.id.device in used:
                    for key, amount in counter_demand(device):
                        left[key] -= amount
        return left


def drawn_by(device: Device) -> Hashable:
    """What a device consumes, set by set, in units of 10**-9, without the name of the pool."""
    return tuple(
        [
            (each.counter_set, tuple([(name, amount.nano) for name, amount in each.counters.items()]))
            for each in device.consumes_counters
        ]
    )


def full(pool: NodePool) -> dict[CounterKey, int]:
    """The full values of a pool's counters, in units of 10**-9."""
    return {
        (pool.id, name, counter): amount.nano
        for name, counters in pool.counter_sets.items()
        for counter, amount in counters.items()
    }


def counter_demand(device: Device) -> tuple[tuple[CounterKey, int], ...]:
    """What a device consumes, in units of 10**-9: one entry per counter, although a set may be named twice."""
    total: dict[CounterKey, int] = {}
    pool = device.id.pool_id
    for consumed in device.consumes_counters:
        for counter, amount in consumed.counters.items():
            key = (pool, consumed.counter_set, counter)
            total[key] = total.get(key, 0) + amount.nano
    return tuple(total.items())


def competitors(device: Device, pool: NodePool) -> Iterator[DeviceId]:
    """The device itself, and the other devices of its pool that draw on the same counter sets."""
    yield device.id
    sets = {each.counter_set for each in device.consumes_counters}
    for other in (*(each.device for each in pool.candidates), *pool.elsewhere) if sets else ():
        if other.id != device.id and not sets.isdisjoint(each.counter_set for each in other.consumes_counters):
            yield other.id
