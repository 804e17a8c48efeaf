"""Fragmentation: leave what other pods can use.

Example: pods ask for whole GPUs or for half a GPU, and the CPU of one node with a free GPU is used up. A pod that asks
for half a GPU and no CPU goes there, because no other pod can use that GPU any more.

Source: "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC
2023). The caller sets `Merit.loss`, because a loss depends on what the pods of the cluster ask for, and on the CPU of a
node: `allocator.policies.usable_room`. On one node, devices are taken as by best-fit, and best-fit decides between
nodes with equal losses.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import floor
from typing import Final

from allocator.policies.best_fit import by_waste, least_waste, thrift, waste_in_words
from allocator.policies.merit import Merit
from allocator.policies.policy import K, Policy, Range, in_bands, sorted_orders

_WASTEFUL: Final = 0.95
"""Fitness of nodes with the least loss where best-fit would waste more than on another of them: a score of 9."""

_LOSSY: Final = 0.9
"""Fitness of other nodes, at most: a score of 8, as it is never reached."""

_SHOWN: Final = 0.005
"""Losses that differ by less than this are equal in words."""


def fragmentation(reads: Sequence[str] = ()) -> Policy:
    """The policy.

    Args:
        reads: the attributes that tell devices apart: those that selectors of pods read. Qualified names.
    """
    return Policy(
        "fragmentation",
        lambda view: sorted_orders(view, by_waste),
        least_waste,
        _scores,
        _why,
        weighs_leftover=True,
        reads=tuple(sorted(reads)),
    )


def _scores(merits: Mapping[K, Merit]) -> dict[K, int]:
    """The scores of nodes: those with the least loss, and of these with the least waste, have the highest ones.

    Nodes with more loss must not reach the same score by rounding. If all losses are equal, best-fit decides alone.
    """
    losses = Range.of(each.loss for each in merits.values())
    width = losses.most - losses.least
    equal = _least(merits.values())
    thrift_of = thrift(equal)
    if width == 0:
        return in_bands(merits, thrift_of)
    thrifts = {id(each): thrift_of(each) for each in equal}
    most = max(thrifts.values(), default=0.0)

    def fitness(each: Merit) -> float:
        if each.loss > losses.least:
            return _LOSSY * (1.0 - (each.loss - losses.least) / width)
        return 1.0 if thrifts[id(each)] == most else _WASTEFUL

    return in_bands(merits, fitness, floor)


def _least(merits: Collection[Merit]) -> Sequence[Merit]:
    """The nodes with the least loss."""
    least = min((each.loss for each in merits), default=0.0)
    return [each for each in merits if each.loss == least]


def _why(merit: Merit, every: Sequence[Merit]) -> Iterator[str]:
    losses = Range.of(each.loss for each in every)
    lost = f"other pods can no longer use {merit.loss:.2f} devices"
    if merit.loss - losses.least >= _SHOWN:
        yield f"wastes {merit.loss - losses.least:.2f} devices more than the best node: {lost}"
        return
    if losses.most - losses.least >= _SHOWN:
        yield f"wastes the least: {lost} (on the worst node {losses.most:.2f})"
    yield from waste_in_words(merit, _least(every), "nodes that waste the least")
