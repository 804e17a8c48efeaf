"""Per-device placement (``perDeviceNodeSelection``): does the node reach the device?

If slices are placed as a whole, the node's pools hold only devices that the node reaches.
"""

from collections.abc import Hashable, Sequence
from typing import Final

from allocator.checks.check import Asked, Check, Refusal, Situation
from allocator.model.devices import Placement
from allocator.model.nodes import Node
from allocator.model.slices.device import Device
from allocator.model.slices.slice import Slice
from allocator.node_selectors import placement_matches, placement_of
from allocator.obstacles.obstacle import Obstacle
from allocator.pools import Candidate, NodePool
from allocator.reason import UNREACHABLE
from allocator.usage import DeviceUsage

_REFUSAL: Final = Refusal(UNREACHABLE)


def _is_single(candidate: Candidate) -> bool:
    return candidate.slice.per_device_placement


def _reaches(node: Node, candidate: Candidate) -> bool:
    placement = candidate.device.placement
    return placement is not None and placement_matches(placement, node)


def _speaks(situation: Situation, _: Asked, candidate: Candidate, __: DeviceUsage) -> Refusal | None:
    return _REFUSAL if candidate.slice.per_device_placement and not _reaches(situation.node, candidate) else None


def unreached(origin: Slice, device: Device) -> str:
    """Why no node reaches a device of a pool without problems."""
    name = placement_of(origin, device).node_name
    return f"node {name} is not known" if name else "no known node reaches it"


def _reads(candidate: Candidate) -> Hashable:
    places = _range(candidate.slice.placement), _range(candidate.device.placement)
    return _is_single(candidate), *places, candidate.device.binds_to_node


def _circumstances(view: NodePool, node: Node, _: object) -> Sequence[Hashable]:
    """Which devices the node reaches, if they have placements of their own."""
    return [_reaches(node, each) for each in view.candidates] if "per_device_placement" in view.fields else ()


def _range(placement: Placement | None) -> Hashable:
    """Whether it names a node, and whether its selector has 0, 1 or more terms; without names."""
    if placement is None:
        return None
    terms = placement.node_selector.terms if placement.node_selector is not None else ()
    return bool(placement.node_name), min(len(terms), 2)


PLACEMENT: Final = Check(
    UNREACHABLE,
    _speaks,
    fields=("per_device_placement",),
    words=lambda _, candidate, __: unreached(candidate.slice, candidate.device),
    obstacle=Obstacle(UNREACHABLE, "not reachable from these nodes"),
    reads=_reads,
    circumstances=_circumstances,
    needs_search=_is_single,
)
