"""Counter groups: devices that draw on the same counters, and what they offer depending on which of them are held.

The parts of one GPU are a counter group. What a group offers is worked out once for each set of held devices, and once
for all groups that are equivalent.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from allocator.checks.counters import CounterKey
from allocator.outcome import Cause
from allocator.policies.policy import DeviceKind, Sizes

States: TypeAlias = Sequence[Hashable]
"""Device by device: 0 if it is free, 1 if it is held."""

Offers: TypeAlias = tuple[tuple[int, DeviceKind], ...]
"""Each kind of free device, with the number in the group of the first device of that kind."""

_MOST_KNOWN: Final = 4096
"""Sets of held devices that are remembered of a group; beyond that all are forgotten."""


class Facts(NamedTuple):
    """All that counts of a device.

    Attributes:
        refused: what speaks against it while it is free; None: nothing.
        if_held: what speaks against it while it is held.
        is_part: it says that it draws on counters.
        draws: on which, and how much, in units of 10**-9.
    """

    sizes: Sizes
    refused: Cause | None
    if_held: Cause
    is_part: bool = False
    draws: tuple[tuple[CounterKey, int], ...] = ()


class DeviceKinds:
    """Each kind of device just once, so that kinds can be compared by identity."""

    def __init__(self) -> None:
        self._known: dict[Hashable, DeviceKind] = {}

    def of(self, device: Facts, left: Mapping[CounterKey, int], full: Mapping[CounterKey, int]) -> DeviceKind:
        """The kind of a device when so much is left."""
        touched = [left[key] != full[key] for key, _ in device.draws]
        broken = len({key[:2] for (key, _), is_touched in zip(device.draws, touched, strict=True) if not is_touched})
        values = (
            device.sizes,
            device.is_part and not any(touched),
            any(left[key] < amount for key, amount in device.draws),
            broken,
        )
        return self._known.setdefault(values, DeviceKind(*values))


@dataclass(frozen=True, slots=True, eq=False)
class CounterGroup:
    """Devices that draw on the same counters.

    Attributes:
        positions: which of all devices these are.
        firsts: of each device the number of the first that is equal to it; None: it can't be had.
        full: what there is of the counters.
    """

    positions: tuple[int, ...]
    devices: tuple[Facts, ...]
    firsts: tuple[int | None, ...]
    full: Mapping[CounterKey, int]
    kinds: DeviceKinds
    _states: Callable[[States], Hashable]
    _known: dict[Hashable, Offers | None]

    def offers(self, states: States) -> Offers | None:
        """What can be had; None: a counter is overdrawn, so that the books can't be trusted.

        Args:
            states: of all devices.
        """
        key = self._states(states)
        try:
            return self._known[key]
        except KeyError:
            pass
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        found = self._known[key] = self._worked_out([bool(states[position]) for position in self.positions])
        return found

    def _worked_out(self, held: Sequence[bool]) -> Offers | None:
        left = dict(self.full)
        for device, is_held in zip(self.devices, held, strict=True):
            for key, amount in device.draws if is_held else ():
                left[key] -= amount
        if min(left.values()) < 0:
            return None
        free: dict[int, int] = {}
        for number, (first, is_held) in enumerate(zip(self.firsts, held, strict=True)):
            if not is_held and first is not None:
                free.setdefault(first, number)
        found: dict[DeviceKind, int] = {}
        for first, number in free.items():
            found.setdefault(self.kinds.of(self.devices[first], left, self.full), number)
        return tuple((number, kind) for kind, number in found.items())


def counter_groups(
    devices: Sequence[Facts], full: Mapping[CounterKey, int], kinds: DeviceKinds
) -> Iterator[CounterGroup]:
    """The counter groups of some devices; those that draw on nothing belong to none."""
    known: dict[Hashable, dict[Hashable, Offers | None]] = {}
    for positions in _related(devices):
        members = tuple([devices[position] for position in positions])
        firsts = tuple([None if device.refused is not None else members.index(device) for device in members])
        own = {key: full[key] for device in members for key, _ in device.draws}
        offers = known.setdefault(_signature(members, own), {})
        yield CounterGroup(positions, members, firsts, own, kinds, itemgetter(*positions), offers)


def _related(devices: Sequence[Facts]) -> list[tuple[int, ...]]:
    """The positions of devices that have counter sets in common, directly or by others."""
    found: list[tuple[set[Hashable], tuple[int, ...]]] = []
    for position, device in enumerate(devices):
        sets: set[Hashable] = {key[:2] for key, _ in device.draws}
        if sets:
            mine = [each for each in found if not sets.isdisjoint(each[0])]
            found = [each for each in found if sets.isdisjoint(each[0])]
            members = (*sorted(p for _, each in mine for p in each), position)
            found.append((sets.union(*(of for of, _ in mine)), members))
    return [members for _, members in found]


def _signature(devices: Sequence[Facts], full: Mapping[CounterKey, int]) -> Hashable:
    """Equal for groups that offer the same when the same devices are held: all but the names of counter sets."""
    numbers: dict[Hashable, int] = {}
    for key in full:
        numbers.setdefault(key[:2], len(numbers))
    renamed = {key: (numbers[key[:2]], key[2]) for key in full}
    return (
        tuple((*device[:-1], tuple((renamed[key], amount) for key, amount in device.draws)) for device in devices),
        tuple((renamed[key], amount) for key, amount in full.items()),
    )
