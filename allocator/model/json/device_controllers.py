"""Device controllers: the annotations of a DeviceClass that hand its requests to one (KEP-3063)."""

from typing import Final

from allocator.model.devices import NodeSelector
from allocator.model.json import text as jsontext
from allocator.model.json.common import read_node_selector
from allocator.model.json.fields import Fields, shown
from allocator.model.rules.names import dns_subdomain

CONTROLLER: Final = "dra-extender.dev/controller"
"""Annotation of a DeviceClass: the name of the controller that decides about its requests."""

SUITABLE_NODES: Final = "dra-extender.dev/suitable-nodes"
"""Annotation of a DeviceClass with a controller: a NodeSelector in JSON. Other nodes are not suitable."""


def read_controller(metadata: Fields) -> tuple[str, NodeSelector | None]:
    """The controller of a class, empty if there is none, and its suitable nodes, None for all nodes."""
    annotations = metadata.text_mapping("annotations")
    name, text = annotations.get(CONTROLLER), annotations.get(SUITABLE_NODES)
    if name is not None and (wrong := dns_subdomain(name)):
        metadata.problem(f"annotations[{CONTROLLER}]", f"{shown(name)} {wrong}")
    if text is None:
        return name or "", None
    if name is None:
        metadata.problem(f"annotations[{SUITABLE_NODES}]", f"needs the annotation {CONTROLLER}")
        return "", None
    return name, _read_selector(metadata, text)


def _read_selector(metadata: Fields, text: str) -> NodeSelector:
    place = f"annotations[{SUITABLE_NODES}]"
    try:
        found = jsontext.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        metadata.problem(place, f"{shown(text)} is not a NodeSelector in JSON")
        return NodeSelector(())
    selector = read_node_selector(Fields(found, metadata.at(place), metadata.problems))
    if not selector.terms:
        metadata.problem(place, "has no nodeSelectorTerms")
    return selector
