"""Pack: fill devices and nodes that are in use already, so that whole devices and whole nodes stay free.

Unlike best-fit, pack does not mind how large a device is. Example: two pods that ask for half a GPU each share one GPU,
and a pod for one GPU goes to the node with the fewest free GPUs.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from allocator.policies.merit import Merit
from allocator.policies.policy import DeviceKind, K, Policy, Range, in_bands, sorted_orders, use_in_words
from allocator.policies.policy_view import PolicyView
from allocator.search.candidates import Alternative


def _fullest_first(view: PolicyView, _: Alternative, suits: Sequence[int]) -> Sequence[int]:
    return sorted(suits, key=lambda index: (view.breakage(index), view.candidates.room(index)))


def _single(positions: Mapping[DeviceKind, int]) -> DeviceKind | None:
    left = (kind for kind in positions if not kind.is_short)
    return min(left, key=lambda kind: (kind.breaks, positions[kind]), default=None)


def _scores(merits: Mapping[K, Merit]) -> dict[K, int]:
    """The node with the least left free scores highest, unless the allocation breaks up whole devices."""
    free = Range.of(each.free for each in merits.values())
    broken = Range.of(each.broken for each in merits.values())
    return in_bands(merits, lambda each: 1.0 - (free.excess(each.free) + broken.excess(each.broken)) / 2)


PACK: Final = Policy("pack", lambda view: sorted_orders(view, _fullest_first), _single, _scores, use_in_words)
