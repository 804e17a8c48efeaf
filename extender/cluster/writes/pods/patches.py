"""A pod as its writers see it: read from an answer of the API server, checked, and patched while others change it.

Each write of a condition changes the pod, so that its scheduler notices it. What a pod takes of its node by its claims
is written into the pod's status (KEP-5517): kube-scheduler counts it with what the containers request, and kubelet
gives it to the containers. The API server keeps the field if a patch leaves it out, so an empty list removes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from allocator import InvalidObjectError
from allocator.tools import Printable, printable
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.resources import ClaimResources
from extender.kube.api import Api, ObjectKey, RawObject
from extender.kube.errors import ApiError, OutcomeUnknownError, WriteRefusedError
from extender.kube.raw import key_of, timestamp
from extender.kube.resources import PODS

ATTEMPTS: Final = 5
"""How often a write is tried while others change the object, or while its outcome is unknown."""


def pod_of(raw: RawObject) -> Pod:
    """The pod in an answer of the API server.

    Raises:
        OutcomeUnknownError: it can't be read, so the outcome of a write is not known either.
    """
    try:
        return parse_pod(raw)
    except InvalidObjectError as error:
        raise OutcomeUnknownError(f"pod {key_of(raw)}", error.summary) from error


def same_pod(raw: RawObject, key: ObjectKey, uid: str) -> Pod:
    """As `pod_of`; raises WriteRefusedError if this is another pod of that name."""
    pod = pod_of(raw)
    if pod.uid != uid:
        raise WriteRefusedError(f"pod {key} was deleted and made again: its uid is {pod.uid}, not {uid}")
    return pod


def check_unbound(pod: Pod) -> None:
    """Raises WriteRefusedError if a pod does not wait to be bound."""
    if pod.node_name:
        raise WriteRefusedError(f"pod {pod.key} is bound to node {pod.node_name} already")
    if pod.deleting:
        raise WriteRefusedError(f"pod {pod.key} is being deleted")
    if pod.is_finished:
        raise WriteRefusedError(f"pod {pod.key} is finished")


async def patch_status(api: Api, key: ObjectKey, patch: Callable[[RawObject, Pod], RawObject | None]) -> Pod | None:
    """Patch a pod's status from what was read; after a conflict, read and patch again.

    Args:
        api: the API server.
        key: of the pod.
        patch: makes the patch, with the version that was read as precondition; None if nothing is to be written.

    Returns:
        The pod as it was read last; None if it is gone.

    Raises:
        WriteRefusedError: the pod is not patched, and why.
        OutcomeUnknownError: it may be patched.
    """
    for _ in range(ATTEMPTS):
        try:
            raw = await api.get(PODS, key)
            pod = pod_of(raw)
            body = patch(raw, pod)
            if body is not None:
                await api.patch_status(PODS, key, body)
        except ApiError as error:
            if error.is_missing:
                return None
            if not error.is_conflict:
                raise WriteRefusedError(f"pod {key}: {error}") from error
        else:
            return pod
    raise changed_by_others(f"pod {key}")


def changed_by_others(what: str) -> WriteRefusedError:
    """The error of a write that met a conflict each time."""
    return WriteRefusedError(f"{what} was changed by others {ATTEMPTS} times")


def refused(what: str, error: ApiError) -> WriteRefusedError:
    """The error of a write that the API server refused."""
    return WriteRefusedError(f"{what} is gone" if error.is_missing else f"{what}: {error}")


DEVICES_CHANGED: Final = "dra-extender/DevicesChanged"
"""A node that was rejected for the pod may have the devices that it needs now."""


def condition_patch(
    pod: RawObject, kind: str, reason: str, message: Printable, at: datetime, *, status: str = "True"
) -> RawObject:
    """A patch of a pod's status that sets a condition of type ``kind``, and is refused if the pod has changed."""
    others = [each for each in (pod.get("status") or {}).get("conditions") or [] if each.get("type") != kind]
    condition = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(at),
    }
    preconditions = {"uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]}
    return {"metadata": preconditions, "status": {"conditions": [*others, condition]}}


def marking_patch(pod: RawObject, kind: str, reason: str, message: Printable, at: datetime) -> RawObject:
    """As `condition_patch`; the message ends with the revision of the pod, so that no two messages are equal."""
    version = pod["metadata"]["resourceVersion"]
    return condition_patch(pod, kind, reason, printable(f"{message} as of revision {version}"), at)


_FIELD = "nodeAllocatableResourceClaimStatuses"


@dataclass(frozen=True, slots=True)
class NodeResources:
    """Writes to one API server."""

    api: Api

    async def tell(self, pod: Pod, resources: Sequence[ClaimResources]) -> Pod:
        """Write what a pod takes by its claims; returns the pod after the write.

        Raises:
            WriteRefusedError: it is not written, or the API server has dropped the field.
            OutcomeUnknownError: it may be written.
        """
        try:
            told = pod_of(await self.api.patch_status(PODS, pod.key, _patch(pod, resources)))
        except ApiError as error:
            raise WriteRefusedError(f"pod {pod.key}: {error}") from error
        if told.resources.claims != tuple(resources):
            dropped = f"status.{_FIELD} (feature gate DRANodeAllocatableResources)"
            raise WriteRefusedError(f"the API server dropped {dropped} of pod {pod.key}")
        return told

    async def withdraw(self, pod: Pod) -> None:
        """Remove what a pod takes by its claims, unless the pod is bound.

        Raises:
            WriteRefusedError, OutcomeUnknownError: it may still be there.
        """

        def patch(_raw: RawObject, now: Pod) -> RawObject | None:
            if now.uid != pod.uid or now.node_name or not now.resources.claims:
                return None
            return _patch(now, (), now.resource_version)

        await patch_status(self.api, pod.key, patch)


def _patch(pod: Pod, resources: Sequence[ClaimResources], version: str = "") -> RawObject:
    """A patch of the pod's status; with a version, it is refused if the pod has changed."""
    preconditions = {"uid": pod.uid} | ({"resourceVersion": version} if version else {})
    return {"metadata": preconditions, "status": {_FIELD: [each.as_json() for each in resources]}}
