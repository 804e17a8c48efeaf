"""Priorities of new pods: for the admission plugin of a real API server and for ours."""

from dataclasses import dataclass, field
from typing import Any, Final

from extender.kube.api import RawObject
from tests.kit.objects.parts import api_object

HIGH: Final = "priority-high"
PATIENT: Final = "priority-patient"


def priority_class(name: str, value: int, **fields: Any) -> RawObject:
    return api_object("PriorityClass", name, apiVersion="scheduling.k8s.io/v1", value=value, **fields)


CLASSES: Final = (priority_class(HIGH, 1000), priority_class(PATIENT, -5, preemptionPolicy="Never"))
DEFAULT: Final = priority_class("priority-default", 7, preemptionPolicy="Never", globalDefault=True)


@dataclass(frozen=True, slots=True)
class Case:
    """A pod that is created.

    Attributes:
        spec: fields of it that are about its priority.
        got: name of its class, its priority, its preemption policy; empty if it is refused.
        refused: the field that is wrong.
        default: there is a default class.
    """

    spec: dict[str, Any] = field(default_factory=dict)
    got: tuple[str, int, str] | tuple[()] = ()
    refused: str = ""
    default: bool = False


CASES: Final[dict[str, Case]] = {
    "a class": Case({"priorityClassName": HIGH}, (HIGH, 1000, "PreemptLowerPriority")),
    "a class whose pods evict nobody": Case({"priorityClassName": PATIENT}, (PATIENT, -5, "Never")),
    "of Kubernetes, for nodes": Case(
        {"priorityClassName": "system-node-critical"}, ("system-node-critical", 2_000_001_000, "PreemptLowerPriority")
    ),
    "of Kubernetes, for clusters": Case(
        {"priorityClassName": "system-cluster-critical"},
        ("system-cluster-critical", 2_000_000_000, "PreemptLowerPriority"),
    ),
    "the default": Case({}, ("priority-default", 7, "Never"), default=True),
    "a class, though there is a default": Case(
        {"priorityClassName": HIGH}, (HIGH, 1000, "PreemptLowerPriority"), default=True
    ),
    "the same priority once more": Case(
        {"priorityClassName": HIGH, "priority": 1000}, (HIGH, 1000, "PreemptLowerPriority")
    ),
    "no such class": Case({"priorityClassName": "priority-hihg"}, refused="priorityClassName"),
    "another priority": Case({"priorityClassName": HIGH, "priority": 5}, refused="priority"),
    "another priority than the default": Case({"priority": 5}, refused="priority", default=True),
    "another policy": Case({"priorityClassName": HIGH, "preemptionPolicy": "Never"}, refused="preemptionPolicy"),
}
