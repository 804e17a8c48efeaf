"""What new nodes take: pods by shape, one node's fill, and what a whole group would do."""

from collections.abc import Mapping
from dataclasses import dataclass

from allocator import ClaimSpec
from extender.autoscaler.scale_up.demand import NodeDemand
from extender.cluster.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class PodShape:
    """What decides a pod on a new node. Pods of one shape are interchangeable.

    Attributes:
        groups: names of the node groups that may take it; None: all of them.
        devices: number of what it wants of devices; pods of other shapes may want the same.
        specs: of its claims that are not allocated.
        form: number of what it wants of devices, the selectors of its claims aside.
        least: devices that it can't do without.
        size: devices, cpu, memory; larger ones go first.
        is_alone: it shares a claim, or has one already: no other pod is like it.
    """

    demand: NodeDemand
    groups: frozenset[str] | None
    devices: int
    specs: tuple[ClaimSpec, ...]
    form: int
    least: int
    size: tuple[int, ...]
    is_alone: bool


@dataclass(frozen=True, slots=True, eq=False)
class Fill:
    """What a new node takes.

    Attributes:
        offered: shape to how many pods of it there were.
        takes: shape to how many of them it takes.
        stranded: devices of the node from which these pods take nothing.
        after: the cluster with them, if something outside of the node is held; None: the next node takes the same.
    """

    offered: Mapping[PodShape, int]
    takes: Mapping[PodShape, int]
    stranded: int
    after: Snapshot | None

    def repeats(self, waiting: Mapping[PodShape, int]) -> bool:
        """Whether another node takes the same of what waits now, if nothing elsewhere is held (`after` is None).

        Of a shape that ran out, a node might have taken more.
        """
        if any(shape not in self.offered for shape in waiting):
            return False
        return all(
            waiting.get(shape, 0) == count if count == self.offered[shape] else waiting.get(shape, 0) >= count
            for shape, count in self.takes.items()
        )


@dataclass(frozen=True, slots=True)
class Option:
    """What a group would do for the waiting pods.

    Attributes:
        nodes: for each new node, the number of pods of each shape on it.
        stranded: devices of these nodes from which the pods take nothing.
        after: the cluster with these nodes and pods.
    """

    nodes: tuple[Mapping[PodShape, int], ...]
    stranded: int
    after: Snapshot

    @property
    def shapes(self) -> frozenset[PodShape]:
        """The shapes that the plan helps."""
        return frozenset(shape for node in self.nodes for shape in node)
