"""What a plan of nodes to add is made from, and what it says."""

from dataclasses import dataclass

from extender.autoscaler.scale_up.demand import NodeDemand, NodeRoom
from extender.cluster.objects.pods import Pod


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that found no place in the cluster as it is.

    Attributes:
        groups: names of the node groups that may take it; None: all of them.
    """

    pod: Pod
    demand: NodeDemand
    groups: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that can be added.

    Attributes:
        room: a node of the group, empty.
        limit: how many can be added.
    """

    name: str
    room: NodeRoom
    limit: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Nodes to add of one group.

    Attributes:
        nodes: for each of them, the pods that it is for.
        devices: where it is known from what such a node brings; empty: nowhere, so it is taken to bring none.
    """

    name: str
    nodes: tuple[tuple[Pod, ...], ...]
    devices: str


@dataclass(frozen=True, slots=True)
class ScaleUpPlan:
    """Nodes to add, group by group in the order asked, and the pods that no group helps, with the reason."""

    groups: tuple[GroupPlan, ...]
    failed: tuple[tuple[Pod, str], ...]
