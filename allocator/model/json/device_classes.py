"""DeviceClasses with the annotations that are read of them, and DeviceTaintRules.

Annotations of a class hand its requests to a device controller (KEP-3063), or let its extended resource stand for
several classes, a group resource (KEP-14).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator.model.claims import MAX_RESULTS
from allocator.model.device_classes import DeviceClass, GroupResource, ParametersRef
from allocator.model.devices import TaintRule
from allocator.model.json.common import GROUP, VERSIONS, opaque, read_node_selector, read_taint, selectors
from allocator.model.nodes import NodeSelector
from allocator.tools import jsontext
from allocator.tools.fields import Fields, ObjectReader, Problem
from allocator.tools.names import dns_subdomain, full_name
from allocator.tools.printable import shown

CONTROLLER: Final = "dra-extender.dev/controller"
"""Annotation of a DeviceClass: the name of the controller that decides about its requests."""

SUITABLE_NODES: Final = "dra-extender.dev/suitable-nodes"
"""Annotation of a DeviceClass with a controller: a NodeSelector in JSON. Other nodes are not suitable."""

IN_SIMULATIONS: Final = "dra-extender.dev/in-simulations"
"""Annotation of a DeviceClass with a controller that cannot be asked in simulations: `AVAILABLE`."""

AVAILABLE: Final = "available"

PARAMETERS_REF: Final = "dra-extender.dev/parameters-ref"
"""Annotation of a claim, or of a DeviceClass with a controller: a `ParametersRef` in JSON."""

_REF_FIELDS: Final = ("apiGroup", "kind", "name")


@dataclass(frozen=True, slots=True)
class DeviceController:
    """The controller that the annotations of a class name.

    Attributes:
        name: of the controller; empty: there is none.
        suitable_nodes: None: all nodes.
        parameters: None: there are none.
        available_in_simulations: as in `DeviceClass`.
    """

    name: str = ""
    suitable_nodes: NodeSelector | None = None
    parameters: ParametersRef | None = None
    available_in_simulations: bool = False


class ParametersRefError(ValueError):
    """The annotation `PARAMETERS_REF` of a claim is wrong; the text says why."""


def read_controller(metadata: Fields) -> DeviceController:
    """The controller of a class."""
    annotations = metadata.text_mapping("annotations")
    name = annotations.get(CONTROLLER)
    if name is None:
        for each in (SUITABLE_NODES, PARAMETERS_REF, IN_SIMULATIONS):
            if each in annotations:
                metadata.problem(f"annotations[{each}]", f"needs the annotation {CONTROLLER}")
        return DeviceController()
    if wrong := dns_subdomain(name):
        metadata.problem(f"annotations[{CONTROLLER}]", f"{shown(name)} {wrong}")
    nodes, parameters = annotations.get(SUITABLE_NODES), annotations.get(PARAMETERS_REF)
    assumed = annotations.get(IN_SIMULATIONS)
    if assumed not in {None, AVAILABLE}:
        metadata.problem(f"annotations[{IN_SIMULATIONS}]", f"{shown(assumed)} is not {AVAILABLE}")
    return DeviceController(
        name,
        None if nodes is None else _read_selector(metadata, nodes),
        None if parameters is None else _read_ref(metadata, parameters, (*_REF_FIELDS, "namespace")),
        assumed is not None,
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


MEMBERS: Final = "dra-extender.dev/members"
"""Annotation of a DeviceClass: device classes and numbers of devices, as a JSON object."""

MATCH_ATTRIBUTE: Final = "dra-extender.dev/match-attribute"
"""Annotation of a DeviceClass with members: the attribute of which all devices have the same value."""


def read_group(metadata: Fields) -> GroupResource | None:
    """The group resource of a class; None if it has no members."""
    annotations = metadata.text_mapping("annotations")
    text, attribute = annotations.get(MEMBERS), annotations.get(MATCH_ATTRIBUTE)
    if text is None:
        if attribute is not None:
            metadata.problem(f"annotations[{MATCH_ATTRIBUTE}]", f"needs the annotation {MEMBERS}")
        return None
    place = f"annotations[{MEMBERS}]"
    try:
        found = jsontext.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        metadata.problem(place, f"{shown(text)} is not a JSON object with a number for each device class")
        return None
    members = read_members(found, metadata, place)
    return GroupResource(members, read_match_attribute(attribute, metadata, f"annotations[{MATCH_ATTRIBUTE}]"))


def read_members(members: Mapping[str, object], fields: Fields, place: str) -> tuple[tuple[str, int], ...]:
    """Numbers of devices by device class; one claim has to hold them all. Problems are those of a place in fields."""
    found = []
    for name, count in sorted(members.items()):
        if wrong := dns_subdomain(name):
            fields.problem(f"{place}[{name}]", f"{shown(name)} {wrong}")
        elif not isinstance(count, int) or isinstance(count, bool) or count < 1:
            fields.problem(f"{place}[{name}]", f"{shown(count)} is not a number of devices")
        else:
            found.append((name, count))
    total = sum(count for _, count in found)
    if not members:
        fields.problem(place, "needs at least one device class")
    if total > MAX_RESULTS:
        fields.problem(place, f"has {total} devices, a claim can hold {MAX_RESULTS}")
    return tuple(found)


def read_match_attribute(attribute: str | None, fields: Fields, place: str) -> str:
    """The attribute of which all devices have the same value; empty if there is none."""
    if attribute is not None and (wrong := full_name(attribute)):
        fields.problem(place, f"{shown(attribute)} {wrong}")
    return attribute or ""


def parse_device_class(obj: Mapping[str, object]) -> DeviceClass:
    """A DeviceClass of v1, v1beta2 or v1beta1.

    Raises:
        InvalidObjectError: all that is wrong with it.
    """
    reader = ObjectReader("DeviceClass", obj, VERSIONS)
    spec = reader.top.child("spec")
    controller = read_controller(reader.metadata)
    parsed = DeviceClass(
        name=reader.name,
        selectors=selectors(spec),
        configs=tuple(opaque(config) for config in spec.children("config")),
        extended_resource_name=spec.text_or_none("extendedResourceName"),
        created=reader.created,
        controller=controller.name,
        suitable_nodes=controller.suitable_nodes,
        parameters=controller.parameters,
        available_in_simulations=controller.available_in_simulations,
        group=read_group(reader.metadata),
    )
    reader.finish()
    return parsed


def parse_taint_rule(obj: Mapping[str, object]) -> TaintRule:
    """A DeviceTaintRule of v1, v1beta2, v1beta1 or v1alpha3.

    Raises:
        InvalidObjectError: all that is wrong with it. Selectors of the first v1alpha3 are refused: without them the
            rule would taint more devices than it says.
    """
    reader = ObjectReader("DeviceTaintRule", obj, (*VERSIONS, f"{GROUP}/v1alpha3"))
    spec = reader.top.child("spec")
    selector = spec.child("deviceSelector")
    for dropped in ("deviceClassName", "selectors"):
        if selector.has(dropped):
            selector.problem(dropped, "is not supported")
    parsed = TaintRule(
        name=reader.name,
        taint=read_taint(spec.child("taint")),
        driver=selector.text_or_none("driver"),
        pool=selector.text_or_none("pool"),
        device=selector.text_or_none("device"),
        selects_none=not spec.has("deviceSelector"),
    )
    reader.finish()
    return parsed
