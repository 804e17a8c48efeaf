"""What kube-scheduler looks at when it puts pods on new, empty nodes: resources, node selection, taints.

A plan of nodes to add has to count this in, or it would choose groups that the scheduler then refuses. Rules that need
to know of other pods and nodes (affinity between pods, topology spread, volumes) are not looked at. Source: the plugin
NodeResourcesFit of Kubernetes 1.36; `extender.planning.kube_scheduler` has the others.
"""

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from allocator import Quantity
from allocator.model.json import raise_if_invalid
from allocator.tools import Fields, shown
from extender.cluster.objects.nodes import NodeObject, parse_node_object
from extender.cluster.objects.pods import ANY_NODE, NodeRequirements, read_requirements
from extender.cluster.resources import ContainerNeeds, peak
from extender.planning.kube_scheduler import rejection

Amounts = Mapping[str, int]
"""Resource to amount, in units of 10**-9."""

PODS: Final = "pods"
"""Each pod takes one of this resource. A template without it has no such limit."""

_ONE: Final = 10**9


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """What a pod asks of a node, apart from its claims. A plan counts equal demands as one.

    Attributes:
        amounts: resource and amount (units of 10**-9), by name; "pods" is one of them.
    """

    amounts: tuple[tuple[str, int], ...]
    requirements: NodeRequirements = ANY_NODE


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What an empty node of a group has for pods.

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
    """What a core/v1 Pod asks of a node.

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
    room = NodeRoom(found, _amounts(status, "allocatable") if status.has("allocatable") else None)
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
