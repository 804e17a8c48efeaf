"""What a policy is: in which order devices are tried, which decides who gets what, and how well nodes suit.

An order never turns yes into no: every policy finds an allocation exactly when first-fit does.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from allocator.checks.counters import Counters
from allocator.model.devices import Device
from allocator.outcome import Merit
from allocator.search.candidates import Alternative, Candidates
from allocator.search.plan import Plan

MAX_SCORE = 10

K = TypeVar("K", bound=Hashable)

Orders: TypeAlias = Callable[[Alternative], Sequence[int]]
"""Candidates of an alternative in the order in which they are to be tried."""

Sizes: TypeAlias = tuple[tuple[str, int], ...]
"""What a device has of each capacity, in units of 10**-9."""


@dataclass(frozen=True, slots=True)
class View:
    """What a policy may look at."""

    plan: Plan
    candidates: Candidates
    counters: Counters


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKind:
    """What free devices that suit have in common, for a request of one device: all that a policy goes by.

    Attributes:
        breaks: they would break counter sets of which nothing is taken yet, and need no others.
        is_short: the counters that they draw on don't suffice.
        broken: how many counter sets they would break.
    """

    sizes: Sizes
    breaks: bool
    is_short: bool
    broken: int


class Scores(Protocol):
    """Node to merit, node to score. Only which merits there are decides, not how many nodes have each."""

    def __call__(self, merits: Mapping[K, Merit], /) -> dict[K, int]:
        """The score, 0 to 10, of each node, or of whatever else has the merit."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which devices are taken, and how nodes compare.

    Attributes:
        orders: in which order candidates are tried; asked once for a search.
        single: for a request of one device: maps each kind of free device to the position of the first of that kind,
            and returns the kind to take, as the order would have it; None if none can be had.
        scores: how well nodes suit, side by side.
    """

    name: str
    orders: Callable[[View], Orders]
    single: Callable[[Mapping[DeviceKind, int]], DeviceKind | None]
    scores: Scores


def published(view: View) -> Orders:
    """The order of pools, slices and devices, as upstream has it."""
    order = range(view.candidates.count)
    return lambda _: order


def sizes_of(device: Device) -> Sizes:
    """Capacities as plain numbers."""
    return tuple([(name, quantity.nano) for name, quantity in device.quantities.items()])


def in_bands(merits: Mapping[K, Merit], fitness: Callable[[Merit], float]) -> dict[K, int]:
    """Scores of 0 to 10 from fitness, 0.0 to 1.0: a band for each level of preference, the fitness decides within.

    Earlier alternatives of `firstAvailable` stand above everything else (upstream's scorer).
    """
    levels = sorted({each.preference for each in merits.values()})
    bands = {}
    for number, level in enumerate(levels):
        low = -(-(MAX_SCORE + 1) * number // len(levels))
        high = -(-(MAX_SCORE + 1) * (number + 1) // len(levels)) - 1
        bands[level] = (min(low, MAX_SCORE), max(low, high))
    scores = {}
    for name, each in merits.items():
        low, high = bands[each.preference]
        scores[name] = min(MAX_SCORE, low + round(fitness(each) * (high - low)))
    return scores
