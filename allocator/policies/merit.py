"""The merit of an allocation: the facts from which policies compute scores.

A new fact is a field of `Merit`. Either only the policy that compares it adds it (`Policy.weigh`), or `merit` computes
it for every policy; then `merit_of_one` does so for a request of one device.
"""

from collections.abc import Sequence
from math import fsum
from typing import Final, NamedTuple

from immutables import Map

from allocator.checks.counters import CounterKey, Counters, counter_demand
from allocator.policies.leftover import NOTHING_LEFT, Leftover
from allocator.search.candidates import Alternative, Candidates

_BEST_ALTERNATIVE: Final = 8
"""Preference of the first alternative of `firstAvailable`; each further one counts 1 less (upstream's scorer)."""


class Merit(NamedTuple):
    """The facts that speak for an allocation; a policy turns the merits of nodes into scores.

    Attributes:
        preference: sum of 8 - index of the alternatives chosen from `firstAvailable`.
        capacity: qualified name to the sum over the devices taken, in units of 10**-9.
        free: the share of the devices of the same pools that stays free, 0 to 1. A shared device counts with the share
            of its capacity that stays free.
        broken: counter sets from which nothing was taken before.
        demand: for each device that is taken, the number of device classes that it belongs to, added up. Only the
            policy `reserve` adds it.
        before, after: what is left on the node without the allocation, and with it; empty unless the policy weighs
            what is left.
        loss: the room, in devices, that other pods can use before the allocation and not after it. Only the caller of
            the allocator knows it.
        optional: how many optional requests are served.
    """

    preference: int = 0
    capacity: Map[str, int] = Map()
    free: float = 0.0
    broken: int = 0
    demand: int = 0
    before: Leftover = NOTHING_LEFT
    after: Leftover = NOTHING_LEFT
    loss: float = 0.0
    optional: int = 0


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
        capacity=Map(capacity),
        free=_free_share(candidates, taken),
        broken=len(broken),
    )


def merit_of_one(sizes: Sequence[tuple[str, int]], broken: int) -> Merit:
    """The merit of an allocation of one device, as `merit` has it, without what depends on the rest of the node.

    Args:
        sizes: the capacities of the device, in units of 10**-9.
        broken: how many of its counter sets have nothing taken yet.
    """
    return Merit(capacity=Map(sizes), broken=broken)


def _free_share(candidates: Candidates, taken: Sequence[int]) -> float:
    """The share of devices that stays free, in the pools of the devices taken."""
    pools = {candidates.all[i].slice.pool for i in taken}
    members = [i for i, c in enumerate(candidates.all) if c.slice.pool in pools]
    gone = {i for i in taken if not candidates.is_shared(i)}
    # fsum: nodes that are equivalent may have their devices in another order
    return fsum([candidates.room(i) for i in members if i not in gone]) / len(members) if members else 0.0
