"""Rules for what pods and the templates of workloads say about devices.

Source: pkg/apis/core/validation, Kubernetes 1.36. The fields of pods are many, and most do not matter for devices: only
these rules are checked.
"""

from collections.abc import Collection, Mapping
from typing import Final

from allocator.model import field_rules as rules
from allocator.tools.fields import Fields, Problem
from allocator.tools.printable import shown
from allocator.tools.spelling import did_you_mean, nearest

POD_SPECS: Final[Mapping[str, str]] = {
    "v1 Pod": "spec",
    "v1 ReplicationController": "spec.template.spec",
    "apps/v1 DaemonSet": "spec.template.spec",
    "apps/v1 Deployment": "spec.template.spec",
    "apps/v1 ReplicaSet": "spec.template.spec",
    "apps/v1 StatefulSet": "spec.template.spec",
    "batch/v1 Job": "spec.template.spec",
    "batch/v1 CronJob": "spec.jobTemplate.spec.template.spec",
}
"""Where the spec of a pod stands, by API version and kind."""

_OF_CONTAINERS: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES: Final = "hugepages-"
_DOMAIN: Final = "dra-extender.dev"
"""Of the extended resources that stand for ResourceClasses (KEP-14)."""


def pod_problems(obj: Mapping[str, object]) -> tuple[Problem, ...]:
    """What an API server would refuse in the spec of a pod, as far as it is about devices.

    Args:
        obj: decoded JSON of a pod or a workload; other objects have no problem here.
    """
    path = POD_SPECS.get(f"{obj.get('apiVersion')} {obj.get('kind')}", "")
    if not path:
        return ()
    spec = Fields(obj, "", [])
    for name in path.split("."):
        spec = spec.child(name)
    _check(spec)
    return tuple(spec.problems)


def _check(spec: Fields) -> None:
    """Each claim has a name of its own; containers use claims of the pod, and ask for resources that there can be."""
    names = [each.text("name") for each in spec.children("resourceClaims")]
    rules.unique(spec, "resourceClaims", names)
    for kind in ("initContainers", "containers"):
        for container in spec.children(kind):
            _resources(container.child("resources"), names)


def _resources(resources: Fields, claims: Collection[str]) -> None:
    """The claims that a container uses, and the names of the resources that it asks for."""
    for use in resources.children("claims"):
        name = use.text("name")
        if name not in claims:
            use.problem(
                "name", f"{shown(name)} is not in the pod's resourceClaims{did_you_mean(nearest(name, claims))}"
            )
    for kind in ("limits", "requests"):
        for name in resources.child(kind).data:
            if "/" not in name and not is_resource_of_containers(name):
                domain = f"the devices of a ResourceClass of this name are {_DOMAIN}/{name}"
                resources.problem(f"{kind}[{name}]", f"unknown resource; extended resources have a domain: {domain}")


def is_resource_of_containers(name: str) -> bool:
    """Whether a resource without a domain is one that containers can ask for."""
    return name in _OF_CONTAINERS or name.startswith(_HUGE_PAGES)
