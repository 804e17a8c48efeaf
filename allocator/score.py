"""How well nodes suit, 0 to 10, compared side by side: what is waste on one node depends on what others offer.

Earlier alternatives of `firstAvailable` stand above everything else (upstream's scorer: 8 - index for each request);
each level of preference has a band of its own. Within a band, a policy may rank by waste.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from allocator.candidates import Alternative, Candidates
from allocator.counters import CounterKey, Counters, demand
from allocator.outcome import Merit
from allocator.usage import NOTHING_USED

MAX_SCORE = 10
_BEST_ALTERNATIVE = 8

K = TypeVar("K", bound=Hashable)


class Scores(Protocol):
    """Node to merit, node to score. Only which merits there are decides, not how many nodes have each."""

    def __call__(self, merits: Mapping[K, Merit], /) -> dict[K, int]:
        """The score of each node, or of whatever else has the merit."""


_CAPACITY, _FREE, _BROKEN = 3, 2, 2
"""How much the parts of waste weigh: too much capacity above nodes left empty and hardware broken up."""


def merit(
    candidates: Candidates, counters: Counters, chosen: Sequence[tuple[Alternative, int]], taken: Sequence[int]
) -> Merit:
    """What speaks for an allocation.

    Args:
        candidates: the devices of the node.
        counters: what is left once it is taken.
        chosen: per request: the alternative, and which one it is.
        taken: the candidates.
    """
    capacity: dict[str, int] = {}
    broken = set()
    own: dict[CounterKey, int] = {}
    for index in taken:
        device = candidates.all[index].device
        for name, quantity in device.quantities.items():
            capacity[name] = capacity.get(name, 0) + quantity.nano
        for key, amount in demand(device):
            own[key] = own.get(key, 0) + amount
    for key, amount in own.items():
        pool, counter_set, _ = key
        if counters.left(pool)[key] + amount == counters.full(pool)[key]:
            broken.add((pool, counter_set))
    return Merit(
        preference=sum(max(_BEST_ALTERNATIVE - option, 1) for a, option in chosen if a.request.name),
        capacity=capacity,
        free=_free_share(candidates, taken),
        broken=len(broken),
    )


def by_preference(merits: Mapping[K, Merit]) -> dict[K, int]:
    """All nodes of one preference alike."""
    return _in_bands(merits, lambda _: 1.0)


def by_waste(merits: Mapping[K, Merit]) -> dict[K, int]:
    """Least waste first: of capacity handed out, of nodes left half empty, of partitioned hardware broken.

    Waste is what a node takes beyond the most thrifty one, as a share of what the most wasteful takes.
    """
    all_merits = merits.values()
    names = {name for each in all_merits for name in each.capacity}
    capacities = {name: _Range.of(each.capacity.get(name, 0) for each in all_merits) for name in names}
    free = _Range.of(each.free for each in all_merits)
    broken = _Range.of(each.broken for each in all_merits)

    def fitness(each: Merit) -> float:
        excess = [capacities[name].excess(each.capacity.get(name, 0)) for name in names]
        capacity = sum(excess) / len(excess) if excess else 0.0
        waste = _CAPACITY * capacity + _FREE * free.excess(each.free) + _BROKEN * broken.excess(each.broken)
        return 1.0 - waste / (_CAPACITY + _FREE + _BROKEN)

    return _in_bands(merits, fitness)


@dataclass(frozen=True, slots=True)
class _Range:
    """The least and the most of something among the nodes."""

    least: float
    most: float

    @classmethod
    def of(cls, amounts: Iterable[float]) -> "_Range":
        known = list(amounts)
        return cls(min(known, default=0.0), max(known, default=0.0))

    def excess(self, amount: float) -> float:
        """0 for the least, towards 1 for the most."""
        return (amount - self.least) / self.most if self.most > 0 else 0.0


def _in_bands(merits: Mapping[K, Merit], fitness: Callable[[Merit], float]) -> dict[K, int]:
    """Divide 0 to 10 into a band for each level of preference; the fitness decides within."""
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


def _free_share(candidates: Candidates, taken: Sequence[int]) -> float:
    """The share of devices in the pools concerned that stays free."""
    pools = candidates.usage.pools
    used = {pool: pools.get(pool, NOTHING_USED) for pool in {candidates.all[i].slice.pool for i in taken}}
    members = [(i, c) for i, c in enumerate(candidates.all) if c.slice.pool in used]
    free = {i for i, c in members if c.device.id.device not in used[c.slice.pool]}
    return len(free.difference(taken)) / len(members) if members else 0.0
