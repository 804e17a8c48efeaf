"""The backlog of the controllers of a cluster in memory: pods, PodGroups and claims that a change concerns."""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from extender.kube.api import ObjectKey, RawObject
from extender.kube.raw import Event, EventType, key_of
from extender.kube.resources import CLAIMS, POD_GROUPS, PODS, TEMPLATES, Resource

_OWNERS: Final = frozenset({PODS.kind, POD_GROUPS.kind})
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class Work(NamedTuple):
    """What is to be looked at, in the order of the changes: PodGroups, pods that run, and claims."""

    groups: list[RawObject]
    pods: list[RawObject]
    claims: list[RawObject]


class Backlog:
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

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """Take in a list of all objects, before any event."""
        del at
        for each in objects:
            self.apply(Event(EventType.ADDED, resource, each))
        return True

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
