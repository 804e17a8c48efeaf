"""The device class of a ResourceClass: pods ask for devices by it, and the allocator needs nothing else.

CEL says each requirement of the class. A property of a device is an attribute, or else a capacity of that name. A
device without the property fails In, Gt and Lt, and passes NotIn, as with node selectors.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from allocator import GroupResource, Problem, Quantity, Version
from allocator.model.json import CONTROLLER, MATCH_ATTRIBUTE, MEMBERS
from allocator.model.validation import validate
from allocator.obstacles import conditions_of
from allocator.tools import qualified_name, shown
from extender.cluster.objects.resource_classes import VERSION, Operator, PropertyRequirement, ResourceClass
from extender.kube.api import RawObject
from extender.kube.claim_rules import check_expression
from extender.kube.resources import CLASSES, RESOURCE_CLASSES

_T = TypeVar("_T")

_NANO: Final = 10**9
_INT64: Final = 2**63
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_RATE: Final = "bps"
"""A unit that KEP-14 writes after an amount, as in ``40GBPS``."""

_WITHOUT_RATE: Final = f'.replace("{_RATE}", "").replace("{_RATE.upper()}", "")'
"""The same of a property that is a text, in CEL."""


class RequirementError(ValueError):
    """A requirement that no expression can say.

    Attributes:
        field: of the requirement: ``key`` or ``values[0]``.
    """

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class _Property:
    """A property in CEL: whether a device has it as an attribute or as a capacity, and its value as each."""

    has_attribute: str
    attribute: str
    has_capacity: str
    capacity: str

    def choose(self, by_attribute: str, by_capacity: str) -> str:
        """The expression for the attribute if there is one, else the expression for the capacity; empty: never."""
        if not by_capacity:
            return f"({self.has_attribute} && {by_attribute})"
        return f"({self.has_attribute} ? {by_attribute} : {self.has_capacity} && {by_capacity})"


def requirement_expression(requirement: PropertyRequirement, domain: str) -> str:
    """The CEL expression of a requirement.

    Args:
        requirement: of a ResourceClass.
        domain: a CEL expression for the domain of keys without a domain.

    Raises:
        RequirementError: the key is no name of a property, or a value has no order.
    """
    found = _property(requirement.key, domain)
    match requirement.operator:
        case Operator.IN:
            return _is_in(found, requirement.values)
        case Operator.NOT_IN:
            return f"!{_is_in(found, requirement.values)}"
        case Operator.EXISTS:
            return f"({found.has_attribute} || {found.has_capacity})"
        case Operator.DOES_NOT_EXIST:
            return f"!({found.has_attribute} || {found.has_capacity})"
        case Operator.GREATER:
            return _compares(found, requirement.values[0], ">", "isGreaterThan")
        case Operator.LESS:
            return _compares(found, requirement.values[0], "<", "isLessThan")


def amount_of(text: str) -> Quantity | None:
    """A text as an amount, also with the unit of a rate; None if it is none."""
    return _read(Quantity.parse, text[: -len(_RATE)] if _is_rate(text) else text)


def _is_rate(text: str) -> bool:
    return text[-len(_RATE) :].lower() == _RATE


def version_of(text: str) -> Version | None:
    """A text as a semantic version; None if it is none."""
    return _read(Version.parse, text)


def _read(parse: Callable[[str], _T], text: str) -> _T | None:
    try:
        return parse(text)
    except ValueError:
        return None


def _property(key: str, domain: str) -> _Property:
    wrong = qualified_name(key)
    if wrong:
        raise RequirementError("key", f"{shown(key)} {wrong}")
    own, _, name = key.rpartition("/")
    place = _text(own) if own else domain
    attributes, capacities = f"device.attributes[{place}]", f"device.capacity[{place}]"
    return _Property(
        f"{_text(name)} in {attributes}",
        f"{attributes}[{_text(name)}]",
        f"{_text(name)} in {capacities}",
        f"{capacities}[{_text(name)}]",
    )


def _is_in(found: _Property, values: tuple[str, ...]) -> str:
    attribute = " || ".join(equal for value in values for equal in _equals(found.attribute, value))
    amounts = (amount for amount in map(amount_of, values) if amount is not None)
    capacity = " || ".join(f"{found.capacity}.compareTo(quantity({_text(str(amount))})) == 0" for amount in amounts)
    return found.choose(f"({attribute})", f"({capacity})" if capacity else "")


def _equals(attribute: str, value: str) -> list[str]:
    """Whether an attribute is a text, or is the number, truth or version that the text writes.

    The literal stands first: a version that is compared with a text is an error.
    """
    found = [f"{_text(value)} == {attribute}"]
    is_number = _WHOLE.fullmatch(value) is not None and -_INT64 <= int(value) < _INT64
    if is_number or value in {"true", "false"}:
        found.append(f"{value} == {attribute}")
    elif version_of(value) is not None:
        version = f"semver({_text(value)})"
        found.append(f"{_is_of(attribute, f'type({version})')} && {attribute} == {version}")
    return found


def _compares(found: _Property, value: str, sign: str, method: str) -> str:
    amount = amount_of(value)
    if amount is not None:
        limit = f"quantity({_text(str(amount))})"
        written = found.attribute + (_WITHOUT_RATE if _is_rate(value) else "")
        text = f"isQuantity({written}) && quantity({written}).{method}({limit})"
        number = _integer(found.attribute, amount, sign)
        is_integer, is_text = _is_of(found.attribute, "int"), _is_of(found.attribute, "string")
        by_attribute = f"({is_integer} ? {number} : {is_text} && {text})"
        return found.choose(by_attribute, f"{found.capacity}.{method}({limit})")
    if version_of(value) is not None:
        limit = f"semver({_text(value)})"
        text = f"isSemver({found.attribute}) && semver({found.attribute}).{method}({limit})"
        version = f"{_is_of(found.attribute, f'type({limit})')} && {found.attribute}.{method}({limit})"
        return found.choose(f"({_is_of(found.attribute, 'string')} ? {text} : {version})", "")
    raise RequirementError("values[0]", f"{shown(value)} is neither an amount such as 15G, nor a version such as 1.2.3")


def _integer(attribute: str, amount: Quantity, sign: str) -> str:
    """Compares a whole number with an amount, by the whole number next to the amount."""
    limit = amount.nano // _NANO if sign == ">" else -(-amount.nano // _NANO)
    if -_INT64 <= limit < _INT64:
        return f"{attribute} {sign} {limit}"
    return "true" if (limit < 0) == (sign == ">") else "false"


def _is_of(attribute: str, kind: str) -> str:
    """Whether an attribute has a type. An API server refuses ``==`` of types: it takes its cost for unlimited."""
    return f"type({attribute}) in [{kind}]"


def _text(value: str) -> str:
    """A literal of CEL. JSON's escapes are CEL's, except for pairs of surrogates."""
    return json.dumps(value, ensure_ascii=False)


_OWN_DRIVER: Final = "device.driver"
_NO_DEVICE: Final = "false"
"""The selector of a group resource: a claim that asks for its class gets no device, because members are several."""

_OWNER: Final = (VERSION, RESOURCE_CLASSES.kind)


@dataclass(frozen=True, slots=True)
class ClassJudgement:
    """The judgement of a ResourceClass: the device class that is made of it, or why none is.

    Attributes:
        device_class: the DeviceClass that it should have; None if it is not accepted.
        reason: ``Accepted``, ``InvalidExpression``, ``InvalidMembers``, ``NameTaken`` or ``Negotiated``.
        message: says it to people; of a class that is not accepted, it names each wrong field.
    """

    resource_class: ResourceClass
    device_class: RawObject | None
    reason: str
    message: str


def judge(classes: Iterable[ResourceClass], existing: Sequence[RawObject], api_version: str) -> list[ClassJudgement]:
    """The device classes of all ResourceClasses, by name.

    Args:
        classes: all ResourceClasses.
        existing: all DeviceClasses.
        api_version: of the DeviceClasses to make.
    """
    by_name = {each["metadata"]["name"]: each for each in existing}
    others = [each for each in existing if owner_of(each) is None]
    serving = {name: found for each in existing if (name := _served_by(each)) and (found := each)}
    known, judgements = dict(by_name), []
    for each in sorted(classes, key=lambda each: (each.group is not None, each.name)):
        taken = _judgement_if_taken(each, by_name.get(each.name), serving.get(each.asked_as))
        if taken is not None:
            judgement = taken
        elif each.group is not None:
            judgement = _judge_group(each, each.group, known, api_version)
        else:
            judgement = _judge_one(each, others, api_version)
        if judgement.device_class is not None:
            serving[each.asked_as] = known[each.name] = judgement.device_class
        judgements.append(judgement)
    return judgements


def owner_of(device_class: RawObject) -> Mapping[str, str] | None:
    """The ResourceClass that a device class was made of, as its owner reference says; None for all other classes."""
    owners = device_class["metadata"].get("ownerReferences") or ()
    return next((each for each in owners if (each.get("apiVersion"), each.get("kind")) == _OWNER), None)


def _judgement_if_taken(
    resource_class: ResourceClass, present: RawObject | None, serving: RawObject | None
) -> ClassJudgement | None:
    """The judgement of a class whose place is taken; None if it is not.

    Args:
        resource_class: the class.
        present: the DeviceClass of its name.
        serving: the DeviceClass that serves its extended resource.
    """
    for taken, what in ((present, "has the name"), (serving, f"serves {resource_class.asked_as}")):
        if taken is not None and not _is_own(resource_class, taken):
            message = f"device class {taken['metadata']['name']} {what} already; rename or delete one of the two"
            return ClassJudgement(resource_class, None, "NameTaken", message)
    return None


def _judge_group(
    resource_class: ResourceClass, group: GroupResource, known: Mapping[str, RawObject], api_version: str
) -> ClassJudgement:
    """Judge a class with members; ``known`` has all DeviceClasses by name, also those that are made now."""
    problems = []
    for name, _ in group.members:
        annotations = known[name]["metadata"].get("annotations") or {} if name in known else {}
        if name not in known:
            problems.append(Problem(f"spec.members[{name}]", "there is no device class of this name"))
        elif MEMBERS in annotations:
            problems.append(Problem(f"spec.members[{name}]", "this class has members, and a member can have none"))
        elif CONTROLLER in annotations:
            problems.append(Problem(f"spec.members[{name}]", f"this class has the annotation {CONTROLLER}"))
    if problems:
        return ClassJudgement(resource_class, None, "InvalidMembers", "; ".join(map(str, problems)))
    made = _device_class(resource_class, [_cel(_NO_DEVICE)], None, api_version)
    made["metadata"]["annotations"] = {
        MEMBERS: json.dumps(dict(group.members)),
        **({MATCH_ATTRIBUTE: group.match_attribute} if group.match_attribute else {}),
    }
    words = " and ".join(f"{count} of {name}" for name, count in group.members)
    return ClassJudgement(
        resource_class, made, "Accepted", f"containers ask for {resource_class.asked_as} and get {words}"
    )


def _judge_one(resource_class: ResourceClass, others: Sequence[RawObject], api_version: str) -> ClassJudgement:
    """Judge one class that selects devices.

    Args:
        resource_class: the class.
        others: the DeviceClasses that are made of no ResourceClass.
        api_version: of the DeviceClass to make.
    """
    base = _base(resource_class.resource, others)
    if base is not None and CONTROLLER in (base["metadata"].get("annotations") or {}):
        message = (
            f"device class {base['metadata']['name']} has the annotation {CONTROLLER}: its requests are negotiated"
        )
        return ClassJudgement(resource_class, None, "Negotiated", message)
    selectors, problems = _selectors(resource_class, base)
    if not problems:
        made = _device_class(resource_class, selectors, base, api_version)
        refused = validate(made, check_expression)
        if not refused:
            origin = f"driver {driver_of(resource_class.resource)}"
            if base is not None:
                origin = f"device class {base['metadata']['name']}"
            message = f"containers ask for {resource_class.asked_as}; its devices are among those of {origin}"
            return ClassJudgement(resource_class, made, "Accepted", message)
        problems = [Problem("", f"the device class would be refused: {each}") for each in refused]
    return ClassJudgement(resource_class, None, "InvalidExpression", "; ".join(map(str, problems)))


def driver_of(resource: str) -> str:
    """The driver whose devices a raw resource name means where no device class serves it.

    As drivers are named today: ``gpu.nvidia.com`` for ``nvidia.com/gpu``.
    """
    domain, _, name = resource.rpartition("/")
    return f"{name}.{domain}".lower()


def resource_of(driver: str) -> str:
    """The raw resource name that means the devices of a driver, by the rule of `driver_of`."""
    name, _, domain = driver.partition(".")
    return f"{domain}/{name}" if domain else driver


def _base(resource: str, others: Sequence[RawObject]) -> RawObject | None:
    """The device class that serves a raw resource name, as for pods: the newest, then the first by name."""
    found = sorted((each for each in others if _served_by(each) == resource), key=lambda each: each["metadata"]["name"])
    return max(found, key=lambda each: each["metadata"].get("creationTimestamp") or "", default=None)


def _served_by(device_class: RawObject) -> str:
    return device_class["spec"].get("extendedResourceName") or ""


def _is_own(resource_class: ResourceClass, device_class: RawObject) -> bool:
    owner = owner_of(device_class)
    return owner is not None and (owner.get("name"), owner.get("uid", "")) == (resource_class.name, resource_class.uid)


def _selectors(resource_class: ResourceClass, base: RawObject | None) -> tuple[list[RawObject], list[Problem]]:
    """The selectors of the device class, and what is wrong with requirements."""
    found = list((base or {}).get("spec", {}).get("selectors") or ())
    domain = _domain(found)
    if base is None:
        domain = f'"{driver_of(resource_class.resource)}"'
        found.append(_cel(f"{_OWN_DRIVER} == {domain}"))
    terms, problems = [], []
    for number, requirements in enumerate(resource_class.selectors):
        expressions = []
        for place, requirement in enumerate(requirements):
            try:
                expressions.append(requirement_expression(requirement, domain))
            except RequirementError as error:
                path = f"spec.resourceSelector[{number}].matchExpressions[{place}].{error.field}"
                problems.append(Problem(path, str(error)))
        terms.append(" && ".join(expressions))
    if len(terms) == 1:
        found.append(_cel(terms[0]))
    elif terms:
        found.append(_cel(" || ".join(f"({term})" for term in terms)))
    return found, problems


def _domain(selectors: Sequence[RawObject]) -> str:
    """CEL for the domain of the driver: its name, if a selector demands it. Then decisions read single attributes."""
    for selector in selectors:
        for condition in conditions_of(selector["cel"]["expression"]):
            left, _, right = condition.partition("==")
            if left.strip() == _OWN_DRIVER and right.strip()[:1] in {'"', "'"}:
                return right.strip()
    return _OWN_DRIVER


def _cel(expression: str) -> RawObject:
    return {"cel": {"expression": expression}}


def _device_class(
    resource_class: ResourceClass, selectors: list[RawObject], base: RawObject | None, api_version: str
) -> RawObject:
    name, uid = resource_class.name, resource_class.uid
    owner = {"apiVersion": VERSION, "kind": RESOURCE_CLASSES.kind, "name": name, "uid": uid, "controller": True}
    spec: RawObject = {"selectors": selectors, "extendedResourceName": resource_class.asked_as}
    config = (base or {}).get("spec", {}).get("config")
    if config:
        spec["config"] = config
    return {
        "apiVersion": api_version,
        "kind": CLASSES.kind,
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": spec,
    }
