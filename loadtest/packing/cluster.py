"""A trace as API objects: a GPU is a device that several claims may share; a pod's claim comes from a template.

A request for a whole GPU names no capacity: it takes all of the device, as the API says.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from loadtest.packing.trace import WHOLE, Shape, TraceNode
from tests.kit.objects.parts import (
    DRIVER,
    Object,
    api_object,
    claim_spec,
    exactly,
    of_driver,
    slice_spec,
)

NAMESPACE: Final = "default"
_MILLI: Final = "milli"


def cluster_objects(nodes: Iterable[TraceNode]) -> Iterator[Object]:
    """The device class, and the nodes with their slices."""
    yield api_object("DeviceClass", DRIVER, spec={"selectors": of_driver()})
    for node in nodes:
        amounts = {"cpu": f"{node.cpu}m", "memory": f"{node.memory}Mi"}
        yield api_object("Node", node.name, status={"allocatable": amounts})
        if node.gpus:
            devices = [_device(f"gpu-{number}", node.model) for number in range(node.gpus)]
            yield api_object("ResourceSlice", node.name, spec=slice_spec(node.name, devices, nodeName=node.name))


def pod_objects(shapes: Sequence[Shape]) -> Iterator[Object]:
    """A claim template for each kind of claim, and a pod for each shape; the pod's name is the shape's position."""
    templates: dict[Shape, str] = {}
    for place, shape in enumerate(shapes):
        claims = []
        if shape.gpus:
            kind = Shape(0, 0, shape.gpus, shape.milli, shape.models)
            if kind not in templates:
                templates[kind] = f"claim-{len(templates)}"
                yield _template(templates[kind], kind)
            claims = [{"name": "gpu", "resourceClaimTemplateName": templates[kind]}]
        requests = {"cpu": f"{shape.cpu}m", "memory": f"{shape.memory}Mi"}
        container = {"name": "main", "image": "registry.example.com/image:1", "resources": {"requests": requests}}
        spec = {"containers": [container]} | ({"resourceClaims": claims} if claims else {})
        yield api_object("Pod", str(place), namespace=NAMESPACE, spec=spec)


def _device(name: str, model: str) -> Object:
    capacity = {_MILLI: {"value": str(WHOLE)}}
    return {
        "name": name,
        "attributes": {"model": {"string": model}},
        "capacity": capacity,
        "allowMultipleAllocations": True,
    }


def _template(name: str, shape: Shape) -> Object:
    part = {} if shape.milli == WHOLE else {"capacity": {"requests": {_MILLI: str(shape.milli)}}}
    models = " || ".join(f'device.attributes["{DRIVER}"].model == "{model}"' for model in shape.models)
    request = exactly("gpu", DRIVER, shape.gpus, *([models] if models else []), **part)
    spec = {"spec": claim_spec([request])}
    return api_object("ResourceClaimTemplate", name, namespace=NAMESPACE, spec=spec)
