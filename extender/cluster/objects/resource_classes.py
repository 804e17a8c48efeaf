"""ResourceClasses (KEP-14): devices chosen by their properties, under a name that pods ask for.

A class may also name a group resource: devices of several classes together.

The kind is our own; ``deploy/crds`` has its definition. `extender.plugins.resource_classes` makes a device class of
each.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from allocator import GroupResource
from allocator.model.json import read_match_attribute, read_members
from allocator.tools import Fields, ObjectReader, shown

VERSION: Final = "dra-extender.dev/v1alpha1"

DOMAIN: Final = "dra-extender.dev"
"""The domain of the names under which pods ask for devices of resource classes."""


class Operator(Enum):
    """A comparison of a property with the values of a requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LONGEST_VALUE: Final = 128

_OPERATORS: Final = {each.value: each for each in Operator}
_VALUES: Final[Mapping[Operator, tuple[int, int, str]]] = {
    Operator.IN: (1, 64, "1 to 64 values"),
    Operator.NOT_IN: (1, 64, "1 to 64 values"),
    Operator.EXISTS: (0, 0, "no values"),
    Operator.DOES_NOT_EXIST: (0, 0, "no values"),
    Operator.GREATER: (1, 1, "one value"),
    Operator.LESS: (1, 1, "one value"),
}
"""How many values an operator takes: at least, at most, and in words."""


@dataclass(frozen=True, slots=True)
class PropertyRequirement:
    """A condition on one property of a device.

    Attributes:
        key: the name of an attribute or a capacity; a name without a domain lives in the domain of the driver.
    """

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceClass:
    """A ResourceClass.

    Attributes:
        uid: empty in a manifest without one.
        resource: the raw resource name, such as ``nvidia.com/gpu``; empty for a group resource.
        selectors: a device matches if it meets all requirements of one of them. Without selectors, every device of the
            resource matches.
        group: the group resource that the class names; None: it selects devices.
        generation: counts changes of the spec.
        status: as the API server has it; not compared.
    """

    name: str
    uid: str
    resource: str
    selectors: tuple[tuple[PropertyRequirement, ...], ...] = ()
    group: GroupResource | None = None
    generation: int = 0
    status: Mapping[str, object] = field(default_factory=dict, compare=False)

    @property
    def asked_as(self) -> str:
        """The extended resource by which containers ask for its devices: without selectors and members, the raw one."""
        return f"{DOMAIN}/{self.name}" if self.selectors or self.group else self.resource

    @property
    def refusal(self) -> str:
        """Why the class is not accepted, as its status says; empty if the status does not say it."""
        conditions = self.status.get("conditions")
        for each in conditions if isinstance(conditions, list) else ():
            if isinstance(each, dict) and each.get("type") == "Accepted" and each.get("status") == "False":
                return str(each.get("message") or "")
        return ""


def parse_resource_class(obj: Mapping[str, object]) -> ResourceClass:
    """A ResourceClass of ``dra-extender.dev/v1alpha1``.

    Raises:
        InvalidObjectError: all that is wrong with it.
    """
    reader = ObjectReader("ResourceClass", obj, (VERSION,))
    spec = reader.top.child("spec")
    reader.top.refuse_unknown({"apiVersion", "kind", "metadata", "spec", "status"})
    group = _group(spec)
    spec.refuse_unknown({"resourceName", "resourceSelector", "members", "matchAttribute"})
    resource = "" if group is not None else spec.required_text("resourceName")
    if resource and not _RESOURCE.fullmatch(resource):
        spec.problem("resourceName", f"{shown(resource)} is not a domain and a name, such as example.com/gpu")
    found = ResourceClass(
        name=reader.name,
        uid=reader.metadata.text("uid"),
        resource=resource,
        selectors=tuple(_selector(each) for each in spec.children("resourceSelector")),
        group=group,
        generation=reader.metadata.integer("generation"),
        status=reader.top.mapping("status"),
    )
    reader.finish()
    return found


def _group(spec: Fields) -> GroupResource | None:
    attribute = spec.text_or_none("matchAttribute")
    if not spec.has("members"):
        if attribute is not None:
            spec.problem("matchAttribute", "needs members")
        return None
    for name in ("resourceName", "resourceSelector"):
        if spec.has(name):
            spec.problem(name, "a class with members has none: its devices are those of its members")
    members = read_members(spec.mapping("members"), spec, "members")
    return GroupResource(members, read_match_attribute(attribute, spec, "matchAttribute"))


def _selector(fields: Fields) -> tuple[PropertyRequirement, ...]:
    fields.refuse_unknown({"matchExpressions"})
    found = tuple(_requirement(each) for each in fields.children("matchExpressions"))
    if not found:
        fields.problem("matchExpressions", "needs at least one requirement")
    return found


def _requirement(fields: Fields) -> PropertyRequirement:
    fields.refuse_unknown({"key", "operator", "values"})
    key, name, values = fields.required_text("key"), fields.required_text("operator"), fields.texts("values")
    operator = _OPERATORS.get(name)
    if operator is None:
        if name:
            fields.problem("operator", f"{shown(name)} is not one of {', '.join(_OPERATORS)}")
        return PropertyRequirement(key, Operator.EXISTS, values)
    least, most, words = _VALUES[operator]
    given = fields.data.get("values")
    number = len(given) if isinstance(given, list) else 0
    if not least <= number <= most:
        fields.problem("values", f"{name} takes {words}, and there are {number}")
    for index, value in enumerate(values):
        if len(value) > _LONGEST_VALUE:
            fields.problem(f"values[{index}]", f"is longer than {_LONGEST_VALUE} characters")
    return PropertyRequirement(key, operator, values)
