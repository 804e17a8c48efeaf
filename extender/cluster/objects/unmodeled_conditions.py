"""Conditions of a pod that kube-scheduler checks and that the extender does not know: they are named, not decided."""

from collections.abc import Callable, Sequence
from typing import Final

from allocator.tools import Fields

VOLUMES: Final = "volumes"
"""The condition that is not known even of a whole pod."""

REQUESTS: Final = "requests of CPU and memory"

_CLAIMED_VOLUMES: Final = ("persistentVolumeClaim", "ephemeral")


def uses_volumes(spec: Fields) -> bool:
    """Whether a pod uses PersistentVolumeClaims, whose volumes may be created on its node."""
    return any(each.has(kind) for each in spec.children("volumes") for kind in _CLAIMED_VOLUMES)


def unmodeled_conditions(spec: Fields, containers: Sequence[Fields], *, has_volumes: bool) -> tuple[str, ...]:
    """Conditions of a pod that kube-scheduler checks and that the extender does not know."""
    found = [what for what, has in _UNMODELED if has(spec, containers)]
    return (*found, VOLUMES) if has_volumes else tuple(found)


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
    (REQUESTS, _has_hardware_requests),
    ("affinity between pods", _has_pod_affinity),
    ("topology spread", lambda spec, _: bool(spec.items("topologySpreadConstraints"))),
    ("host ports", _has_host_ports),
)
