"""Resources of pods, nodes and quotas: which names there are, and which amounts.

Source: pkg/apis/core/validation and pkg/apis/core/helper, Kubernetes 1.37.
"""

from collections.abc import Callable, Mapping
from typing import Final

from allocator.model.quantity import Quantity
from allocator.tools.fields import Fields
from allocator.tools.names import extended_resource, label_key
from allocator.tools.printable import shown

HUGE_PAGES: Final = "hugepages-"
OF_CONTAINERS: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_OF_PODS: Final = frozenset({"cpu", "memory"})
_COUNTED: Final = frozenset(
    {
        *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
        *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
    }
)
"""A quota limits the number of these objects."""
_OF_QUOTAS: Final = frozenset(
    {
        *OF_CONTAINERS,
        *_COUNTED,
        *(f"{kind}.{name}" for kind in ("requests", "limits") for name in OF_CONTAINERS),
        "requests.storage",
    }
)
_OF_PODS_IN_QUOTAS: Final = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
_MOST: Final = Quantity.from_int((2**63 - 1) // 1000)
"""Of a whole amount: an API server counts it in thousandths, with 64 bits."""
_DOMAIN: Final = "dra-extender.dev"
"""Of the extended resources that stand for ResourceClasses (KEP-14)."""


def is_resource_of_containers(name: str) -> bool:
    """Whether a resource without a domain is one that containers can ask for."""
    return name in OF_CONTAINERS or name.startswith(HUGE_PAGES)


def of_container(name: str) -> str:
    """The problem with the name of a resource that a container asks for."""
    if "/" in name:
        return label_key(name) or _unless(_may_be_asked_for(name), "is not an extended resource's name")
    if is_resource_of_containers(name):
        return ""
    return (
        "unknown resource; extended resources have a domain: "
        f"the devices of a ResourceClass of this name are {_DOMAIN}/{name}"
    )


def of_pod(name: str) -> str:
    """The problem with the name of a resource of a whole pod."""
    is_known = name in _OF_PODS or name.startswith(HUGE_PAGES)
    return _unless(is_known, "a whole pod has cpu, memory and huge pages")


def of_quota(name: str) -> str:
    """The problem with the name of a resource that a quota limits."""
    if "/" in name:
        return label_key(name)
    if name in _OF_QUOTAS or name.removeprefix("requests.").startswith(HUGE_PAGES):
        return ""
    return (
        f"unknown resource; a quota limits the devices of a class as {name}.deviceclass.resource.k8s.io/devices, "
        "extended resources as requests.DOMAIN/NAME, and claims as count/resourceclaims.resource.k8s.io"
    )


def is_scope_for(scope: str, name: str) -> bool:
    """Whether a scope of a quota can stand beside a limit."""
    if name not in _OF_QUOTAS and not name.removeprefix("requests.").startswith(HUGE_PAGES):
        return True
    if scope == "BestEffort":
        return name == "pods"
    if scope == "VolumeAttributesClass":
        return name in {"persistentvolumeclaims", "requests.storage"}
    return name == "pods" or name in _OF_PODS_IN_QUOTAS


def amounts(fields: Fields, name: str, rule: Callable[[str], str] | None = None) -> Mapping[str, Quantity]:
    """Amounts by resource: none is negative, and devices are whole. What is no quantity is left out.

    Args:
        fields: the object with the field.
        name: of the field.
        rule: what is wrong with the name of a resource; None: any name will do.
    """
    found = {}
    for resource, value in fields.child(name).data.items():
        wrong = rule(resource) if rule else ""
        if wrong:
            fields.problem(f"{name}[{resource}]", wrong)
        if value is None:
            fields.problem(f"{name}[{resource}]", "null is not an amount")
            continue
        try:
            found[resource] = Quantity.parse(value if isinstance(value, str) else str(value))
        except ValueError:
            continue
        if found[resource].nano < 0:
            fields.problem(f"{name}[{resource}]", f"{shown(value)} is negative")
        elif is_whole(resource) and not found[resource].is_integer:
            fields.problem(f"{name}[{resource}]", f"{shown(value)} is not a whole number")
        elif is_whole(resource) and found[resource] > _MOST:
            fields.problem(f"{name}[{resource}]", f"{shown(value)} is more than {_MOST}")
        elif wrong := _no_pages(resource, found[resource]) if rule in {of_container, of_pod} else "":
            fields.problem(f"{name}[{resource}]", f"{shown(value)} {wrong}")
    return found


def _no_pages(resource: str, amount: Quantity) -> str:
    """The problem with an amount of huge pages: it is not a number of whole pages."""
    if not resource.startswith(HUGE_PAGES):
        return ""
    try:
        page = Quantity.parse(resource.removeprefix(HUGE_PAGES)).nano
    except ValueError:
        page = 0
    return _unless(page > 0 and amount.nano % page == 0, "is not a number of whole pages")


def is_whole(resource: str) -> bool:
    """Whether only whole amounts of a resource exist."""
    return resource in _COUNTED or not extended_resource(resource)


def check_requests(resources: Fields, rule: Callable[[str], str]) -> None:
    """Requests and limits of a container or a pod: no request is over its limit, and devices have equal ones."""
    limits, requests = amounts(resources, "limits", rule), amounts(resources, "requests", rule)
    for name, request in requests.items():
        is_shared = "/" not in name or "kubernetes.io/" in name
        is_shared = is_shared and not name.startswith(HUGE_PAGES)
        limit = limits.get(name)
        if limit is None:
            if not is_shared and name not in resources.child("limits").data:
                resources.problem(f"requests[{name}]", "needs a limit that is equal")
        elif request > limit:
            resources.problem(f"requests[{name}]", f"is more than the limit of {limit}")
        elif request != limit and not is_shared:
            resources.problem(f"requests[{name}]", f"is not equal to the limit of {limit}")
    names = {*limits, *requests}
    if any(name.startswith(HUGE_PAGES) for name in names) and not names & _OF_PODS:
        resources.problem("", "huge pages need a request for cpu or memory beside them")


def _may_be_asked_for(name: str) -> bool:
    return "kubernetes.io/" in name or not extended_resource(name)


def _unless(condition: bool, wrong: str) -> str:  # noqa: FBT001
    return "" if condition else wrong
