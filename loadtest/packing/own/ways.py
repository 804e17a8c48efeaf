"""The ways in which a machine can serve pods, as numbers: what each way takes of what the machine has.

It shares no code with the allocator, so that a bound is independent of what it judges.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Final, TypeAlias

from loadtest.packing.own.scenario import Ask, Device, Machine, PodKind

Resource: TypeAlias = tuple[str, str]
"""A counter; or a device and an amount that it has: a capacity of a shared device, or itself."""

Take: TypeAlias = Mapping[Resource, int]

_ITSELF: Final = ""


def supply(machine: Machine) -> Take:
    """What an empty machine has, in the order in which its driver publishes it."""
    own = {
        (device.name, name): amount
        for device in machine.devices
        for name, amount in (device.capacity if device.shared else {_ITSELF: 1}).items()
    }
    return {**machine.counters, **own}


def ways(machine: Machine, kind: PodKind) -> tuple[Take, ...]:
    """What a pod can take; of two ways, none takes as much as the other or more of everything."""
    found: list[Take] = []
    has = supply(machine)
    for values in _groups(machine, kind):
        choices = [combinations([each for each in values if ask.suits(each)], ask.count) for ask in kind.asks]
        takes = (_take(machine, kind.asks, chosen) for chosen in product(*choices))
        found += [take for take in takes if all(amount <= has[resource] for resource, amount in take.items())]
    least: list[Take] = []
    for take in sorted(found, key=lambda each: sum(each.values())):
        if not any(_within(other, take) for other in least):
            least.append(take)
    return tuple(least)


def _groups(machine: Machine, kind: PodKind) -> Iterator[Sequence[Device]]:
    """The devices that may serve one pod together."""
    if not kind.match:
        yield machine.devices
        return
    for value in dict.fromkeys(device.value(kind.match) for device in machine.devices):
        if value is not None:
            yield [device for device in machine.devices if device.value(kind.match) == value]


def _take(machine: Machine, asks: Sequence[Ask], chosen: Sequence[Sequence[Device]]) -> Take:
    """What devices take, one tuple for each request."""
    found: dict[Resource, int] = {}
    for ask, devices in zip(asks, chosen, strict=True):
        for device in devices:
            for resource, amount in (*device.counters.items(), *_own(machine, device, ask)):
                found[resource] = found.get(resource, 0) + amount
    return found


def _own(machine: Machine, device: Device, ask: Ask) -> Iterator[tuple[Resource, int]]:
    """What a device takes apart from counters: nothing if they keep it from a second claim anyway.

    So partitions compare by their counters alone.
    """
    if device.shared:
        yield from (((device.name, name), ask.share.get(name, amount)) for name, amount in device.capacity.items())
    elif all(2 * amount <= machine.counters[counter] for counter, amount in device.counters.items()):
        yield (device.name, _ITSELF), 1


def _within(one: Take, other: Take) -> bool:
    return all(other.get(resource, 0) >= amount for resource, amount in one.items())
