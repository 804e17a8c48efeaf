"""Fragmentation: leave what other pods can use.

Example: pods ask for whole GPUs or for half a GPU, and the CPU of one node with a free GPU is used up. A pod that asks
for half a GPU and no CPU goes there, because no other pod can use that GPU any more.

Source: "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC
2023). The caller sets `Merit.loss`, because a loss depends on what the pods of the cluster ask for, and on the CPU of a
node: `allocator.policies.usable_room`. On one node, devices are taken as by best-fit.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import floor
from typing import Final

from allocator.outcome import Merit
from allocator.policies.best_fit import by_waste, least_waste
from allocator.policies.policy import K, Policy, Range, in_bands, sorted_orders

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
    """Only the nodes with the least loss score highest: other nodes must not reach the same score by rounding."""
    losses = Range.of(each.loss for each in merits.values())
    width = losses.most - losses.least
    return in_bands(merits, lambda each: 1.0 - (each.loss - losses.least) / width if width > 0 else 1.0, floor)


def _why(merit: Merit, every: Sequence[Merit]) -> Iterator[str]:
    losses = Range.of(each.loss for each in every)
    lost = f"other pods can no longer use {merit.loss:.2f} devices"
    if losses.most - losses.least < _SHOWN:
        return
    if merit.loss - losses.least < _SHOWN:
        yield f"wastes the least: {lost} (on the worst node {losses.most:.2f})"
    else:
        yield f"wastes {merit.loss - losses.least:.2f} devices more than the best node: {lost}"
