"""Extended resources of a pod: what its containers request, and the special claim in its status (KEP-5004)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator import Quantity
from allocator.tools import Fields, shown
from extender.cluster.resources.pod_peak import ContainerNeeds, peak

IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of an extended resource that names a device class (KEP-5004)."""


@dataclass(frozen=True, slots=True)
class ExtendedRequest:
    """A container's request for an extended resource.

    Attributes:
        index: position in the sorted names of all resources that the container requests, with cpu and memory.
    """

    index: int
    resource: str
    amount: Quantity


@dataclass(frozen=True, slots=True)
class RequestingContainer:
    """A container that requests extended resources.

    Attributes:
        index: position in all containers of the pod, init containers first.
        is_init: it is an init container.
        restarts: its restartPolicy is Always, so as an init container it is a sidecar.
    """

    index: int
    name: str
    requests: tuple[ExtendedRequest, ...]
    is_init: bool = False
    restarts: bool = False


@dataclass(frozen=True, slots=True)
class RequestMapping:
    """A container gets the devices of a request of the special claim for one of its extended resources."""

    container: str
    resource: str
    request: str


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """``status.extendedResourceClaimStatus``: the special claim, and which container gets which request."""

    claim_name: str
    mappings: tuple[RequestMapping, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The field's JSON."""
        mappings = [
            {"containerName": m.container, "resourceName": m.resource, "requestName": m.request} for m in self.mappings
        ]
        return {"resourceClaimName": self.claim_name, "requestMappings": mappings}


def read_extended_claim(status: Fields) -> ExtendedClaim | None:
    """The special claim in the status of a pod; None if there is none."""
    fields = status.child_or_none("extendedResourceClaimStatus")
    if fields is None:
        return None
    return ExtendedClaim(
        fields.required_text("resourceClaimName"),
        tuple(
            RequestMapping(each.text("containerName"), each.text("resourceName"), each.text("requestName"))
            for each in fields.children("requestMappings")
        ),
    )


def read_containers(init: Sequence[Fields], main: Sequence[Fields]) -> tuple[RequestingContainer, ...]:
    """The containers that request extended resources, of init containers and the others."""
    found = []
    for index, fields in enumerate([*init, *main]):
        requests = _extended_requests(fields.child("resources"))
        if requests:
            restarts = fields.text("restartPolicy") == "Always"
            found.append(RequestingContainer(index, fields.text("name"), requests, index < len(init), restarts))
    return tuple(found)


def asked(containers: Iterable[RequestingContainer]) -> Mapping[str, int]:
    """The amount of each extended resource that containers of a pod need at their peak, in nano units, by name."""
    needs = (
        ContainerNeeds({own.resource: own.amount.nano for own in each.requests}, each.is_init, each.restarts)
        for each in containers
    )
    return dict(sorted(peak(needs).items()))


def _extended_requests(resources: Fields) -> tuple[ExtendedRequest, ...]:
    """Requests by name; a limit without a request counts as a request, as in the API server."""
    limits, requests = resources.mapping("limits"), resources.mapping("requests")
    names = {*limits, *requests}
    if not any(map(is_extended, names)):
        return ()
    return tuple(
        ExtendedRequest(index, name, _quantity(resources, "requests" if name in requests else "limits", name))
        for index, name in enumerate(sorted(names))
        if is_extended(name)
    )


def read_amounts(fields: Fields, mapping: str) -> dict[str, Quantity]:
    """The extended resources in a field that maps resources to amounts."""
    return {name: _quantity(fields, mapping, name) for name in fields.mapping(mapping) if is_extended(name)}


def _quantity(fields: Fields, mapping: str, name: str) -> Quantity:
    value = fields.mapping(mapping)[name]
    try:
        return Quantity.parse(value if isinstance(value, str) else str(value))
    except ValueError:
        fields.problem(f"{mapping}[{name}]", f"{shown(value)} is not a quantity")
        return Quantity(0)


def is_extended(resource: str) -> bool:
    """Whether this is an extended resource: its domain is not Kubernetes' own, or it names a device class."""
    if resource.startswith(IMPLICIT_PREFIX):
        return True
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")
