"""Spread: prefer devices and nodes with the least in use, so that pods disturb each other least.

Example: two pods that ask for half a GPU each get two GPUs, on two nodes if there are two.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from allocator.policies.merit import Merit
from allocator.policies.policy import DeviceKind, K, Policy, Range, in_bands, sorted_orders, use_in_words
from allocator.policies.policy_view import PolicyView
from allocator.search.candidates import Alternative


def _emptiest_first(view: PolicyView, _: Alternative, suits: Sequence[int]) -> Sequence[int]:
    return sorted(suits, key=lambda index: (-view.breakage(index), -view.candidates.room(index)))


def _single(positions: Mapping[DeviceKind, int]) -> DeviceKind | None:
    left = (kind for kind in positions if not kind.is_short)
    return min(left, key=lambda kind: (not kind.breaks, positions[kind]), default=None)


def _scores(merits: Mapping[K, Merit]) -> dict[K, int]:
    """The node with the most left free scores highest."""
    free = Range.of(each.free for each in merits.values())
    return in_bands(merits, lambda each: each.free / free.most if free.most else 1.0)


SPREAD: Final = Policy("spread", lambda view: sorted_orders(view, _emptiest_first), _single, _scores, use_in_words)
