"""Policies: in which order devices are tried, which decides who gets what, and how well a node suits.

An order never turns yes into no: every policy finds an allocation exactly when first-fit does.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from allocator.candidates import SUITS, UNJUDGED, Alternative, Candidates
from allocator.counters import Counters, demand
from allocator.model import ConstraintKind
from allocator.plan import Plan
from allocator.quantity import Quantity
from allocator.score import Scores, by_preference, by_waste


@dataclass(frozen=True, slots=True)
class View:
    """What a policy may look at."""

    plan: Plan
    candidates: Candidates
    counters: Counters


Orders = Callable[[Alternative], Sequence[int]]
"""Candidates of an alternative in the order in which they are to be tried."""

Sizes: TypeAlias = tuple[tuple[str, int], ...]
"""What a device has of each capacity, in units of 10**-9."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What devices are like that are free and suit, where one is needed and nothing else counts.

    Attributes:
        breaks: they would break counter sets of which nothing is taken yet, and need no others.
        is_short: the counters that they draw on don't suffice.
        broken: how many counter sets they would break.
    """

    sizes: Sizes
    breaks: bool
    is_short: bool
    broken: int


@dataclass(frozen=True, slots=True)
class Policy:
    """Which devices are taken, and how nodes compare.

    Attributes:
        orders: in which order candidates are tried; asked once for a search.
        single: where one device is needed and nothing else counts: like which of those there are it will be. They come
            with the place of the first; None if none can be had. It is the first in order that can be.
    """

    name: str
    orders: Callable[[View], Orders]
    single: Callable[[Mapping[Choice, int]], Choice | None]
    scores: Scores


def _first_fit(view: View) -> Orders:
    published = range(view.candidates.count)
    return lambda _: published


def _best_fit(view: View) -> Orders:
    """Least waste first; as published where an error might be met, or the order decides, so that yes stays yes."""
    alternatives = [a for slot in view.plan.slots for a in slot.alternatives]
    if view.plan.constrains_all:
        return _first_fit(view)
    try:
        orders = {id(a): _by_waste(view, a) for a in alternatives}
    except UNJUDGED:
        return _first_fit(view)
    return lambda alternative: orders[id(alternative)]


def _first(places: Mapping[Choice, int]) -> Choice | None:
    return min((choice for choice in places if not choice.is_short), key=places.__getitem__, default=None)


def _least_waste(places: Mapping[Choice, int]) -> Choice | None:
    left = [choice for choice in places if not choice.is_short]
    if len(left) < 2:
        return left[0] if left else None
    largest = _largest(choice.sizes for choice in places)
    return min(left, key=lambda choice: (choice.breaks, _waste(choice.sizes, largest), places[choice]))


FIRST_FIT = Policy("first-fit", _first_fit, _first, by_preference)
"""Upstream's choice, device for device."""

BEST_FIT = Policy("best-fit", _best_fit, _least_waste, by_waste)
"""Tight groups first, then devices of partitioned hardware that is broken already, then small ones."""

POLICIES: Mapping[str, Policy] = {p.name: p for p in (FIRST_FIT, BEST_FIT)}


def _by_waste(view: View, alternative: Alternative) -> Sequence[int]:
    candidates = view.candidates
    suits = [i for i in range(candidates.count) if candidates.judge(alternative, i) is SUITS]
    if len(suits) < 2:
        return suits
    groups = _group_sizes(view, alternative, suits)
    sizes = {i: sizes_of(candidates.all[i].device.quantities) for i in suits}
    largest = _largest(sizes.values())
    wastes = {i: _waste(_left_of(candidates, i, of_device), largest) for i, of_device in sizes.items()}
    return sorted(suits, key=lambda i: (groups.get(i, 0), _breakage(view, i), wastes[i]))


def _group_sizes(view: View, alternative: Alternative, suits: Sequence[int]) -> dict[int, int]:
    """For matchAttribute: how many candidates have the device's value; a tight group is used up first."""
    sizes: dict[int, int] = {}
    for _, spec in alternative.covering:
        values = {i: view.candidates.values(alternative, i, spec.attribute) for i in suits}
        if spec.kind is not ConstraintKind.MATCH:
            continue
        having = Counter(value for each in values.values() for value in each)
        for index, each in values.items():
            sizes[index] = sizes.get(index, 0) + min((having[v] for v in each), default=0)
    return sizes


def _breakage(view: View, index: int) -> int:
    """1 for a device that would break counter sets of which nothing is taken yet."""
    device = view.candidates.all[index].device
    if not device.consumes_counters:
        return 0
    left = view.counters.left(device.id.pool_id)
    full = view.counters.full(device.id.pool_id)
    return int(all(left[key] == full[key] for key, _ in demand(device)))


def sizes_of(quantities: Mapping[str, Quantity]) -> Sizes:
    """Capacities as plain numbers."""
    return tuple([(name, quantity.nano) for name, quantity in quantities.items()])


def _largest(devices: Iterable[Sizes]) -> dict[str, int]:
    """The most that a device has of each capacity."""
    largest: dict[str, int] = {}
    for sizes in devices:
        for name, size in sizes:
            largest[name] = max(largest.get(name, 0), size)
    return largest


def _left_of(candidates: Candidates, index: int, sizes: Sizes) -> Sizes:
    """What a device has; of a shared one, what is still free of it."""
    if not candidates.is_shared(index):
        return sizes
    used = candidates.usage.device(candidates.all[index].device.id).consumed
    return tuple([(name, size - (used.get(name, 0) or used.get(name.partition("/")[2], 0))) for name, size in sizes])


def _waste(left: Sizes, largest: Mapping[str, int]) -> float:
    """What a device has, by the largest of its kind."""
    return sum([size / largest[name] for name, size in left if largest[name] > 0])
