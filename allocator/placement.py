"""Devices that are placed one by one (``perDeviceNodeSelection``): can the node reach them?"""

from collections.abc import Hashable, Sequence

from allocator.check import Check, Refusal
from allocator.model import Node, Placement
from allocator.nodes import placement_matches
from allocator.outcome import Cause
from allocator.pools import Candidate, NodePool
from allocator.usage import DeviceUsage

_UNREACHABLE = Refusal(Cause.UNREACHABLE)


class PlacementCheck(Check):
    """Is the device for the node? Where devices are placed by slices, the node's pools have no others."""

    __slots__ = ("_node",)
    cause = Cause.UNREACHABLE

    def __init__(self, node: Node) -> None:
        self._node = node

    def speaks(self, candidate: Candidate, _: DeviceUsage, /) -> Refusal | None:
        """It is placed by itself, and on other nodes."""
        return _UNREACHABLE if candidate.slice.per_device_placement and not self._reaches(candidate) else None

    @staticmethod
    def reads(candidate: Candidate, /) -> Hashable:
        """How slice and device are placed, and whether a claim is bound to the node."""
        device, published = candidate.device, candidate.slice
        places = _range(published.placement), _range(device.placement)
        return published.per_device_placement, *places, device.binds_to_node

    def circumstances(self, view: NodePool, /) -> Sequence[Hashable]:
        """Which devices the node reaches, if they are placed one by one."""
        return [self._reaches(c) for c in view.candidates] if any(map(self.needs_search, view.candidates)) else ()

    @staticmethod
    def needs_search(candidate: Candidate, /) -> bool:
        """Where devices are placed one by one, nodes with the same devices differ."""
        return candidate.slice.per_device_placement

    def _reaches(self, candidate: Candidate) -> bool:
        placement = candidate.device.placement
        return placement is not None and placement_matches(placement, self._node)


def _range(placement: Placement | None) -> Hashable:
    """One node, or the nodes that 0, 1 or several terms select: all that decides, names of nodes aside."""
    if placement is None:
        return None
    terms = placement.node_selector.terms if placement.node_selector is not None else ()
    return bool(placement.node_name), min(len(terms), 2)
