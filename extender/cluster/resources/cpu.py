"""The CPU of pods and nodes, in thousandths of a core, as kube-scheduler counts it.

Policies prefer nodes by CPU, but CPU never decides whether a pod fits. So an unreadable amount counts as absent.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from extender.cluster.resources.node_resources import quantity_of
from extender.cluster.resources.pod_peak import ContainerNeeds, peak

_MILLI: Final = 10**6


def cpu_request(spec: object) -> int:
    """The CPU that a scheduler reserves for a pod of some spec.

    Requests of the whole pod (KEP-2837) count instead of those of its containers. The overhead of the pod is added.
    """
    if not isinstance(spec, dict):
        return 0
    of_pod = _requested(spec.get("resources"))
    if of_pod is None:
        of_pod = peak(_needs(spec))["cpu"] if spec.get("initContainers") else _sum(spec.get("containers"))
    return of_pod + (cpu_of(spec.get("overhead")) or 0)


def cpu_of(amounts: object) -> int | None:
    """The CPU in amounts by resource, rounded up; None without CPU."""
    amount = quantity_of(amounts.get("cpu")) if isinstance(amounts, dict) else None
    return None if amount is None else max(0, -(-amount.nano // _MILLI))


def _sum(containers: object) -> int:
    """What containers request together that run at the same time."""
    found = containers if isinstance(containers, list) else ()
    return sum(_requested(_at(each, "resources")) or 0 for each in found)


def _needs(spec: Mapping[str, object]) -> Iterator[ContainerNeeds]:
    for field, is_init in (("initContainers", True), ("containers", False)):
        containers = spec.get(field)
        for each in containers if isinstance(containers, list) else ():
            cpu = _requested(_at(each, "resources"))
            if cpu:
                yield ContainerNeeds({"cpu": cpu}, is_init, _at(each, "restartPolicy") == "Always")


def _requested(resources: object) -> int | None:
    """A limit without a request counts as a request, as in the API server."""
    if not isinstance(resources, dict):
        return None
    requested = cpu_of(resources.get("requests"))
    return cpu_of(resources.get("limits")) if requested is None else requested


def _at(value: object, field: str) -> object:
    return value.get(field) if isinstance(value, dict) else None
