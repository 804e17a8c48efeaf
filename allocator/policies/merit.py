"""The merit of an allocation."""

from collections.abc import Sequence
from math import fsum
from typing import Final

from allocator.checks.counters import CounterKey, Counters, counter_demand
from allocator.outcome import Merit
from allocator.search.candidates import Alternative, Candidates

_BEST_ALTERNATIVE: Final = 8
"""Preference of the first alternative of `firstAvailable`; each further one counts 1 less (upstream's scorer)."""


def merit(
    candidates: Candidates, counters: Counters, chosen: Sequence[tuple[Alternative, int]], taken: Sequence[int]
) -> Merit:
    """The merit of an allocation.

    Args:
        candidates: the devices of the node.
        counters: what is left after the allocation.
        chosen: per request, the alternative and its position.
        taken: the candidates that were taken.
    """
    capacity: dict[str, int] = {}
    broken = set()
    own: dict[CounterKey, int] = {}
    for index in taken:
        device = candidates.all[index].device
        for name, quantity in device.quantities.items():
            capacity[name] = capacity.get(name, 0) + quantity.nano
        for key, amount in counter_demand(device):
            own[key] = own.get(key, 0) + amount
    for key, amount in own.items():
        pool, counter_set, _ = key
        if counters.left(pool)[key] + amount == counters.full(pool)[key]:
            broken.add((pool, counter_set))
    return Merit(
        preference=sum([max(_BEST_ALTERNATIVE - option, 1) for a, option in chosen if a.request.name]),
        capacity=capacity,
        free=_free_share(candidates, taken),
        broken=len(broken),
    )


def _free_share(candidates: Candidates, taken: Sequence[int]) -> float:
    """The share of devices that stays free, in the pools of the devices taken."""
    pools = {candidates.all[i].slice.pool for i in taken}
    members = [i for i, c in enumerate(candidates.all) if c.slice.pool in pools]
    gone = {i for i in taken if not candidates.is_shared(i)}
    # fsum: nodes that are equivalent may have their devices in another order
    return fsum([candidates.room(i) for i in members if i not in gone]) / len(members) if members else 0.0
