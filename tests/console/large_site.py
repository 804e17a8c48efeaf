"""A site with 2,000 nodes, as manifests: two models, three namespaces, devices that are broken, and one large pool."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.kit.objects.parts import (
    DRIVER,
    allocation,
    api_object,
    claim_spec,
    exactly,
    of_driver,
    slice_spec,
)

NODES: Final = 2000
PER_NODE: Final = 8
LARGE: Final = "emulator"
"""A node with a pool of 1,000 devices."""

LARGE_SIZE: Final = 1000
OF_A_SLICE: Final = 100
"""The most devices of a slice."""

HALF: Final = NODES // 2
"""So many nodes have each model: the first ones h100, the others a100."""

EMPTY: Final = "node-1500"
"""The only node of which nothing is held."""

BROKEN: Final = "node-0777"
"""A node with tainted devices."""

INCOMPLETE: Final = "node-1999"
"""A node whose pool lacks a slice."""

NAMESPACES: Final = ("vision", "speech", "research")


def large_site(folder: Path) -> Path:
    """A folder with all of it. On each node but one, half of the devices are held, on the first one all of them."""
    manifests = folder / "site"
    manifests.mkdir()
    (manifests / "site.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*_objects()]}))
    return manifests


def held(number: int) -> int:
    """How many devices of a node are held."""
    return 0 if _name(number) in (EMPTY, INCOMPLETE) else PER_NODE if number == 0 else PER_NODE // 2


def owner(number: int) -> str:
    """The namespace of the claims on a node."""
    return NAMESPACES[number % len(NAMESPACES)]


def _objects() -> Iterator[dict[str, Any]]:
    yield api_object("DeviceClass", DRIVER, spec={"selectors": of_driver()})
    for number in range(NODES):
        yield api_object("Node", _name(number))
        yield from _slices(_name(number), PER_NODE, "h100" if number < HALF else "a100")
        if held(number):
            yield from _user(number)
    yield api_object("Node", LARGE)
    yield from _slices(LARGE, LARGE_SIZE, "emulated")
    yield _claim("vision", "waiting", PER_NODE + 1)
    yield _pod("vision", "waiting", "")


def _name(number: int) -> str:
    return f"node-{number:04}"


def _slices(node: str, size: int, model: str) -> Iterator[dict[str, Any]]:
    taints = [{"key": "example.com/broken", "effect": "NoSchedule"}] if node == BROKEN else []
    devices = [
        {"name": f"gpu-{index}", "attributes": {"model": {"string": model}}, "taints": taints} for index in range(size)
    ]
    parts = [devices[at : at + OF_A_SLICE] for at in range(0, size, OF_A_SLICE)]
    for number, part in enumerate(parts):
        spec = slice_spec(node, part, slices=len(parts) + (node == INCOMPLETE), nodeName=node)
        yield api_object("ResourceSlice", f"{node}-gpus-{number}", spec=spec)


def _user(number: int) -> Iterator[dict[str, Any]]:
    """A pod with the devices of a node that are held, and its claim."""
    node, name = _name(number), f"worker-{number}"
    claim = _claim(owner(number), name, held(number))
    reserved = [{"resource": "pods", "name": name, "uid": f"uid-{name}"}]
    devices = [(node, f"gpu-{index}") for index in range(held(number))]
    claim["status"] = {"allocation": allocation(devices, at=node), "reservedFor": reserved}
    yield claim
    yield _pod(owner(number), name, node)


def _claim(namespace: str, name: str, count: int) -> dict[str, Any]:
    return api_object("ResourceClaim", name, namespace=namespace, spec=claim_spec([exactly("gpu", DRIVER, count)]))


def _pod(namespace: str, name: str, node: str) -> dict[str, Any]:
    spec = {
        "containers": [{"name": "main", "image": "example.com/app"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        **({"nodeName": node} if node else {}),
    }
    return api_object("Pod", name, namespace=namespace, metadata={"uid": f"uid-{name}"}, spec=spec)
