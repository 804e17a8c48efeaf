"""A cluster in this process: an API server in memory, its controllers, and the state that follows it.

The controllers make one pass at a time, on request, over what has changed since the last pass. The backlog holds pods,
PodGroups and claims that a change may concern. Source: the resource claim controller of kube-controller-manager
(Kubernetes 1.37).
"""

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import structlog

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import POD_CLAIM_NAME
from extender.cluster.objects.pods import parse_pod, parse_whole_pod
from extender.cluster.objects.resource_classes import ResourceClass
from extender.cluster.priority_classes import PriorityClass, parse_priority_class
from extender.cluster.snapshot import Unreadable
from extender.config.settings import Settings
from extender.kube.api import Api, ApiError, Event, EventType, ObjectKey, RawObject, key_of
from extender.kube.claim_rules import CREATION_FAILED, FINALIZER
from extender.kube.resources import (
    CLAIMS,
    CLASSES,
    EVENTS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    RESOURCES,
    TEMPLATES,
    Resource,
)
from extender.lab.api import Follower, MemoryApi
from extender.lab.manifests import LOADED, parse_namespace
from extender.lab.manifests import ManifestObject as Manifest
from extender.plugins.resource_classes.task import keep_device_classes
from extender.tools.faults import Faults

_NAMESPACE = uuid.UUID("5f3b9f0e-5a43-4c0f-9f53-0d3c6c0f7d11")

logger = structlog.get_logger()


