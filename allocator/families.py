"""Devices that draw on the same counters, and what they have to offer depending on which of them are held.

Parts of one GPU are a family. What it offers is worked out once for each choice of its devices that are held, and once
for all families that are alike.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from allocator.counters import CounterKey
from allocator.outcome import Cause
from allocator.policy import Choice, Sizes

States: TypeAlias = Sequence[Hashable]
"""Device by device: 0 if it is free, 1 if it is held."""

Offers: TypeAlias = tuple[tuple[int, Choice], ...]
"""Of devices that are alike the first that is free: its number in the family, and what it is like."""

_MOST_KNOWN: Final = 4096
"""Choices of held devices that are remembered of a family; beyond that all are forgotten."""


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


class Choices:
    """What devices are like, each of it just once, so that it can be told by identity."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Choice] = {}

    def of(self, device: Facts, left: Mapping[CounterKey, int], full: Mapping[CounterKey, int]) -> Choice:
        """What a device is like when so much is left."""
        touched = [left[key] != full[key] for key, _ in device.draws]
        broken = len({key[:2] for (key, _), is_touched in zip(device.draws, touched, strict=True) if not is_touched})
        values = (
            device.sizes,
            device.is_part and not any(touched),
            any(left[key] < amount for key, amount in device.draws),
            broken,
        )
        return self._known.setdefault(values, Choice(*values))


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Devices that draw on the same counters.

    Attributes:
        places: which of all devices these are.
        kinds: of each device the number of the first that is like it; None: it can't be had.
        full: what there is of the counters.
    """

    places: tuple[int, ...]
    devices: tuple[Facts, ...]
    kinds: tuple[int | None, ...]
    full: Mapping[CounterKey, int]
    choices: Choices
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
        found = self._known[key] = self._worked_out([bool(states[place]) for place in self.places])
        return found

    def _worked_out(self, held: Sequence[bool]) -> Offers | None:
        left = dict(self.full)
        for device, is_held in zip(self.devices, held, strict=True):
            for key, amount in device.draws if is_held else ():
                left[key] -= amount
        if min(left.values()) < 0:
            return None
        free: dict[int, int] = {}
        for number, (kind, is_held) in enumerate(zip(self.kinds, held, strict=True)):
            if not is_held and kind is not None:
                free.setdefault(kind, number)
        firsts: dict[Choice, int] = {}
        for kind, number in free.items():
            firsts.setdefault(self.choices.of(self.devices[kind], left, self.full), number)
        return tuple((number, choice) for choice, number in firsts.items())


def families_of(devices: Sequence[Facts], full: Mapping[CounterKey, int], choices: Choices) -> Iterator[Family]:
    """The families among devices; those that draw on nothing belong to none."""
    known: dict[Hashable, dict[Hashable, Offers | None]] = {}
    for places in _related(devices):
        members = tuple([devices[place] for place in places])
        kinds = tuple([None if device.refused is not None else members.index(device) for device in members])
        own = {key: full[key] for device in members for key, _ in device.draws}
        offers = known.setdefault(_likeness(members, own), {})
        yield Family(places, members, kinds, own, choices, itemgetter(*places), offers)


def _related(devices: Sequence[Facts]) -> list[tuple[int, ...]]:
    """The places of devices that have counter sets in common, directly or by others."""
    found: list[tuple[set[Hashable], tuple[int, ...]]] = []
    for place, device in enumerate(devices):
        sets: set[Hashable] = {key[:2] for key, _ in device.draws}
        if sets:
            mine = [each for each in found if not sets.isdisjoint(each[0])]
            found = [each for each in found if sets.isdisjoint(each[0])]
            found.append((sets.union(*(of for of, _ in mine)), (*sorted(p for _, each in mine for p in each), place)))
    return [places for _, places in found]


def _likeness(devices: Sequence[Facts], full: Mapping[CounterKey, int]) -> Hashable:
    """Equal for families that offer the same when the same are held: all but the names of counter sets."""
    numbers: dict[Hashable, int] = {}
    for key in full:
        numbers.setdefault(key[:2], len(numbers))
    renamed = {key: (numbers[key[:2]], key[2]) for key in full}
    return (
        tuple((*device[:-1], tuple((renamed[key], amount) for key, amount in device.draws)) for device in devices),
        tuple((renamed[key], amount) for key, amount in full.items()),
    )
