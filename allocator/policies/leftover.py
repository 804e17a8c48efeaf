"""The leftover of a node: the devices that are left on it, by model and room."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from allocator.checks.counters import CounterKey, counter_demand
from allocator.model.devices import AttributeValue, Capacity
from allocator.model.slices.device import Device
from allocator.policies.policy_view import PolicyView

_DIGITS = 9
"""Rooms that differ only in the rounding of fractions are equal."""


class DeviceModel(NamedTuple):
    """The kind of a device in a policy that compares what allocations leave.

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


def leftover(view: PolicyView, taken: Collection[int], reads: Sequence[str]) -> Leftover:
    """What is left on a node now.

    Args:
        view: the node, with the shares and counters that the present search has taken.
        taken: the candidates that the search has taken.
        reads: attributes by which devices are told apart.
    """
    found: Counter[tuple[DeviceModel, float]] = Counter()
    models: dict[object, DeviceModel] = {}
    pools = {each.device.id.pool_id for each in view.candidates.all if each.device.consumes_counters}
    parts = Parts({key: amount for pool in pools for key, amount in view.counters.full(pool).items()})
    for index, candidate in enumerate(view.candidates.all):
        room = _room(view, index, is_taken=index in taken)
        if room > 0:
            device = candidate.device
            part, values = parts.of(device), _values(device, reads)
            # Devices of one slice share equal maps, so few capacities are compared.
            key = (device.id.driver, device.allow_multiple_allocations, id(device.capacity), part, values)
            model = models.get(key)
            if model is None:
                model = models[key] = model_of(device, reads, part, is_shared=view.candidates.is_shared(index))
            found[model, round(room, _DIGITS)] += 1
    return frozenset(found.items())


class Parts:
    """The shares of their hardware that partitions take.

    Args:
        full: the full values of counters.
    """

    def __init__(self, full: Mapping[CounterKey, int]) -> None:
        self._full = full
        self._sizes = Counter(key[:2] for key, amount in full.items() if amount > 0)

    def of(self, device: Device) -> float:
        """The mean of the shares that a device takes of the counters in its counter sets; 0 if it consumes none."""
        if not device.consumes_counters:
            return 0.0
        demand = [(key, amount) for key, amount in counter_demand(device) if self._full[key] > 0]
        counters = sum([self._sizes[each] for each in {key[:2] for key, _ in demand}])
        shares = sum([amount / self._full[key] for key, amount in demand])
        return round(min(1.0, shares / counters), _DIGITS) if counters else 0.0


def model_of(device: Device, reads: Sequence[str], part: float, *, is_shared: bool) -> DeviceModel:
    """The model of a device.

    Args:
        device: the device.
        reads: attributes by which devices are told apart.
        part: as `Parts.of`.
        is_shared: whether several claims may hold the device.
    """
    return DeviceModel(device.id.driver, is_shared, tuple(device.capacity.items()), _values(device, reads), part)


def _room(view: PolicyView, index: int, *, is_taken: bool) -> float:
    """The room of a device; 0 if its counters do not suffice any more."""
    candidates = view.candidates
    if is_taken and not candidates.is_shared(index):
        return 0.0
    room, device = candidates.room(index), candidates.all[index].device
    if room > 0 and device.consumes_counters and not candidates.capacities.is_shared(device.id):
        return 0.0 if view.counters.refusal(device) else room
    return room


def _values(device: Device, reads: Sequence[str]) -> tuple[tuple[str, str, AttributeValue], ...]:
    """Name, type and value: in Python ``True == 1``."""
    values = ((name, device.attributes.get(name)) for name in reads)
    return tuple([(name, type(value).__name__, value) for name, value in values if value is not None])