class EmbeddedCluster:
    """A cluster from manifests; equal manifests give equal names and uids. ``state`` follows ``api`` at each write."""

    def __init__(
        self,
        manifests: Iterable[Manifest],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        counts_cpu: bool = False,
        cpu_of_all_pods: bool = False,
        counts_resources: bool = False,
        has_group_claims: bool = False,
        has_whole_pods: bool = False,
    ) -> None:
        """Load the manifests; what is known is as for `ClusterState`. Raises ApiError: an object is there twice."""
        self._given: set[str] = set()
        """The uids that objects had when they were loaded."""
        self._next = 0
        """The number of which the next uid is made."""
        self.api = MemoryApi(
            now=now,
            new_uid=self._new_uid,
            read_pod=parse_whole_pod if has_whole_pods else parse_pod,
        )
        self.state = ClusterState(
            counts_cpu=counts_cpu,
            cpu_of_all_pods=cpu_of_all_pods,
            counts_resources=counts_resources,
            has_group_claims=has_group_claims,
            has_whole_pods=has_whole_pods,
        )
        self._controller = ClaimController(self.api, has_group_claims)
        self._backlog = Backlog()
        self._now = now
        self._kept: tuple[object, object] | None = None
        """ResourceClasses and device classes when the device classes were last kept."""
        self.load(manifests)
        self.api.follow(self.state)
        self.api.follow(self._backlog)

    @classmethod
    def by_settings(cls, settings: Settings, manifests: Iterable[Manifest] = ()) -> "EmbeddedCluster":
        """A cluster of whole pods that counts what the settings say. Raises ApiError: an object is there twice."""
        return cls(
            manifests,
            counts_cpu=settings.scheduling.counts_cpu,
            cpu_of_all_pods=settings.scheduling.cpu_of_all_pods,
            counts_resources=settings.features.node_resources,
            has_group_claims=settings.features.group_claims,
            has_whole_pods=True,
        )

    def copy(self) -> "EmbeddedCluster":
        """A cluster of its own with the same objects. No object is read again."""
        made = copy(self)
        made._given = set(self._given)
        made.state, made._backlog = self.state.copy(), self._backlog.copy()
        made.api = self.api.copy(made._new_uid, (made.state, made._backlog))
        made._controller = replace(self._controller, api=made.api)
        return made

    def _new_uid(self) -> str:
        """A uid that no object has."""
        while True:
            uid = str(uuid.uuid5(_NAMESPACE, str(self._next)))
            self._next += 1
            if uid not in self._given:
                return uid

    def load(self, manifests: Iterable[Manifest]) -> None:
        """Add objects as they are. Raises ApiError: an object is there twice."""
        objects = tuple(manifests)
        self._given.update(each.uid for each in objects)
        namespaces = {each.name: parse_namespace(each.data) for each in objects if each.kind == NAMESPACES.kind}
        self.state.label_namespaces(namespaces)
        for each in objects:
            self.api.load(LOADED[each.kind], each.data, each.value)

    def refuse(self, problems: Mapping[tuple[str, ObjectKey], object]) -> None:
        """Remember why there are no objects of some kinds and keys: pods that need them are told."""
        for (kind, key), problem in problems.items():
            resource = LOADED[kind]
            if kind in RESOURCES and not self.api.has(resource, key):
                absent = {"metadata": {"namespace": key.namespace, "name": key.name}}
                self.state.apply(Event(EventType.ADDED, resource, absent, Unreadable(str(problem), is_refused=True)))

    def has(self, manifest: Manifest) -> bool:
        """Whether there is an object of this kind, namespace and name."""
        return self.api.has(LOADED[manifest.kind], ObjectKey(manifest.namespace, manifest.name))

    async def charged(self) -> tuple[Mapping[str, Any], ...]:
        """All objects that quota concerns: the quotas, and the objects that count in them."""
        listings = [await self.api.list(resource) for resource in (QUOTAS, CLASSES, PODS, CLAIMS)]
        return tuple(each for listing in listings for each in listing.items)

    async def priority_classes(self) -> tuple[PriorityClass, ...]:
        """All priority classes, without those of Kubernetes itself."""
        return tuple(map(parse_priority_class, (await self.api.list(PRIORITY_CLASSES)).items))

    async def replace(self, manifest: Manifest) -> None:
        """Give an object what a manifest says: labels, annotations, spec, and the status if there is one.

        Pods and claims keep their status. The spec of a pod can't be changed.

        Raises:
            ApiError: it is refused.
        """
        resource, obj = LOADED[manifest.kind], dict(manifest.data)
        written = obj["metadata"].items() if isinstance(obj["metadata"], Mapping) else ()
        obj["metadata"] = {name: value for name, value in written if name not in ("uid", "resourceVersion")}
        if resource == PODS:
            old = await self.api.get(PODS, ObjectKey(manifest.namespace, manifest.name))
            spec = obj["spec"]
            if "nodeName" in old["spec"] and isinstance(spec, Mapping):
                spec = {**spec, "nodeName": old["spec"]["nodeName"]}
            if spec != old["spec"]:
                message = "spec: field is immutable; remove the pod first"
                raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message)
            obj["spec"] = old["spec"]
        await self.api.update(resource, obj)
        if "status" in obj and resource not in (PODS, CLAIMS):
            await self.api.update_status(
                resource, {**await self.api.get(resource, key_of(obj)), "status": obj["status"]}
            )

    async def remove(self, resource: Resource, key: ObjectKey) -> None:
        """Delete an object, and let the controllers follow. Raises ApiError: there is no such object."""
        await self.api.delete(resource, key)
        await self.settle()

    async def settle(self) -> None:
        """Run the controllers until they have nothing left to do."""
        await self._keep_device_classes()
        while self._backlog.waiting.is_set():
            try:
                await self._controller.work_off(self._backlog)
            except ApiError as error:
                # After a conflict the backlog has the object again. Any other refusal would only be repeated. A refusal
                # by quota concerns users, who see an Event on the pod.
                if not error.is_over_quota:
                    logger.warning("controller", error=str(error))

    async def _keep_device_classes(self) -> None:
        found = self.state.snapshot
        if found.objects(ResourceClass) and self._kept != (found.objects(ResourceClass), found.classes):
            await keep_device_classes(self.api, self._now)
            found = self.state.snapshot
            self._kept = found.objects(ResourceClass), found.classes

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the controllers after each change while the context is open."""
        await self.settle()
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _follow(self) -> None:
        while True:
            await self._backlog.waiting.wait()
            await self.settle()


_OWNERS: Final = frozenset({PODS.kind, POD_GROUPS.kind})
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class Work(NamedTuple):
    """Objects to be looked at, in the order of the changes: PodGroups, pods that run, and claims."""

    groups: list[RawObject]
    pods: list[RawObject]
    claims: list[RawObject]


class Backlog(Follower):
    """Follows an API server, and notes for each change the pods, PodGroups and claims that it concerns.

    Without it, each change of one object would make the controllers read all objects.

    Attributes:
        waiting: set while there is something to look at.
    """

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self._pods: dict[ObjectKey, RawObject] = {}
        self._groups: dict[ObjectKey, RawObject] = {}
        self._claims: dict[ObjectKey, RawObject] = {}
        self._running: dict[str, None] = {}
        self._of_user: dict[str, dict[ObjectKey, None]] = {}
        self._changed_pods: dict[ObjectKey, None] = {}
        self._changed_groups: dict[ObjectKey, None] = {}
        self._changed_claims: dict[ObjectKey, None] = {}

    def copy(self) -> "Backlog":
        """A backlog of its own with the same work and the same objects."""
        made = Backlog()
        made._pods, made._groups, made._claims = dict(self._pods), dict(self._groups), dict(self._claims)
        made._running = dict(self._running)
        made._of_user = {uid: dict(claims) for uid, claims in self._of_user.items()}
        made._changed_pods = dict(self._changed_pods)
        made._changed_groups = dict(self._changed_groups)
        made._changed_claims = dict(self._changed_claims)
        if self.waiting.is_set():
            made.waiting.set()
        return made

    @property
    def running(self) -> Collection[str]:
        """The uids of the pods that are not finished, and of the PodGroups."""
        return self._running.keys()

    def claims_of(self, user: RawObject) -> Iterator[RawObject]:
        """The claims that a pod or a PodGroup owns or that are reserved for it."""
        return (self._claims[key] for key in self._of_user.get(user["metadata"]["uid"], ()))

    def group_of(self, pod: RawObject) -> RawObject | None:
        """The PodGroup that a pod names; None if it does not exist."""
        return self._groups.get(ObjectKey(pod["metadata"]["namespace"], group_name(pod)))

    def take(self) -> Work:
        """What is to be looked at now; it is noted no longer."""
        pods = [self._pods[key] for key in self._changed_pods if key in self._pods]
        groups = [self._groups[key] for key in self._changed_groups if key in self._groups]
        claims = [self._claims[key] for key in self._changed_claims if key in self._claims]
        for changed in (self._changed_pods, self._changed_groups, self._changed_claims):
            changed.clear()
        self.waiting.clear()
        live = [pod for pod in pods if _is_running(pod) and "deletionTimestamp" not in pod["metadata"]]
        return Work(groups, live, claims)

    def apply(self, event: Event) -> None:
        """Take in an event."""
        is_there = event.type is not EventType.DELETED
        if event.resource == PODS:
            self._put_pod(event.object, is_there=is_there)
        elif event.resource == POD_GROUPS:
            self._put_group(event.object, is_there=is_there)
        elif event.resource == CLAIMS:
            self._put_claim(event.object, is_there=is_there)
        elif event.resource == TEMPLATES:
            self._changed_pods.update(dict.fromkeys(self._pods))
            self._changed_groups.update(dict.fromkeys(self._groups))
        if self._changed_pods or self._changed_groups or self._changed_claims:
            self.waiting.set()

    def _put_pod(self, pod: RawObject, *, is_there: bool) -> None:
        key = key_of(pod)
        if is_there:
            self._pods[key] = pod
        else:
            self._pods.pop(key, None)
        self._put_user(pod, runs=is_there and _is_running(pod))
        self._changed_pods[key] = None

    def _put_group(self, group: RawObject, *, is_there: bool) -> None:
        key = key_of(group)
        if is_there:
            self._groups[key] = group
        else:
            self._groups.pop(key, None)
        self._put_user(group, runs=is_there)
        self._changed_groups[key] = None
        if (group.get("spec") or {}).get("resourceClaims"):
            pods = (own for own, pod in self._pods.items() if (own.namespace, group_name(pod)) == key)
            self._changed_pods.update(dict.fromkeys(pods))

    def _put_user(self, user: RawObject, *, runs: bool) -> None:
        uid = user["metadata"]["uid"]
        if runs:
            self._running[uid] = None
        else:
            self._running.pop(uid, None)
        self._changed_claims.update(self._of_user.get(uid, {}))

    def _put_claim(self, claim: RawObject, *, is_there: bool) -> None:
        key = key_of(claim)
        for uid in _users(self._claims.pop(key, {})):
            self._of_user[uid].pop(key, None)
            if not self._of_user[uid]:
                del self._of_user[uid]
        if is_there:
            self._claims[key] = claim
            for uid in _users(claim):
                self._of_user.setdefault(uid, {})[key] = None
        else:
            # A quota may have room again for claims that it has refused.
            waiting = (pod for pod in self._pods.values() if not pod["spec"].get("nodeName"))
            self._changed_pods.update((own, None) for own in map(key_of, waiting) if own.namespace == key.namespace)
            self._changed_groups.update((own, None) for own in self._groups if own.namespace == key.namespace)
        self._changed_claims[key] = None


def owner_of(claim: RawObject, *, of_groups: bool = True) -> str:
    """The uid of the pod or PodGroup that owns a claim; empty if there is none.

    Args:
        claim: a claim.
        of_groups: False: PodGroups do not count.
    """
    owners = claim["metadata"].get("ownerReferences") or []
    kinds = _OWNERS if of_groups else {PODS.kind}
    return next((owner["uid"] for owner in owners if owner.get("controller") and owner["kind"] in kinds), "")


def group_name(pod: RawObject) -> str:
    """The name of the PodGroup that a pod names; empty if it names none."""
    found: str = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or ""
    return found


def _users(claim: RawObject) -> frozenset[str]:
    """The uids of the pods and PodGroups that own a claim or that it is reserved for."""
    if not claim:
        return frozenset()
    reserved = (consumer["uid"] for consumer in claim.get("status", {}).get("reservedFor") or [])
    return frozenset((owner_of(claim), *reserved)) - {""}


def _is_running(pod: RawObject) -> bool:
    return pod.get("status", {}).get("phase") not in _FINISHED


_POD: Final = (PODS.group, PODS.plural)
_POD_GROUP: Final = (POD_GROUPS.group, POD_GROUPS.plural)


@dataclass(frozen=True, slots=True)
class ClaimController:
    """Creates claims from templates; releases and deletes claims of pods and PodGroups that are finished or gone.

    Attributes:
        has_group_claims: whether PodGroups have claims (gate DRAWorkloadResourceClaims).
    """

    api: Api
    has_group_claims: bool = False
    faults: Faults = field(default_factory=Faults)

    async def reconcile(self) -> None:
        """Do all that is to be done now. Raises ApiError: something was refused; all else has been done."""
        backlog = Backlog()
        for resource in (POD_GROUPS, PODS, CLAIMS):
            listing = await self.api.list(resource)
            backlog.replace(resource, listing.items, listing.revision)
        await self.work_off(backlog)

    async def work_off(self, backlog: Backlog) -> None:
        """Do what a backlog holds. Raises ApiError: something was refused; all else has been done."""
        refused: list[ApiError] = []
        groups, pods, claims = backlog.take()
        for group in groups if self.has_group_claims else ():
            with self.faults.of(f"PodGroup {key_of(group)}"):
                try:
                    await self._make_claims(POD_GROUPS, group, _own_entries(group), backlog.claims_of(group))
                except ApiError as error:
                    refused.append(error)
        for pod in pods:
            with self.faults.of(f"pod {key_of(pod)}"):
                try:
                    await self._make_claims_of(pod, backlog)
                except ApiError as error:
                    refused.append(error)
        for claim in claims:
            with self.faults.of(f"claim {key_of(claim)}"):
                try:
                    await self._release(claim, backlog.running)
                except ApiError as error:
                    refused.append(error)
        if refused:
            raise refused[0]

    async def _make_claims_of(self, pod: RawObject, backlog: Backlog) -> None:
        """Create the missing claims of a pod. An entry that is equal to one of its PodGroup gets the group's claim."""
        shared: dict[str, RawObject] = {}
        entries = _own_entries(pod)
        if self.has_group_claims and group_name(pod):
            group = backlog.group_of(pod)
            if group is None:
                return
            of_group = [each for each in entries if each in _own_entries(group)]
            made = _owned(group, backlog.claims_of(group))
            shared = {each["name"]: made[each["name"]] for each in of_group if each["name"] in made}
            entries = [each for each in entries if each not in of_group or each["name"] in shared]
        await self._make_claims(PODS, pod, entries, backlog.claims_of(pod), shared)

    async def _make_claims(
        self,
        resource: Resource,
        owner: RawObject,
        entries: Iterable[RawObject],
        claims: Iterable[RawObject],
        shared: Mapping[str, RawObject] = MappingProxyType({}),
    ) -> None:
        """Create the missing claims of a pod or a PodGroup from templates, and name them in its status."""
        owned = {**_owned(owner, claims), **shared}
        known = list(owner.get("status", {}).get("resourceClaimStatuses") or [])
        names = {entry["name"] for entry in known}
        added = []
        for entry in entries:
            if entry["name"] in names or "resourceClaimTemplateName" not in entry:
                continue
            claim = owned.get(entry["name"]) or await self._make(owner, entry)
            if claim is not None:
                added.append({"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]})
        if added:
            statuses = sorted((*known, *added), key=lambda entry: entry["name"])
            await self.api.patch_status(resource, key_of(owner), {"status": {"resourceClaimStatuses": statuses}})

    async def _make(self, owner: RawObject, entry: RawObject) -> RawObject | None:
        """The claim for an entry of a pod or PodGroup; None without its template. A refusal becomes an Event on it."""
        key = ObjectKey(owner["metadata"]["namespace"], entry["resourceClaimTemplateName"])
        try:
            template = await self.api.get(TEMPLATES, key)
        except ApiError as error:
            if error.is_missing:
                return None
            raise
        try:
            return await self.api.create(CLAIMS, claim_from(template, owner, entry["name"]))
        except ApiError as error:
            with contextlib.suppress(ApiError):  # The Event of an earlier try exists.
                await self.api.create(EVENTS, _event(owner, entry["name"], error))
            raise

    async def _release(self, claim: RawObject, running: Collection[str]) -> None:
        """Remove consumers that no longer run; without any, deallocate; without its owner, delete the claim.

        Only the owner of a consumer that is neither a pod nor a PodGroup knows when it ends.
        """
        consumers = claim.get("status", {}).get("reservedFor") or []
        left = [consumer for consumer in consumers if not self._ends(consumer) or consumer["uid"] in running]
        if len(left) < len(consumers) or (not left and "deletionTimestamp" in claim["metadata"]):
            claim = await self._drop(claim, left)
        owner = owner_of(claim, of_groups=self.has_group_claims)
        if owner and owner not in running and not left and "deletionTimestamp" not in claim["metadata"]:
            await self.api.delete(CLAIMS, key_of(claim), uid=claim["metadata"]["uid"])

    def _ends(self, consumer: RawObject) -> bool:
        """Whether it is known here when a consumer ends."""
        kind = (consumer.get("apiGroup") or "", consumer["resource"])
        return kind == _POD or (self.has_group_claims and kind == _POD_GROUP)

    async def _drop(self, claim: RawObject, left: list[RawObject]) -> RawObject:
        """Keep only some consumers. With the last one, an allocation by a scheduler (it has the finalizer) ends."""
        frees = not left and FINALIZER in claim["metadata"].get("finalizers", [])
        dropped = {"allocation", "devices"} if frees else set()
        kept = {name: value for name, value in claim.get("status", {}).items() if name not in dropped}
        claim = await self.api.update_status(CLAIMS, {**claim, "status": {**kept, "reservedFor": left}})
        return await self._unprotect(claim) if frees else claim

    async def _unprotect(self, claim: RawObject) -> RawObject:
        metadata = claim["metadata"]
        others = [name for name in metadata.get("finalizers", []) if name != FINALIZER]
        return await self.api.update(CLAIMS, {**claim, "metadata": {**metadata, "finalizers": others}})


def claim_from(template: RawObject, owner: RawObject, name: str) -> RawObject:
    """The claim to create for an entry in ``spec.resourceClaims`` of a pod or a PodGroup."""
    metadata, spec = owner["metadata"], template["spec"]
    wanted = spec.get("metadata") or {}
    reference = {**_kind(owner), "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": template["apiVersion"],
        "kind": CLAIMS.kind,
        "metadata": {
            "generateName": f"{metadata['name']}-{name}-",
            "namespace": metadata["namespace"],
            "labels": wanted.get("labels") or {},
            "annotations": {**(wanted.get("annotations") or {}), POD_CLAIM_NAME: name},
            "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": spec["spec"],
    }


def _event(owner: RawObject, entry: str, error: ApiError) -> RawObject:
    """The Event on a pod or a PodGroup with a claim that is refused."""
    metadata, kind = owner["metadata"], _kind(owner)
    identity = hashlib.sha256(f"{metadata['uid']} {entry}".encode()).hexdigest()[:16]
    regarding = {**kind, **{name: metadata[name] for name in ("namespace", "name", "uid")}}
    return {
        "apiVersion": EVENTS.api_versions()[0],
        "kind": EVENTS.kind,
        "metadata": {"namespace": metadata["namespace"], "name": f"{metadata['name']}.{identity}"},
        "type": "Warning",
        "reason": CREATION_FAILED,
        "regarding": regarding,
        "note": f"{kind['kind']}ResourceClaim {entry}: create ResourceClaim: {error}",
    }


def _kind(owner: RawObject) -> RawObject:
    """A pod that kube-scheduler has sent names no kind."""
    return {"apiVersion": owner.get("apiVersion", "v1"), "kind": owner.get("kind", PODS.kind)}


def _own_entries(owner: RawObject) -> list[RawObject]:
    """The entries in ``spec.resourceClaims`` of a pod or a PodGroup."""
    return (owner.get("spec") or {}).get("resourceClaims") or []


def _owned(owner: RawObject, claims: Iterable[RawObject]) -> dict[str, RawObject]:
    """The claims that were made for a pod or a PodGroup, by the name of the entry."""
    return {_annotation(claim): claim for claim in claims if owner_of(claim) == owner["metadata"]["uid"]}


def _annotation(claim: RawObject) -> str:
    annotations: Mapping[str, str] = claim["metadata"].get("annotations") or {}
    return annotations.get(POD_CLAIM_NAME, "")
