"""An API server in memory, with the rules that clients meet: versions, conflicts, finalizers, subresources, quota.

It does nothing in the background; `Controller` does what a cluster's controllers do. It refuses what a ResourceQuota
does not allow, as the admission plugin ResourceQuota does, and keeps the statuses of quotas, as
kube-controller-manager's resourcequota controller does.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from allocator import Slice, parse_device_class
from allocator.tools import Fields
from extender.cluster.cluster_state import Sink
from extender.cluster.kinds import WatchedKind, all_kinds
from extender.cluster.objects.claims import SPECIAL, ClaimObject, parse_claim_object
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.priority_classes import PriorityClasses, parse_priority_class
from extender.cluster.resource_quotas import (
    Account,
    Charge,
    Extended,
    charged_before,
    charges_of,
    claim_charges,
    parse_resource_quota,
    pod_charges,
)
from extender.cluster.snapshot import Unreadable
from extender.cluster.snapshot_edit import read
from extender.kube.api import ApiError, Event, EventType, Listing, ObjectKey, RawObject, key_of, timestamp
from extender.kube.claim_rules import (
    admin_problems,
    admin_status_problems,
    drop_freed_devices,
    spec_problems,
    status_problems,
)
from extender.kube.encoding import copied, dumps, loads
from extender.kube.resources import (
    CLAIMS,
    CLASSES,
    DAEMON_SETS,
    EVENTS,
    LEASES,
    NAMESPACES,
    PODS,
    POOL_REQUESTS,
    PRIORITY_CLASSES,
    QUOTAS,
    RESOURCES,
    TEMPLATES,
    Resource,
)

_CHARGED: Final = (PODS, CLAIMS)


class QuotaAdmission:
    """Follows the objects of an API server in memory.

    Args:
        objects: all of them, by kind and key, as JSON.
    """

    def __init__(self, objects: Mapping[str, Mapping[ObjectKey, bytes]]) -> None:
        self._objects = objects
        self._accounts: dict[str, Account] = {}

    def check(self, resource: Resource, key: ObjectKey, new: RawObject) -> None:
        """Refuse a new object that is over quota. Raises ApiError."""
        if resource not in _CHARGED or not self._objects[QUOTAS.kind]:
            return
        refusal = self._account(key.namespace).refusal(self._charge(resource, new))
        if refusal is not None:
            message = f'{resource} "{key.name}" is forbidden: {refusal.message}'
            raise ApiError(HTTPStatus.FORBIDDEN, "Forbidden", message)

    def changed(self, event: EventType, resource: Resource, obj: RawObject) -> None:
        """An object has changed. If less may be used now, the sums are made again when they are asked for."""
        namespace = obj["metadata"].get("namespace", "")
        if resource == CLASSES:
            self._accounts.clear()
        elif resource in _CHARGED and event is EventType.ADDED:
            if namespace in self._accounts:
                self._accounts[namespace].add(self._charge(resource, obj))
        elif resource == QUOTAS or event is EventType.DELETED or _is_finished(resource, obj):
            self._accounts.pop(namespace, None)

    def with_status(self, quota: RawObject) -> RawObject:
        """A ResourceQuota with what is used."""
        value = parse_resource_quota(quota)
        used = next(each.used for each in self._account(value.namespace).quotas if each.name == value.name)
        hard = quota.get("spec", {}).get("hard") or {}
        status = {"hard": hard, "used": {name: str(amount) for name, amount in used.items()}}
        return {**quota, "status": status}

    def _account(self, namespace: str) -> Account:
        if namespace not in self._accounts:
            extended = self._extended()
            quotas = (parse_resource_quota(each) for each in self._objects_of(QUOTAS, namespace))
            account = self._accounts[namespace] = Account.empty(quotas, extended)
            pods = ((parse_pod(each), each["spec"]) for each in self._objects_of(PODS, namespace))
            for charge in charges_of(pods, map(parse_claim_object, self._objects_of(CLAIMS, namespace)), extended):
                account.add(charge)
        return self._accounts[namespace]

    def _charge(self, resource: Resource, obj: RawObject) -> Charge:
        if resource == PODS:
            return Charge(pod_charges(parse_pod(obj)), obj["spec"])
        claim, found = parse_claim_object(obj), None
        if claim.special_of:
            owner = self._objects[PODS.kind].get(ObjectKey(claim.claim.namespace, claim.claim.owner_name))
            found = None if owner is None else parse_pod(loads(owner))
        before = charged_before(claim, found, self._special(claim))
        return Charge(claim_charges(claim.claim, self._extended(), before))

    def _special(self, claim: ClaimObject) -> list[ClaimObject]:
        """The special claims of the pod of a special claim."""
        if not claim.special_of:
            return []
        raw = self._objects_of(CLAIMS, claim.claim.namespace)
        all_special = (
            parse_claim_object(each) for each in raw if SPECIAL in (each["metadata"].get("annotations") or ())
        )
        return [each for each in all_special if each.special_of == claim.special_of]

    def _extended(self) -> Extended:
        """The extended resources that device classes serve."""
        return Extended.of(parse_device_class(loads(each)) for each in self._objects[CLASSES.kind].values())

    def _objects_of(self, resource: Resource, namespace: str) -> Iterable[RawObject]:
        texts = self._objects[resource.kind].items()
        return [loads(text) for key, text in texts if key.namespace == namespace]


def _is_finished(resource: Resource, obj: RawObject) -> bool:
    return resource == PODS and obj.get("status", {}).get("phase") in {"Succeeded", "Failed"}


_UNWATCHED = (DAEMON_SETS, EVENTS, LEASES, NAMESPACES, POOL_REQUESTS, PRIORITY_CLASSES, QUOTAS)
_SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class Follower(ABC):
    """Hears of each object that is there at first, and of each change from then on."""

    __slots__ = ()

    @abstractmethod
    def apply(self, event: Event) -> None:
        """Take in an event."""

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """Take in a list of all objects, before any event."""
        del at
        for each in objects:
            self.apply(Event(EventType.ADDED, resource, each))
        return True


class MemoryApi:
    """The objects of one cluster; implements `extender.kube.api.Api`.

    Args:
        now: the time, for timestamps.
        new_uid: makes uids.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        new_uid: Callable[[], str],
        read_pod: Callable[[Mapping[str, object]], Pod] = parse_pod,
    ) -> None:
        self._now = now
        self._new_uid = new_uid
        self._kinds: Mapping[str, WatchedKind[object]] = all_kinds(read_pod)
        self._objects: dict[str, dict[ObjectKey, bytes]] = {
            kind: {} for kind in (*RESOURCES, *(each.kind for each in _UNWATCHED))
        }
        self._foreign: dict[tuple[str, str, ObjectKey], bytes] = {}
        """Objects that are only read, by group, kind and key."""
        self._quota = QuotaAdmission(self._objects)
        self._revision = 0
        self._sinks: list[Sink] = []

    def follow(self, sink: Sink) -> None:
        """Give a sink all objects, kind by kind; and from now on each event, before the write returns."""
        for resource in RESOURCES.values():
            sink.replace(resource, self._all(resource), self._revision)
        self._sinks.append(sink)

    def copy(self, new_uid: Callable[[], str], sinks: Iterable[Sink]) -> "MemoryApi":
        """A server of its own with the same objects.

        Args:
            new_uid: makes its uids.
            sinks: know all objects, and get the events from now on.
        """
        made = copy(self)
        made._new_uid, made._sinks = new_uid, [*sinks]
        made._objects = {kind: dict(objects) for kind, objects in self._objects.items()}
        made._foreign, made._quota = dict(self._foreign), QuotaAdmission(made._objects)
        return made

    def load(self, resource: Resource, obj: Mapping[str, Any], value: object = None) -> None:
        """Add an object that was made elsewhere, with its uid, times and status. Its fields are not checked.

        Args:
            resource: its kind.
            obj: the object.
            value: the object as its kind's parser reads it; None: not known.

        Raises:
            ApiError: it exists already.
        """
        new = {**obj, "metadata": {**obj.get("metadata", {})}}
        key = self._completed(resource, new)
        self._put(resource, key, new, EventType.ADDED, _completed_value(value, new["metadata"]))

    def keep(self, resource: Resource, key: ObjectKey, obj: Mapping[str, Any]) -> None:
        """Add an object of a kind that the settings name, to be read. One of that key is replaced."""
        self._foreign[resource.group, resource.kind, key] = dumps(obj)

    def has(self, resource: Resource, key: ObjectKey) -> bool:
        """Whether there is an object."""
        return key in self._objects[resource.kind]

    # --- Api ------------------------------------------------------------------------------------------------

    def api_version(self, resource: Resource) -> str:
        """The best version of a kind."""
        return resource.api_versions()[0]

    async def get(self, resource: Resource, key: ObjectKey) -> RawObject:
        """One object."""
        return self._get(resource, key)

    async def list(self, resource: Resource) -> Listing:
        """All objects of a kind."""
        return Listing(self._all(resource), self._revision)

    async def select(self, resource: Resource, namespace: str, fields: Mapping[str, str]) -> tuple[RawObject, ...]:
        """Objects of a namespace by the values of any fields."""
        of_namespace = (obj for obj in self._all(resource) if obj["metadata"].get("namespace", "") == namespace)
        return tuple(obj for obj in of_namespace if all(_field(obj, path) == value for path, value in fields.items()))

    async def create(self, resource: Resource, obj: RawObject) -> RawObject:
        """Make an object, without a status."""
        new = {name: value for name, value in copied(obj).items() if name != "status"}
        for name in _SYSTEM_FIELDS:
            new.get("metadata", {}).pop(name, None)
        key = self._completed(resource, new)
        if resource in {CLAIMS, TEMPLATES}:
            _refuse(resource, key, admin_problems(new, self._labels_of(key.namespace)))
        if resource == PODS:
            self._prioritize(key, new)
        self._quota.check(resource, key, new)
        return self._store(resource, key, new, EventType.ADDED)

    async def update(self, resource: Resource, obj: RawObject) -> RawObject:
        """Replace all but the status."""
        return self._update(resource, copied(obj))

    async def update_status(self, resource: Resource, obj: RawObject) -> RawObject:
        """Replace the status."""
        return self._update_status(resource, copied(obj))

    async def patch(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        """Merge into all but the status."""
        return self._update(resource, self._patched(resource, key, patch))

    async def patch_status(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        """Merge into the status."""
        return self._update_status(resource, self._patched(resource, key, patch))

    async def delete(self, resource: Resource, key: ObjectKey, *, uid: str = "", resource_version: str = "") -> None:
        """Delete, or mark deleted while there are finalizers."""
        old = self._get(resource, key)
        _check_preconditions(resource, key, old, uid, resource_version)
        if not old["metadata"].get("finalizers"):
            self._remove(resource, key, old)
        elif "deletionTimestamp" not in old["metadata"]:
            old["metadata"] |= {"deletionTimestamp": self._timestamp(), "deletionGracePeriodSeconds": 0}
            self._store(resource, key, old, EventType.MODIFIED)

    async def bind_pod(self, key: ObjectKey, node: str, *, uid: str, resource_version: str = "") -> None:
        """Bind a pod that is bound to no node yet."""
        pod = self._get(PODS, key)
        _check_preconditions(PODS, key, pod, uid, resource_version)
        if pod["metadata"].get("deletionTimestamp"):
            raise _conflict(PODS, key, f"pod {key.name} is being deleted, cannot be assigned to a host")
        bound = pod["spec"].get("nodeName")
        if bound:
            raise _conflict(PODS, key, f"pod {key.name} is already assigned to node {bound!r}")
        pod["spec"]["nodeName"] = node
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._timestamp()}
        conditions = [c for c in pod.setdefault("status", {}).get("conditions", []) if c.get("type") != "PodScheduled"]
        pod["status"]["conditions"] = [*conditions, scheduled]
        self._store(PODS, key, pod, EventType.MODIFIED)

    # --- objects --------------------------------------------------------------------------------------------

    def _get(self, resource: Resource, key: ObjectKey) -> RawObject:
        foreign = resource.group, resource.kind, key
        found = self._foreign.get(foreign) if resource.is_foreign else self._objects[resource.kind].get(key)
        if found is None:
            message = f'{resource} "{key.name}" not found'
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", message)
        obj: RawObject = loads(found)
        return self._quota.with_status(obj) if resource == QUOTAS else obj

    def _all(self, resource: Resource) -> tuple[RawObject, ...]:
        return tuple(self._get(resource, key) for key in self._objects[resource.kind])

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace; empty if it does not exist."""
        found = self._objects[NAMESPACES.kind].get(ObjectKey("", namespace))
        labels: Mapping[str, str] = loads(found)["metadata"].get("labels") or {} if found else {}
        return labels

    def _prioritize(self, key: ObjectKey, pod: RawObject) -> None:
        """Give a new pod what its priority class says."""
        spec = Fields(pod["spec"], "spec", [])
        found = PriorityClasses(map(parse_priority_class, self._all(PRIORITY_CLASSES))).admitted(spec)
        if spec.problems:
            why = ", ".join(map(str, spec.problems))
            raise ApiError(HTTPStatus.FORBIDDEN, "Forbidden", f'pods "{key.name}" is forbidden: {why}')
        pod["spec"] = found

    def _completed(self, resource: Resource, obj: RawObject) -> ObjectKey:
        """Set what a new object lacks; returns its key, which no other object has."""
        metadata = obj.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{self._new_uid()[:5]}"
        if resource.namespaced and not metadata.get("namespace"):
            metadata["namespace"] = "default"
        uid = self._new_uid()
        metadata["uid"] = metadata.get("uid") or uid
        metadata["creationTimestamp"] = metadata.get("creationTimestamp") or self._timestamp()
        metadata["generation"] = 1
        if resource == PODS:
            obj["spec"] = obj.get("spec") or {}
            obj["status"] = {"phase": "Pending", **obj.get("status", {})}
        key = key_of(obj)
        if key in self._objects[resource.kind]:
            raise ApiError(HTTPStatus.CONFLICT, "AlreadyExists", f'{resource} "{key.name}" already exists')
        return key

    def _update(self, resource: Resource, obj: RawObject) -> RawObject:
        key = key_of(obj)
        old = self._get(resource, key)
        _check_version(resource, key, old, obj)
        _refuse(resource, key, _new_finalizers(obj, old))
        metadata = obj["metadata"]
        for name in _SYSTEM_FIELDS:
            metadata.pop(name, None)
        metadata.update({name: old["metadata"][name] for name in _SYSTEM_FIELDS if name in old["metadata"]})
        obj.pop("status", None)
        if "status" in old:
            obj["status"] = old["status"]
        if resource == CLAIMS:
            _refuse(resource, key, spec_problems(obj, old))
        if obj.get("spec") != old.get("spec"):
            metadata["generation"] = old["metadata"]["generation"] + 1
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            return self._remove(resource, key, obj)
        return self._store(resource, key, obj, EventType.MODIFIED)

    def _update_status(self, resource: Resource, obj: RawObject) -> RawObject:
        key = key_of(obj)
        old = self._get(resource, key)
        _check_version(resource, key, old, obj)
        new = {name: value for name, value in old.items() if name != "status"}
        if obj.get("status"):
            new["status"] = obj["status"]
        if resource == CLAIMS:
            drop_freed_devices(new, old)
            admin = admin_status_problems(new, old, self._labels_of(key.namespace))
            _refuse(resource, key, status_problems(new, old) + admin)
        return self._store(resource, key, new, EventType.MODIFIED)

    def _patched(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        old = self._get(resource, key)
        merged = merge_patch(old, copied(patch))
        if not isinstance(merged, dict):
            raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", f"the patch of {resource} {key} is not an object")
        # In a patch, the uid is a field and no precondition.
        if merged["metadata"].get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            _refuse(resource, key, ["metadata.uid: field is immutable"])
        return merged

    def _store(self, resource: Resource, key: ObjectKey, obj: RawObject, event: EventType) -> RawObject:
        """Store an object with the next revision; an unchanged object keeps its revision."""
        old = self._objects[resource.kind].get(key)
        is_changed = old is None or loads(old) != obj
        if is_changed:
            # The value that is read has its version.
            obj["metadata"]["resourceVersion"] = str(self._revision + 1)
        value = self._read(resource, key, obj)
        if is_changed:
            self._put(resource, key, obj, event, value)
        return obj

    def _put(self, resource: Resource, key: ObjectKey, obj: RawObject, event: EventType, value: object = None) -> None:
        """Store an object with the next revision; ``value``: the object as it was read, if it was."""
        self._revision += 1
        obj["metadata"]["resourceVersion"] = str(self._revision)
        text = self._objects[resource.kind][key] = dumps(obj)
        self._quota.changed(event, resource, obj)
        self._publish(event, resource, text, value)

    def _remove(self, resource: Resource, key: ObjectKey, last: RawObject) -> RawObject:
        self._revision += 1
        last["metadata"]["resourceVersion"] = str(self._revision)
        del self._objects[resource.kind][key]
        self._quota.changed(EventType.DELETED, resource, last)
        text = dumps(last)
        self._publish(EventType.DELETED, resource, text)
        return _decoded(text)

    def _publish(self, type_: EventType, resource: Resource, text: bytes, value: object = None) -> None:
        """Give all followers one event; they do not change its object."""
        if resource.kind in self._kinds and self._sinks:
            event = Event(type_, resource, _decoded(text), value)
            for sink in self._sinks:
                sink.apply(event)

    def _read(self, resource: Resource, key: ObjectKey, obj: RawObject) -> object:
        """The object as a value of its kind; None if the kind is not watched."""
        kind = self._kinds.get(resource.kind)
        found = None if kind is None else read(kind, obj)
        if isinstance(found, Unreadable):
            _refuse(resource, key, [found.problem])
        return found

    def _timestamp(self) -> str:
        return timestamp(self._now())


def _completed_value(value: object, metadata: Mapping[str, Any]) -> object:
    """The value of an object that was completed; None if it has to be read again. Only slices and nodes are many."""
    if isinstance(value, Slice):
        return replace(value, created=metadata["creationTimestamp"], revision=metadata["generation"])
    return value if isinstance(value, NodeObject) else None


def merge_patch(target: object, patch: object) -> object:
    """The result of a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _decoded(text: bytes) -> RawObject:
    obj: RawObject = loads(text)
    return obj


def _field(obj: RawObject, path: str) -> object:
    """The value at a path with dots; None if there is none."""
    found: object = obj
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _conflict(resource: Resource, key: ObjectKey, message: str) -> ApiError:
    return ApiError(
        HTTPStatus.CONFLICT, "Conflict", f'operation cannot be fulfilled on {resource} "{key.name}": {message}'
    )


def _check_version(resource: Resource, key: ObjectKey, old: RawObject, new: RawObject) -> None:
    metadata = new["metadata"]
    _check_preconditions(resource, key, old, metadata.get("uid") or "", metadata.get("resourceVersion") or "")


def _check_preconditions(resource: Resource, key: ObjectKey, old: RawObject, uid: str, version: str) -> None:
    is_uid, is_version = old["metadata"]["uid"], old["metadata"]["resourceVersion"]
    if uid and uid != is_uid:
        raise _conflict(resource, key, f"precondition failed: UID in precondition: {uid}, UID in object meta: {is_uid}")
    if version and version != is_version:
        raise _conflict(resource, key, "the object has been modified; please apply your changes to the latest version")


def _new_finalizers(new: RawObject, old: RawObject) -> list[str]:
    """Problems with new finalizers: an object that is being deleted takes none."""
    added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
    if added and "deletionTimestamp" in old["metadata"]:
        return ["metadata.finalizers: no new finalizers can be added if the object is being deleted"]
    return []


def _refuse(resource: Resource, key: ObjectKey, problems: Iterable[str]) -> None:
    text = ", ".join(problems)
    if text:
        message = f'{resource.kind} "{key.name}" is invalid: {text}'
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message)
