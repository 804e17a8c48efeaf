"""The device class of a ResourceClass: pods ask for devices by it, and the allocator needs nothing else."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator import CONTROLLER, MATCH_ATTRIBUTE, MEMBERS, GroupResource, Problem, conditions_of, validate
from extender.cluster.objects.resource_classes import VERSION, ResourceClass
from extender.kube.api import RawObject
from extender.kube.claim_rules import check_expression
from extender.kube.resources import CLASSES, RESOURCE_CLASSES
from extender.resource_classes.properties import RequirementError, requirement_expression

_OWN_DRIVER: Final = "device.driver"
_NO_DEVICE: Final = "false"
"""The selector of a group resource: a claim that asks for its class gets no device, because members are several."""

_OWNER: Final = (VERSION, RESOURCE_CLASSES.kind)


@dataclass(frozen=True, slots=True)
class ClassJudgement:
    """What becomes of a ResourceClass.

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
        taken = _taken(each, by_name.get(each.name), serving.get(each.asked_as))
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


def _taken(
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
