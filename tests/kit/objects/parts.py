"""What objects of the API have in common: the envelope, requests, pools and allocations."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from extender.kube.resources import RESOURCES

Object = dict[str, Any]

DRIVER: Final = "gpu.example.com"


def api_object(
    kind: str, name: str, *, namespace: str = "", metadata: Mapping[str, Any] | None = None, **fields: Any
) -> Object:
    """An object of the best version of its kind, with its name and what else its metadata has."""
    resource = RESOURCES.get(kind)
    version = resource.api_versions()[0] if resource else "v1"
    named = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": {**named, **(metadata or {})}, **fields}


def selectors(*expressions: str) -> list[Object]:
    """CEL selectors of a class or a request."""
    return [{"cel": {"expression": each}} for each in expressions]


def of_driver(driver: str = DRIVER) -> list[Object]:
    """The selector of a class for all devices of a driver."""
    return selectors(f'device.driver == "{driver}"')


def exactly(name: str, device_class: str, count: int = 1, *expressions: str, **more: Any) -> Object:
    """A request of a claim for a number of devices that its expressions select."""
    fields: Object = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count, **more}
    return {"name": name, "exactly": fields | ({"selectors": selectors(*expressions)} if expressions else {})}


def claim_spec(requests: Iterable[Object], **devices: Any) -> Object:
    """The spec of a claim; ``devices`` are fields beside its requests, e.g. ``constraints``."""
    return {"devices": {"requests": list(requests), **devices}}


def only_node(name: str) -> Object:
    """The node selector of an allocation that one node reaches."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]}]
    return {"nodeSelectorTerms": [{"matchFields": fields}]}


def allocation(
    results: Iterable[tuple[str, str]], *, request: str = "gpu", driver: str = DRIVER, at: str = ""
) -> Object:
    """An allocation for one request; ``results`` are pools and devices, ``at`` is the node that reaches them."""
    found = [{"request": request, "driver": driver, "pool": pool, "device": device} for pool, device in results]
    return {"devices": {"results": found}} | ({"nodeSelector": only_node(at)} if at else {})


def slice_spec(
    pool: str, devices: Sequence[Object], *, driver: str = DRIVER, slices: int = 1, **placement: Any
) -> Object:
    """The spec of a slice of the first generation of a pool."""
    named = {"name": pool, "generation": 1, "resourceSliceCount": slices}
    return {"driver": driver, "pool": named, "devices": list(devices), **placement}
