"""Device controllers: the annotations of a DeviceClass that hand its requests to one (KEP-3063)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator.model.device_classes import ParametersRef
from allocator.model.json.common import read_node_selector
from allocator.model.nodes import NodeSelector
from allocator.tools import jsontext
from allocator.tools.fields import Fields, Problem
from allocator.tools.names import dns_subdomain
from allocator.tools.printable import shown

CONTROLLER: Final = "dra-extender.dev/controller"
"""Annotation of a DeviceClass: the name of the controller that decides about its requests."""

SUITABLE_NODES: Final = "dra-extender.dev/suitable-nodes"
"""Annotation of a DeviceClass with a controller: a NodeSelector in JSON. Other nodes are not suitable."""

PARAMETERS_REF: Final = "dra-extender.dev/parameters-ref"
"""Annotation of a claim, or of a DeviceClass with a controller: a `ParametersRef` in JSON."""

_REF_FIELDS: Final = ("apiGroup", "kind", "name")


@dataclass(frozen=True, slots=True)
class DeviceController:
    """What the annotations of a class say.

    Attributes:
        name: of the controller; empty: there is none.
        suitable_nodes: None: all nodes.
        parameters: None: there are none.
    """

    name: str = ""
    suitable_nodes: NodeSelector | None = None
    parameters: ParametersRef | None = None


class ParametersRefError(ValueError):
    """The annotation `PARAMETERS_REF` of a claim is wrong; the text says why."""


def read_controller(metadata: Fields) -> DeviceController:
    """The controller of a class."""
    annotations = metadata.text_mapping("annotations")
    name = annotations.get(CONTROLLER)
    if name is None:
        for each in (SUITABLE_NODES, PARAMETERS_REF):
            if each in annotations:
                metadata.problem(f"annotations[{each}]", f"needs the annotation {CONTROLLER}")
        return DeviceController()
    if wrong := dns_subdomain(name):
        metadata.problem(f"annotations[{CONTROLLER}]", f"{shown(name)} {wrong}")
    nodes, parameters = annotations.get(SUITABLE_NODES), annotations.get(PARAMETERS_REF)
    return DeviceController(
        name,
        None if nodes is None else _read_selector(metadata, nodes),
        None if parameters is None else _read_ref(metadata, parameters, (*_REF_FIELDS, "namespace")),
    )


def parameters_ref(annotations: Mapping[str, str]) -> ParametersRef | None:
    """The parameters that a claim names; None if it names none.

    Raises:
        ParametersRefError: the annotation is wrong.
    """
    text = annotations.get(PARAMETERS_REF)
    if text is None:
        return None
    problems: list[Problem] = []
    found = _read_ref(Fields({}, "metadata", problems), text, _REF_FIELDS)
    if problems:
        raise ParametersRefError("; ".join(map(str, problems)))
    return found


def _read_ref(metadata: Fields, text: str, allowed: Sequence[str]) -> ParametersRef:
    place = f"annotations[{PARAMETERS_REF}]"
    found = _object(text)
    if found is None:
        metadata.problem(place, f"{shown(text)} is not an object in JSON")
        return ParametersRef("", "", "")
    fields = Fields(found, metadata.at(place), metadata.problems)
    for name in found:
        if name not in allowed:
            fields.problem(name, f"is unknown; there are {', '.join(allowed)}")
    return ParametersRef(
        fields.text("apiGroup"), fields.required_text("kind"), fields.required_text("name"), fields.text("namespace")
    )


def _object(text: str) -> Mapping[str, object] | None:
    try:
        found = jsontext.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _read_selector(metadata: Fields, text: str) -> NodeSelector:
    place = f"annotations[{SUITABLE_NODES}]"
    found = _object(text)
    if found is None:
        metadata.problem(place, f"{shown(text)} is not a NodeSelector in JSON")
        return NodeSelector(())
    selector = read_node_selector(Fields(found, metadata.at(place), metadata.problems))
    if not selector.terms:
        metadata.problem(place, "has no nodeSelectorTerms")
    return selector
