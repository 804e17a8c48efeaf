"""Counter groups: devices that have counter sets in common, and the devices that a group still offers.

The partitions of one GPU are a counter group. Which kinds of devices a group offers, and what is left of it, depends
on which of its devices are held. That is worked out once for each set of held devices, and shared by all groups that
are equal but for the names of pools and counter sets.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from allocator.checks.counters import CounterKey
from allocator.policies.merit import merit_of_one
from allocator.policies.policy import DeviceKind, Sizes
from allocator.reason import Cause

States: TypeAlias = Sequence[Hashable]
"""Device by device: 0 if it is free, 1 if it is held."""

Offers: TypeAlias = tuple[tuple[int, DeviceKind], ...]
"""Each kind of free device in a group, with the number in the group of the first device of that kind."""

_MAX_KNOWN: Final = 4096
"""Sets of held devices that are remembered for a group; at more, all are forgotten."""


class Facts(NamedTuple):
    """What decides whether a request for one device gets this device.

    Attributes:
        refused: what speaks against the device if it is free; None: nothing.
        if_held: what speaks against the device if it is held.
        is_part: the device consumes counters.
        tally: of the device, if it counts in what is left (`allocator.equivalence.tallies`), else 0.
        draws: the counters that it consumes, and how much, in units of 10**-9.
    """

    sizes: Sizes
    refused: Cause | None
    if_held: Cause
    is_part: bool = False
    tally: int = 0
    draws: tuple[tuple[CounterKey, int], ...] = ()


class GroupState(NamedTuple):
    """A counter group while some of its devices are held.

    Attributes:
        offers: which kinds of devices it offers.
        tally: of the free devices whose counters suffice.
    """

    offers: Offers
    tally: int


class DeviceKinds:
    """One object for each kind of device: equal kinds are identical."""

    def __init__(self) -> None:
        self._known: dict[Hashable, DeviceKind] = {}

    def of(self, device: Facts, left: Mapping[CounterKey, int], full: Mapping[CounterKey, int]) -> DeviceKind:
        """The kind of a device, given what is left of the counters."""
        untouched = [key for key, _ in device.draws if left[key] == full[key]]
        breaks = device.is_part and len(untouched) == len(device.draws)
        is_short = any(left[key] < amount for key, amount in device.draws)
        broken = len({key[:2] for key in untouched})
        known = device.sizes, breaks, is_short, broken
        found = self._known.get(known)
        if found is None:
            merit = merit_of_one(device.sizes, broken)
            found = self._known.setdefault(known, DeviceKind(device.sizes, breaks, is_short, merit))
        return found


@dataclass(slots=True, eq=False)
class CounterGroup:
    """One counter group.

    Attributes:
        positions: the positions of its devices among all devices.
        firsts: for each device, the number of the first device in the group that is equal to it; None: refused.
        full: counter to its full value.
        _states: picks the states of the group's devices from those of all devices.
        _known: the states of the group, by these states of its devices; shared with equal groups.
        _losses: what the group loses of its tally, by these states and the device taken; shared with equal groups.
    """

    positions: tuple[int, ...]
    devices: tuple[Facts, ...]
    firsts: tuple[int | None, ...]
    full: Mapping[CounterKey, int]
    kinds: DeviceKinds
    _states: Callable[[States], Hashable]
    _known: dict[Hashable, GroupState | None]
    _losses: dict[Hashable, int]

    def state(self, states: States) -> GroupState | None:
        """The state of the group, given the states of all devices; None: a counter is overdrawn, a search decides."""
        key = self._states(states)
        try:
            return self._known[key]
        except KeyError:
            pass
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        found = self._known[key] = self._computed([bool(states[position]) for position in self.positions])
        return found

    def taken_by(self, position: int, states: States) -> int:
        """What the group loses of its tally if one more device is held.

        Args:
            position: of the free device, which is in the group, among all devices.
            states: of all devices; no counter is overdrawn.
        """
        key = self._states(states), self.positions.index(position)
        found = self._losses.get(key)
        if found is None:
            if len(self._losses) >= _MAX_KNOWN:
                self._losses.clear()
            held = [bool(states[each]) for each in self.positions]
            later = [is_held or each == position for each, is_held in zip(self.positions, held, strict=True)]
            found = self._losses[key] = self._tally(held, self._left(held)) - self._tally(later, self._left(later))
        return found

    def _computed(self, held: Sequence[bool]) -> GroupState | None:
        left = self._left(held)
        if min(left.values()) < 0:
            return None
        free: dict[int, int] = {}
        for number, (first, is_held) in enumerate(zip(self.firsts, held, strict=True)):
            if not is_held and first is not None:
                free.setdefault(first, number)
        found: dict[DeviceKind, int] = {}
        for first, number in free.items():
            found.setdefault(self.kinds.of(self.devices[first], left, self.full), number)
        return GroupState(tuple((number, kind) for kind, number in found.items()), self._tally(held, left))

    def _left(self, held: Sequence[bool]) -> Mapping[CounterKey, int]:
        """What is left of the counters."""
        left = dict(self.full)
        for device, is_held in zip(self.devices, held, strict=True):
            for key, amount in device.draws if is_held else ():
                left[key] -= amount
        return left

    def _tally(self, held: Sequence[bool], left: Mapping[CounterKey, int]) -> int:
        return sum(
            [
                device.tally
                for device, is_held in zip(self.devices, held, strict=True)
                if device.tally and not is_held and all(left[key] >= amount for key, amount in device.draws)
            ]
        )


def counter_groups(
    devices: Sequence[Facts], full: Mapping[CounterKey, int], kinds: DeviceKinds
) -> Iterator[CounterGroup]:
    """The counter groups of some devices; a device that consumes no counters is in none."""
    known: dict[Hashable, tuple[dict[Hashable, GroupState | None], dict[Hashable, int]]] = {}
    for positions in _related(devices):
        members = tuple([devices[position] for position in positions])
        firsts = tuple([None if device.refused is not None else members.index(device) for device in members])
        own = {key: full[key] for device in members for key, _ in device.draws}
        states, losses = known.setdefault(_without_names(members, own), ({}, {}))
        yield CounterGroup(positions, members, firsts, own, kinds, itemgetter(*positions), states, losses)


def _related(devices: Sequence[Facts]) -> list[tuple[int, ...]]:
    """The positions of devices that have counter sets in common, directly or through other devices."""
    groups: list[tuple[set[Hashable], tuple[int, ...]]] = []
    for position, device in enumerate(devices):
        sets: set[Hashable] = {key[:2] for key, _ in device.draws}
        if sets:
            joined = [group for group in groups if not sets.isdisjoint(group[0])]
            groups = [group for group in groups if sets.isdisjoint(group[0])]
            members = (*sorted(p for _, positions in joined for p in positions), position)
            groups.append((sets.union(*(of_group for of_group, _ in joined)), members))
    return [members for _, members in groups]


def _without_names(devices: Sequence[Facts], full: Mapping[CounterKey, int]) -> Hashable:
    """The devices and their counters, with a number in place of each pool and counter set."""
    numbers: dict[Hashable, int] = {}
    for key in full:
        numbers.setdefault(key[:2], len(numbers))
    renamed = {key: (numbers[key[:2]], key[2]) for key in full}
    return (
        tuple((*device[:-1], tuple((renamed[key], amount) for key, amount in device.draws)) for device in devices),
        tuple((renamed[key], amount) for key, amount in full.items()),
    )
