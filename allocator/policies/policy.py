"""A policy: the order in which devices are tried, which decides who gets which, and the scores of nodes.

Every policy finds an allocation exactly when first-fit finds one.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
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
"""The candidates of an alternative, in the order in which they are tried."""

Sizes: TypeAlias = tuple[tuple[str, int], ...]
"""Each capacity of a device, in units of 10**-9."""


@dataclass(frozen=True, slots=True)
class View:
    """What a policy may read."""

    plan: Plan
    candidates: Candidates
    counters: Counters


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKind:
    """What a policy reads of a free device that suits, in a request for one device.

    Attributes:
        breaks: the device consumes counters, all of them from counter sets from which nothing is taken yet.
        is_short: its counters don't suffice.
        broken: from how many of its counter sets nothing is taken yet.
    """

    sizes: Sizes
    breaks: bool
    is_short: bool
    broken: int


class Scores(Protocol):
    """Turns merits into scores. Only the set of merits decides, not how many nodes have each."""

    def __call__(self, merits: Mapping[K, Merit], /) -> dict[K, int]:
        """The score, 0 to 10, of each node or of any other key."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which devices are taken, and how nodes compare.

    Attributes:
        orders: the order in which candidates are tried; called once per search.
        single: the kind of device that a search by `orders` would take for a request of one device; None if it would
            take none. The argument has each kind of free device with the position of the first device of that kind.
        scores: how nodes compare.
        why: why an allocation compares with all allocations as it does, a phrase for each reason; None: `scores` only
            depends on the preference of alternatives.
    """

    name: str
    orders: Callable[[View], Orders]
    single: Callable[[Mapping[DeviceKind, int]], DeviceKind | None]
    scores: Scores
    why: Callable[[Merit, Sequence[Merit]], Iterator[str]] | None = None


def published(view: View) -> Orders:
    """The order of pools, slices and devices, as upstream has it."""
    order = range(view.candidates.count)
    return lambda _: order


def sizes_of(device: Device) -> Sizes:
    """Each capacity of a device, in units of 10**-9."""
    return tuple([(name, quantity.nano) for name, quantity in device.quantities.items()])


def in_bands(merits: Mapping[K, Merit], fitness: Callable[[Merit], float]) -> dict[K, int]:
    """Scores of 0 to 10 from fitness, 0.0 to 1.0: each level of preference has a band of scores.

    So earlier alternatives of `firstAvailable` count more than anything else (upstream's scorer).
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
