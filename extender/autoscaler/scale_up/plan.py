"""Plans of nodes to add: what a plan is made from, what it says, and which group it adds nodes of next.

An expander chooses one of several groups by a rule that the caller names, as the Cluster Autoscaler's expanders. An
offer says what a group would be bought for: how many pods it helps, and how much hardware comes with its nodes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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


_MACHINE: Final = frozenset({"cpu", "memory"})


@dataclass(frozen=True, slots=True)
class Offer:
    """What adding nodes of one group gives.

    Attributes:
        group: place among the groups asked about.
        pods: how many of the pending pods get a place.
        nodes: how many nodes that takes.
        hardware: what one of these nodes has: cpu, memory, and per driver devices and their capacities.
        priority: of the group; the highest goes first.
        stranded: devices of the new nodes from which these pods take nothing.
    """

    group: int
    pods: int
    nodes: int
    hardware: Mapping[str, int]
    priority: int = 0
    stranded: int = 0


Expander = Callable[[Sequence[Offer]], Offer]
"""The best of some offers; there is at least one."""


def least_waste(offers: Sequence[Offer]) -> Offer:
    """The least hardware bought for each pod: a part that a pod does not need is waste wherever another group lacks it.

    Each part counts as a share of what the most wasteful group buys of it, so that bytes and cores compare; the machine
    (cpu, memory) counts as much as its devices.
    """
    waste = _waste(offers)
    return min(offers, key=lambda each: (waste[each.group], each.nodes, each.group))


def least_nodes(offers: Sequence[Offer]) -> Offer:
    """The fewest nodes for each pod, then the least waste."""
    waste = _waste(offers)
    return min(offers, key=lambda each: (each.nodes / each.pods, waste[each.group], each.group))


def by_priority(offers: Sequence[Offer]) -> Offer:
    """The group of the highest priority, then the least waste."""
    highest = max(each.priority for each in offers)
    return least_waste([each for each in offers if each.priority == highest])


def most_pods(offers: Sequence[Offer]) -> Offer:
    """The most pods, then the fewest stranded devices, then the fewest nodes, then the least waste."""
    waste = _waste(offers)
    return min(offers, key=lambda each: (-each.pods, each.stranded, each.nodes, waste[each.group], each.group))


EXPANDERS: Final[Mapping[str, Expander]] = {
    "least-waste": least_waste,
    "least-nodes": least_nodes,
    "most-pods": most_pods,
    "priority": by_priority,
}


def _waste(offers: Sequence[Offer]) -> dict[int, float]:
    """Group to what it buys for a pod, from 0 to 1 for the machine and the same for the devices."""
    per_pod = {
        each.group: {part: amount * each.nodes / each.pods for part, amount in each.hardware.items()} for each in offers
    }
    most: dict[str, float] = {}
    for parts in per_pod.values():
        for part, amount in parts.items():
            most[part] = max(most.get(part, 0.0), amount)
    machine = [part for part in most if part in _MACHINE and most[part]]
    devices = [part for part in most if part not in _MACHINE and most[part]]

    def share(parts: Mapping[str, float], of: Sequence[str]) -> float:
        return sum(parts.get(part, 0.0) / most[part] for part in of) / len(of) if of else 0.0

    return {group: share(parts, machine) + share(parts, devices) for group, parts in per_pod.items()}
