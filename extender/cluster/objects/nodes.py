"""Nodes as values, with only the fields that decisions need."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from allocator import DeviceTaint, Node, Quantity, parse_node
from allocator.tools import Fields, ObjectReader
from extender.cluster.objects.pod_conditions import other_amounts
from extender.cluster.objects.pods import read_amounts, read_node_taints
from extender.cluster.resources import Amounts, amounts_of, counted, cpu_of


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A Node.

    Attributes:
        allocatable: extended resource to the amount that device plugins of the node offer.
        taints: those that keep pods off; `CORDON` is the first if the node is unschedulable.
        cpu: what pods may request, in thousandths of a core; None: not known.
        resources: what pods may request of the resources that devices may take, as kube-scheduler counts it; empty: not
            known.
        others: what pods may request of Kubernetes' other resources, such as ephemeral-storage, and ``pods``, their
            largest number; in whole units.
        created: when it was created; empty if that is not known; not compared.
    """

    node: Node
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)
    taints: tuple[DeviceTaint, ...] = ()
    cpu: int | None = None
    resources: Amounts = field(default_factory=dict)
    others: Amounts = field(default_factory=dict)
    created: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name


def offer_of(status: Fields) -> str:
    """The field of a node's status with what pods may request. An API server copies the capacity if that is absent.

    Source: SetDefaults_NodeStatus of Kubernetes.
    """
    return "allocatable" if status.has("allocatable") else "capacity"


def parse_node_object(obj: Mapping[str, object]) -> NodeObject:
    """A core/v1 Node; ``apiVersion`` and ``kind`` may be absent, as in kube-scheduler's requests.

    Raises:
        InvalidObjectError: all fields with a wrong type.
    """
    reader = ObjectReader("Node", obj if "apiVersion" in obj else {**obj, "apiVersion": "v1"}, ("v1",))
    status = reader.top.child("status")
    allocatable = read_amounts(status, offer_of(status))
    taints = read_node_taints(reader.top.child("spec"))
    reader.finish()
    node, offered = parse_node({"apiVersion": "v1", **obj}), status.mapping(offer_of(status))
    resources, others = counted(amounts_of(offered)), counted(other_amounts(offered))
    return NodeObject(node, allocatable, taints, cpu_of(offered), resources, others, reader.created)
