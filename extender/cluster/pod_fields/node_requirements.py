"""What a pod's spec requires of its node apart from resources and devices, and which conditions are not modeled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from allocator import (
    BLOCKING_EFFECTS,
    DeviceTaint,
    NodeSelector,
    Toleration,
    read_node_selector,
    read_taint,
    read_tolerations,
)
from allocator.tools import Fields

CORDON: Final = DeviceTaint("node.kubernetes.io/unschedulable", "NoSchedule")
"""The taint that stands for ``spec.unschedulable`` of a node: a pod that tolerates it may run there."""

_CLAIMED_VOLUMES: Final = ("persistentVolumeClaim", "ephemeral")


@dataclass(frozen=True, slots=True)
class NodeRequirements:
    """Node selection and tolerations of a pod. Equal requirements suit the same nodes.

    Attributes:
        labels: ``spec.nodeSelector``, by name.
        affinity: the required node affinity; None: any node.
    """

    labels: tuple[tuple[str, str], ...] = ()
    affinity: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()


ANY_NODE: Final = NodeRequirements()


def read_requirements(spec: Fields) -> NodeRequirements:
    """The requirements in a pod's spec."""
    return NodeRequirements(
        tuple(sorted(spec.text_mapping("nodeSelector").items())) if spec.has("nodeSelector") else (),
        _required_affinity(spec) if spec.has("affinity") else None,
        read_tolerations(spec) if spec.has("tolerations") else (),
    )


def read_node_taints(spec: Fields) -> tuple[DeviceTaint, ...]:
    """The taints in a node's spec that keep pods off, the one of a cordon first."""
    taints = [each for each in map(read_taint, spec.children("taints")) if each.effect in BLOCKING_EFFECTS]
    if spec.flag("unschedulable"):
        taints = [CORDON, *(each for each in taints if each.key != CORDON.key)]
    return tuple(taints)


def uses_volumes(spec: Fields) -> bool:
    """Whether a pod uses PersistentVolumeClaims, whose volumes may be created on its node."""
    return any(each.has(kind) for each in spec.children("volumes") for kind in _CLAIMED_VOLUMES)


def unmodeled_conditions(spec: Fields, containers: Sequence[Fields], *, has_volumes: bool) -> tuple[str, ...]:
    """Conditions of a pod that kube-scheduler checks and that the extender does not know."""
    found = [what for what, has in _UNMODELED if has(spec, containers)]
    return (*found, "volumes") if has_volumes else tuple(found)


def _required_affinity(spec: Fields) -> NodeSelector | None:
    affinity = spec.child("affinity").child("nodeAffinity")
    required = affinity.child_or_none("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else read_node_selector(required)


def _has_hardware_requests(_: Fields, containers: Sequence[Fields]) -> bool:
    """Whether a container requests a resource of Kubernetes itself; their names have no domain."""
    for each in containers:
        resources = each.mapping("resources")
        for amounts in (resources.get("requests"), resources.get("limits")):
            if isinstance(amounts, dict) and any("/" not in name for name in amounts):
                return True
    return False


def _has_pod_affinity(spec: Fields, _: Sequence[Fields]) -> bool:
    affinity = spec.mapping("affinity")
    return bool(affinity.get("podAffinity") or affinity.get("podAntiAffinity"))


def _has_host_ports(_: Fields, containers: Sequence[Fields]) -> bool:
    ports = (port for each in containers if each.has("ports") for port in each.children("ports"))
    return any(port.integer("hostPort") for port in ports)


_UNMODELED: Final[Sequence[tuple[str, Callable[[Fields, Sequence[Fields]], bool]]]] = (
    ("requests of CPU and memory", _has_hardware_requests),
    ("affinity between pods", _has_pod_affinity),
    ("topology spread", lambda spec, _: bool(spec.items("topologySpreadConstraints"))),
    ("host ports", _has_host_ports),
)
