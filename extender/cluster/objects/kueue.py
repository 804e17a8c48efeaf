"""Objects of Kueue (kueue.x-k8s.io): jobs as workloads, the checks that they wait for, and flavors of nodes.

Kueue admits a workload once it has quota and each of its checks is ready. An AdmissionCheck names the controller that
decides about it; that controller writes an entry in ``status.admissionChecks`` of each workload.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from allocator.tools import Fields, ObjectReader
from extender.kube.api import ObjectKey
from extender.kube.resources import ADMISSION_CHECKS, FLAVORS, WORKLOADS

PENDING: Final = "Pending"
READY: Final = "Ready"
RETRY: Final = "Retry"
"""States of a check. A workload with a check in `RETRY` loses its quota, and queues behind others."""

ACTIVE: Final = "Active"
"""The condition of an AdmissionCheck without which Kueue admits no workload that needs it."""

_OF_PODS: Final = "PriorityClass"


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """An AdmissionCheck.

    Attributes:
        controller: the name of the controller that decides about it.
        is_active: its condition `ACTIVE` is true, for its newest generation.
    """

    name: str
    controller: str
    is_active: bool = False


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """A ResourceFlavor: what Kueue adds to the pods of a workload that gets quota of this flavor.

    Attributes:
        labels: of nodes; the pods select them.
        tolerations: as JSON.
    """

    name: str
    labels: Mapping[str, str]
    tolerations: bytes = b"[]"


@dataclass(frozen=True, slots=True)
class CheckState:
    """The entry of a check in the status of a workload.

    Attributes:
        state: one of `PENDING`, `READY`, `RETRY`, or "Rejected".
        since: when the state has changed last.
        updates: what the controller of the check adds to the pods of a pod set, by its name, as JSON.
    """

    name: str
    state: str
    message: str = ""
    since: str = ""
    updates: Mapping[str, bytes] | None = None


@dataclass(frozen=True, slots=True)
class PodSet:
    """Equal pods of a workload.

    Attributes:
        count: how many of them are admitted: with partial admission, fewer than the job asks for.
        template: the template of the pods, as JSON.
        flavors: names of the flavors of which it has quota.
    """

    name: str
    count: int
    template: bytes
    flavors: tuple[str, ...] = ()

    def is_labeled(self, name: str) -> bool:
        """Whether its author has given the pods a label of this name."""
        metadata = orjson.loads(self.template).get("metadata") or {}
        return name in (metadata.get("labels") or {})


@dataclass(frozen=True, slots=True)
class Workload:
    """A Workload.

    Attributes:
        priority: of the workload among others in Kueue.
        pod_priority: that of its pods, as far as the workload tells; else 0.
        reserved: since when it has quota; empty: it has none.
        checks: in the order of its status.
        pod_sets: empty if it has no quota or no checks, or is finished: then nobody asks about its pods.
    """

    namespace: str
    name: str
    uid: str
    priority: int = 0
    pod_priority: int = 0
    created: str = ""
    reserved: str = ""
    is_admitted: bool = False
    checks: tuple[CheckState, ...] = ()
    pod_sets: tuple[PodSet, ...] = ()

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def parse_admission_check(obj: Mapping[str, object]) -> AdmissionCheck:
    """An AdmissionCheck.

    Raises:
        InvalidObjectError: all fields with a wrong type.
    """
    reader = ObjectReader(ADMISSION_CHECKS.kind, obj, ADMISSION_CHECKS.api_versions())
    generation, is_active = reader.metadata.integer("generation"), False
    for each in reader.top.child("status").children("conditions"):
        if each.text("type") == ACTIVE:
            is_active = each.text("status") == "True" and each.integer("observedGeneration") == generation
    found = AdmissionCheck(reader.name, reader.top.child("spec").text("controllerName"), is_active)
    reader.finish()
    return found


def parse_flavor(obj: Mapping[str, object]) -> ResourceFlavor:
    """A ResourceFlavor.

    Raises:
        InvalidObjectError: all fields with a wrong type.
    """
    reader = ObjectReader(FLAVORS.kind, obj, FLAVORS.api_versions())
    spec = reader.top.child("spec")
    tolerations = [each.data for each in spec.children("tolerations")]
    found = ResourceFlavor(reader.name, spec.text_mapping("nodeLabels"), _json(tolerations, spec, "tolerations"))
    reader.finish()
    return found


def parse_workload(obj: Mapping[str, object]) -> Workload:
    """A Workload.

    Raises:
        InvalidObjectError: all fields with a wrong type.
    """
    reader = ObjectReader(WORKLOADS.kind, obj, WORKLOADS.api_versions())
    spec, status = reader.top.child("spec"), reader.top.child("status")
    true = {
        each.text("type"): each.time_or_none("lastTransitionTime") or ""
        for each in status.children("conditions")
        if each.text("status") == "True"
    }
    checks = tuple(map(_check_state, status.children("admissionChecks")))
    is_active = spec.flag_or_none("active") is not False
    is_over = reader.deleting or not is_active or not true.keys().isdisjoint({"Finished", "Evicted"})
    reserved = "" if is_over else true.get("QuotaReserved", "")
    priority = spec.integer("priority")
    found = Workload(
        namespace=reader.metadata.text("namespace") or "default",
        name=reader.name,
        uid=reader.metadata.text("uid"),
        priority=priority,
        pod_priority=priority if spec.child("priorityClassRef").text("kind") == _OF_PODS else 0,
        created=reader.created,
        reserved=reserved,
        is_admitted="Admitted" in true,
        checks=checks,
        pod_sets=tuple(_pod_sets(spec, status)) if reserved and checks else (),
    )
    reader.finish()
    return found


def _check_state(fields: Fields) -> CheckState:
    updates = {
        each.required_text("name"): _json(each.data, fields, "podSetUpdates")
        for each in fields.children("podSetUpdates")
    }
    name, since = fields.required_text("name"), fields.time_or_none("lastTransitionTime") or ""
    state, message = fields.each_text("state", "message")
    return CheckState(name, state, message, since, updates or None)


def _pod_sets(spec: Fields, status: Fields) -> Iterator[PodSet]:
    assigned = {each.text("name"): each for each in status.child("admission").children("podSetAssignments")}
    for each in spec.children("podSets"):
        name, count, flavors = each.text("name"), each.integer("count", 1), dict[str, None]()
        if name in assigned:
            count = assigned[name].integer("count", count)
            flavors = dict.fromkeys(assigned[name].text_mapping("flavors").values())
        yield PodSet(name, max(0, count), _json(each.mapping("template"), each, "template"), tuple(flavors))


def _json(data: object, fields: Fields, name: str) -> bytes:
    """The data as JSON: values of a snapshot never change."""
    try:
        return orjson.dumps(data)
    except orjson.JSONEncodeError:  # halves of surrogate pairs, and numbers of more than 64 bits
        fields.problem(name, "cannot be written as JSON")
        return b"null"
