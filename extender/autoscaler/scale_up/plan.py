"""Plans of nodes to add: what a plan is made from, what it says, and which group it adds nodes of next.

An expander chooses one of several groups by a rule that the caller names, as the Cluster Autoscaler's expanders. An
offer says what a group would be bought for: how many pods it helps, and how much hardware comes with its nodes.

What pods ask of a node apart from claims, and what a new, empty node has for them (resources, node selection, taints)
counts: otherwise a plan would choose groups that the scheduler then refuses. Rules that need to know of other pods and
nodes (host ports, affinity between pods, topology spread) are looked at in a session of whole pods; a plan names those
that are not, with their pods. Source: the plugin NodeResourcesFit of Kubernetes 1.36;
`extender.planning.kube_scheduler` has the others.
"""

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator import Quantity
from allocator.tools import Fields, raise_if_invalid, shown
from extender.cluster.objects.nodes import NodeObject, offer_of, parse_node_object
from extender.cluster.objects.pods import ANY_NODE, NodeRequirements, Pod, read_requirements
from extender.cluster.resources import ContainerNeeds, peak
from extender.planning.kube_scheduler import rejection

Amounts = Mapping[str, int]
"""Resource to amount, in units of 10**-9."""

PODS: Final = "pods"
"""Each pod takes one of this resource. A template without it has no such limit."""

_ONE: Final = 10**9


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """The demand of a pod on a node, apart from its claims. A plan counts equal demands as one.

    Attributes:
        amounts: resource and amount (units of 10**-9), by name; "pods" is one of them.
    """

    amounts: tuple[tuple[str, int], ...]
    requirements: NodeRequirements = ANY_NODE


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """The room that an empty node of a group has for pods.

    Attributes:
        amounts: the allocatable amounts; None: the template does not say, so resources do not count.
    """

    node: NodeObject
    amounts: Amounts | None = None

    def refusal(self, demand: NodeDemand) -> str:
        """Why the scheduler would never put such a pod on such a node, however empty; empty if it would."""
        return rejection(demand.requirements, self.node)

    def shortage(self, demand: NodeDemand, left: Amounts, by_devices: Container[str]) -> str:
        """The resource that does not suffice for a pod, in the scheduler's words; empty if all suffice.

        Args:
            demand: of the pod.
            left: of `amounts`, what the pods that are there have left.
            by_devices: extended resources that device classes serve where the node itself does not offer them.
        """
        if self.amounts is None:
            return ""
        for name, amount in demand.amounts:
            is_left_to_others = name not in self.amounts and (name == PODS or name in by_devices)
            if amount > left.get(name, 0) and not is_left_to_others:
                return f"insufficient {name}"
        return ""


def parse_demand(pod: Mapping[str, object]) -> NodeDemand:
    """The demand of a core/v1 Pod on a node.

    Raises:
        InvalidObjectError: all fields with a wrong type.
    """
    top = Fields(pod, "", [])
    spec = top.child("spec")
    demand = NodeDemand(tuple(sorted(_requests(spec).items())), read_requirements(spec))
    raise_if_invalid("Pod", top.child("metadata").text("name"), top.problems)
    return demand


def parse_room(node: Mapping[str, object]) -> NodeRoom:
    """What a core/v1 Node that is a node group's template has for pods.

    Raises:
        InvalidObjectError: all fields with a wrong type.
    """
    found = parse_node_object(node)
    top = Fields(node, "", [])
    status = top.child("status")
    offer = offer_of(status)
    room = NodeRoom(found, _amounts(status, offer) if status.has(offer) else None)
    raise_if_invalid("Node", found.name, top.problems)
    return room


def _requests(spec: Fields) -> dict[str, int]:
    """What the scheduler reserves for a pod, with its overhead; requests of the whole pod replace the containers'."""
    containers = [
        ContainerNeeds(
            _container(each), is_init=group == "initContainers", restarts=each.text("restartPolicy") == "Always"
        )
        for group in ("initContainers", "containers")
        for each in spec.children(group)
    ]
    amounts = Counter({**peak(containers), **_container(spec)}) + Counter(_amounts(spec, "overhead"))
    return {**amounts, PODS: _ONE}


def _container(fields: Fields) -> dict[str, int]:
    """The requests; a limit is the request where there is none, as the API server has it."""
    resources = fields.child("resources")
    return {**_amounts(resources, "limits"), **_amounts(resources, "requests")}


def _amounts(fields: Fields, name: str) -> dict[str, int]:
    found = {}
    for resource, value in fields.mapping(name).items():
        try:
            found[resource] = Quantity.parse(value if isinstance(value, str) else str(value)).nano
        except ValueError:
            fields.problem(f"{name}[{resource}]", f"{shown(value)} is not a quantity")
    return found


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
    """Nodes to add, group by group in the order asked, and the pods that no group helps, with the reason.

    Attributes:
        unmodeled: conditions that kube-scheduler checks and that the plan does not know, with their pods, in words.
    """

    groups: tuple[GroupPlan, ...]
    failed: tuple[tuple[Pod, str], ...]
    unmodeled: tuple[str, ...] = ()


_MACHINE: Final = frozenset({"cpu", "memory"})


@dataclass(frozen=True, slots=True)
class Offer:
    """The gain of adding nodes of one group.

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
