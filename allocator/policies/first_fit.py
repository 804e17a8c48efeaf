"""First-fit: upstream's choice of devices. Nodes with the same preference get the same score."""

from collections.abc import Mapping
from typing import Final

from allocator.policies.merit import Merit
from allocator.policies.policy import DeviceKind, K, Policy, in_bands, published


def _first(positions: Mapping[DeviceKind, int]) -> DeviceKind | None:
    return min((kind for kind in positions if not kind.is_short), key=positions.__getitem__, default=None)


def _scores(merits: Mapping[K, Merit]) -> dict[K, int]:
    return in_bands(merits, None)


FIRST_FIT: Final = Policy("first-fit", published, _first, _scores)
