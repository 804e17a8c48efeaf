"""What the controllers of a cluster in memory have to look at: pods and claims that a change concerns."""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from extender.kube.api import CLAIMS, PODS, TEMPLATES, ObjectKey, RawObject, Resource
from extender.kube.raw import Event, EventType, key_of

_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class Backlog:
    """Follows an API server, and notes for each change the pods and claims that it concerns.

    Without it, each change of one object would make the controllers read all objects.

    Attributes:
        waiting: set while there is something to look at.
    """

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self._pods: dict[ObjectKey, RawObject] = {}
        self._claims: dict[ObjectKey, RawObject] = {}
        self._running: dict[str, ObjectKey] = {}
        self._of_pod: dict[str, dict[ObjectKey, None]] = {}
        self._changed_pods: dict[ObjectKey, None] = {}
        self._changed_claims: dict[ObjectKey, None] = {}

    @property
    def running(self) -> Collection[str]:
        """The uids of the pods that are not finished."""
        return self._running.keys()

    def claims_of(self, pod: RawObject) -> Iterator[RawObject]:
        """The claims that a pod owns or that are reserved for it."""
        return (self._claims[key] for key in self._of_pod.get(pod["metadata"]["uid"], ()))

    def take(self) -> tuple[list[RawObject], list[RawObject]]:
        """The running pods and the claims to look at now, in the order of the changes; they are noted no longer."""
        pods = [self._pods[key] for key in self._changed_pods if key in self._pods]
        claims = [self._claims[key] for key in self._changed_claims if key in self._claims]
        self._changed_pods.clear()
        self._changed_claims.clear()
        self.waiting.clear()
        return [pod for pod in pods if _is_running(pod) and "deletionTimestamp" not in pod["metadata"]], claims

    def apply(self, event: Event) -> None:
        """Take in an event."""
        is_there = event.type is not EventType.DELETED
        if event.resource == PODS:
            self._put_pod(event.object, is_there=is_there)
        elif event.resource == CLAIMS:
            self._put_claim(event.object, is_there=is_there)
        elif event.resource == TEMPLATES:
            self._changed_pods.update(dict.fromkeys(self._pods))
        if self._changed_pods or self._changed_claims:
            self.waiting.set()

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """Take in a list of all objects, before any event."""
        del at
        for each in objects:
            self.apply(Event(EventType.ADDED, resource, each))
        return True

    def _put_pod(self, pod: RawObject, *, is_there: bool) -> None:
        key, uid = key_of(pod), pod["metadata"]["uid"]
        if is_there:
            self._pods[key] = pod
        else:
            self._pods.pop(key, None)
        if is_there and _is_running(pod):
            self._running[uid] = key
        else:
            self._running.pop(uid, None)
        self._changed_pods[key] = None
        self._changed_claims.update(self._of_pod.get(uid, {}))

    def _put_claim(self, claim: RawObject, *, is_there: bool) -> None:
        key = key_of(claim)
        for uid in _users(self._claims.pop(key, {})):
            self._of_pod[uid].pop(key, None)
            if not self._of_pod[uid]:
                del self._of_pod[uid]
        if is_there:
            self._claims[key] = claim
            for uid in _users(claim):
                self._of_pod.setdefault(uid, {})[key] = None
        else:
            # A quota may have room again for claims that it has refused.
            waiting = (pod for pod in self._pods.values() if not pod["spec"].get("nodeName"))
            self._changed_pods.update((own, None) for own in map(key_of, waiting) if own.namespace == key.namespace)
        self._changed_claims[key] = None


def owner_of(claim: RawObject) -> str:
    """The uid of the pod that owns a claim; empty if there is none."""
    owners = claim["metadata"].get("ownerReferences") or []
    return next((owner["uid"] for owner in owners if owner.get("controller") and owner["kind"] == "Pod"), "")


def _users(claim: RawObject) -> frozenset[str]:
    """The uids of the pods that own a claim or that it is reserved for."""
    if not claim:
        return frozenset()
    reserved = (consumer["uid"] for consumer in claim.get("status", {}).get("reservedFor") or [])
    return frozenset((owner_of(claim), *reserved)) - {""}


def _is_running(pod: RawObject) -> bool:
    return pod.get("status", {}).get("phase") not in _FINISHED
