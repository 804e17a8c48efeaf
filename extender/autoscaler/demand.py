"""What kube-scheduler looks at when it puts pods on new, empty nodes: resources, node selection, taints.

A plan of nodes to add has to count this in, or it would choose groups that the scheduler then refuses. Rules that need
to know of other pods and nodes (affinity between pods, topology spread, volumes) are not looked at. Source: the plugins
NodeResourcesFit, NodeAffinity, TaintToleration and NodeUnschedulable of Kubernetes 1.36.
"""

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from allocator import (
    BLOCKING_EFFECTS,
    DeviceTaint,
    Fields,
    NodeSelector,
    Quantity,
    Toleration,
    raise_if_invalid,
    read_node_selector,
    read_taint,
    read_tolerations,
    selector_matches,
    shown,
    tolerates,
)
from extender.pods.peak import ContainerNeeds, peak
from extender.state.objects import NodeObject, parse_node_object

Amounts = Mapping[str, int]
"""Resource to amount, in units of 10**-9."""

PODS: Final = "pods"
"""Each pod takes one of this resource. A template without it has no such limit."""

_ONE: Final = 10**9
_UNSCHEDULABLE: Final = DeviceTaint("node.kubernetes.io/unschedulable", "NoSchedule")


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod asks of a node, apart from its claims. Equal demands are one to a plan.

    Attributes:
        amounts: resource and amount (units of 10**-9), by name; "pods" is one of them.
        labels: ``spec.nodeSelector``.
        affinity: the required node affinity; None: any node.
    """

    amounts: tuple[tuple[str, int], ...]
    labels: tuple[tuple[str, str], ...] = ()
    affinity: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Room:
    """What an empty node of a group has for pods.

    Attributes:
        amounts: what is allocatable; None: the template does not say, so that resources are not looked at.
        taints: of the node, those that keep pods off.
    """

    node: NodeObject
    amounts: Amounts | None = None
    taints: tuple[DeviceTaint, ...] = ()

    def refusal(self, demand: Demand) -> str:
        """Why the scheduler would never put such a pod on such a node, however empty; empty if it would."""
        labels = self.node.node.labels
        if any(labels.get(key) != value for key, value in demand.labels):
            return "node does not match spec.nodeSelector"
        if demand.affinity is not None and not selector_matches(demand.affinity, self.node.node):
            return "node does not match the required node affinity"
        for each in self.taints:
            if not any(tolerates(toleration, each) for toleration in demand.tolerations):
                return f"untolerated taint {each.key} of the node"
        return ""

    def shortage(self, demand: Demand, left: Amounts, by_devices: Container[str]) -> str:
        """Which resource does not suffice for a pod, as the scheduler says it; empty if all do.

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


def parse_demand(pod: Mapping[str, object]) -> Demand:
    """What a core/v1 Pod asks of a node.

    Raises:
        InvalidObjectError: all fields with a wrong type.
    """
    top = Fields(pod, "", [])
    spec = top.child("spec")
    affinity = spec.child("affinity").child("nodeAffinity")
    required = affinity.child_or_none("requiredDuringSchedulingIgnoredDuringExecution")
    demand = Demand(
        tuple(sorted(_requests(spec).items())),
        tuple(sorted(spec.text_mapping("nodeSelector").items())),
        None if required is None else read_node_selector(required),
        read_tolerations(spec),
    )
    raise_if_invalid("Pod", top.child("metadata").text("name"), top.problems)
    return demand


def parse_room(node: Mapping[str, object]) -> Room:
    """What a core/v1 Node that is a node group's template has for pods.

    Raises:
        InvalidObjectError: all fields with a wrong type.
    """
    found = parse_node_object(node)
    top = Fields(node, "", [])
    spec, status = top.child("spec"), top.child("status")
    taints = [each for each in map(read_taint, spec.children("taints")) if each.effect in BLOCKING_EFFECTS]
    if spec.flag("unschedulable"):
        taints.append(_UNSCHEDULABLE)
    room = Room(found, _amounts(status, "allocatable") if status.has("allocatable") else None, tuple(taints))
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
