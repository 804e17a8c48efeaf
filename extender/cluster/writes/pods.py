"""Writes of pods: conditions and other patches, nominations, and evictions.

A pod is read from an answer of the API server, checked, and patched while others change it. Each write of a condition
changes the pod, so that its scheduler notices it. What a pod takes of its node by its claims is written into its
status (KEP-5517): kube-scheduler counts it with what the containers request, and kubelet gives it to the containers.
The API server keeps the field if a patch leaves it out, so an empty list removes it.

kube-scheduler forgets a nomination each time that the pod fits nowhere. So a nomination is also a condition in the
pod's status. The condition lasts until dra-extender ends it, and every replica reads it.

kube-scheduler deletes victims of a preemption and does not use the eviction subresource, and so do we. So the API
server refuses no eviction for a PodDisruptionBudget: who chooses the victims looks at the budgets.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from allocator import InvalidObjectError
from allocator.tools import Printable, printable
from extender.cluster.objects.pods import KEPT, Keeping, Pod, parse_pod
from extender.cluster.resources import ClaimResources
from extender.cluster.writes.events import Note
from extender.kube.api import (
    Api,
    ApiError,
    ObjectKey,
    OutcomeUnknownError,
    RawObject,
    WriteRefusedError,
    key_of,
    timestamp,
)
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
    """Like `pod_of`; raises WriteRefusedError if this is another pod of that name."""
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


async def lift_gate(api: Api, pod: Pod) -> None:
    """Take the only scheduling gate from a pod, in the version that is known.

    Raises:
        ApiError, OutcomeUnknownError: as `Api.patch`; a conflict if the pod has changed or is another one.
    """
    preconditions = {"uid": pod.uid, "resourceVersion": pod.resource_version}
    await api.patch(PODS, pod.key, {"metadata": preconditions, "spec": {"schedulingGates": None}})


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
    """Like `condition_patch`; the message ends with the revision of the pod, so that no two messages are equal."""
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


@dataclass(frozen=True, slots=True)
class Nominator:
    """Keeps devices for pods."""

    api: Api
    now: Callable[[], datetime]

    async def keep(
        self, pod: Pod, keeping: Keeping, *, in_gang: bool = False, refused: Callable[[], str] = lambda: ""
    ) -> Pod:
        """Nominate a pod: from now on its devices on the node are kept from pods of equal or lower priority.

        The nomination names the devices and the victims. So a process that carries on evicts only these pods.

        Args:
            pod: a pending pod.
            keeping: what is kept for it.
            in_gang: for the gang of the pod; it goes before a nomination by a scheduler.
            refused: why nothing is to be kept any more, asked before each try; empty: it is.

        Returns:
            The pod in the version that the write has replaced.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the pod may not be nominated, so no pod may be evicted for it.
        """

        def patch(raw: RawObject, now: Pod) -> RawObject:
            if now.uid != pod.uid:
                raise WriteRefusedError(f"pod {pod.key} was deleted and made again")
            check_unbound(now)
            if now.kept.node or (now.nominated_node and not in_gang):
                raise WriteRefusedError(f"pod {pod.key} is nominated to node {now.nominated_node} already")
            if why := refused():
                raise WriteRefusedError(f"pod {pod.key}: {why}")
            found = condition_patch(
                raw, KEPT, "Gang" if in_gang else "Preempting", printable(keeping.message), self.now()
            )
            found["status"]["nominatedNodeName"] = keeping.node
            return found

        before = await patch_status(self.api, pod.key, patch)
        if before is None:
            raise WriteRefusedError(f"pod {pod.key} is gone")
        return before

    async def end(self, pod: Pod, why: str, is_void: Callable[[], bool] = lambda: False) -> Pod | None:
        """End a nomination by dra-extender. A pod that is gone or bound has none.

        Args:
            pod: with the nomination.
            why: for its condition.
            is_void: whether the nomination is not to end any more, asked before each try.

        Returns:
            The pod as it was before; None if it is gone.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the nomination may last.
        """

        def patch(raw: RawObject, now: Pod) -> RawObject | None:
            if now.uid != pod.uid or not now.kept.node or is_void():
                return None
            found = condition_patch(raw, KEPT, "Ended", printable(why), self.now(), status="False")
            if raw["status"].get("nominatedNodeName") == now.kept.node:
                found["status"]["nominatedNodeName"] = None
            return found

        return await patch_status(self.api, pod.key, patch)

    async def nominate_again(self, pod: Pod) -> bool:
        """Nominate a pod to its kept node again: its scheduler forgets a nomination when the pod fits nowhere.

        Returns:
            Whether this was needed; False if the scheduler has the nomination.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the pod may not be nominated.
        """
        was_needed = False

        def patch(raw: RawObject, now: Pod) -> RawObject | None:
            nonlocal was_needed
            status = raw.get("status") or {}
            was_needed = now.uid == pod.uid and now.is_pending and bool(now.kept.node)
            was_needed = was_needed and status.get("nominatedNodeName") != now.kept.node
            if not was_needed:
                return None
            found = marking_patch(raw, DEVICES_CHANGED, "Gang", printable("devices are kept for the pod"), self.now())
            found["status"]["nominatedNodeName"] = now.kept.node
            return found

        await patch_status(self.api, pod.key, patch)
        return was_needed

    async def let_go(self, pod: Pod) -> None:
        """Write that a pod need not wait for its victims any more. What is kept for it is still kept.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the pod may still wait.
        """

        def patch(raw: RawObject, now: Pod) -> RawObject | None:
            if now.uid != pod.uid or not now.kept.victims:
                return None
            message = now.kept._replace(victims=()).message
            return condition_patch(raw, KEPT, "Terminating", printable(message), self.now())

        await patch_status(self.api, pod.key, patch)


DISRUPTION: Final = "DisruptionTarget"
"""Kubernetes' condition of a pod that is about to be evicted (KEP-3329)."""


@dataclass(frozen=True, slots=True)
class Evictor:
    """Evicts pods.

    Attributes:
        tell: writes an Event on a victim.
    """

    api: Api
    now: Callable[[], datetime]
    tell: Callable[[Pod, Note], None]

    async def evict(self, victims: Sequence[Pod], preemptor: Pod, is_waiting: Callable[[], bool]) -> Mapping[str, str]:
        """Mark and delete pods, all at the same time. Each gets an Event that says for whom.

        Args:
            victims: hold the devices that are kept for the preemptor.
            preemptor: with the nomination.
            is_waiting: whether the preemptor still waits. It may get a node while the victims are marked.

        Returns:
            Why some of them were not deleted, by uid.
        """
        outcomes = await asyncio.gather(*(self._outcome(victim, preemptor, is_waiting) for victim in victims))
        return {victim.uid: why for victim, why in zip(victims, outcomes, strict=True) if why}

    async def _outcome(self, victim: Pod, preemptor: Pod, is_waiting: Callable[[], bool]) -> str:
        try:
            await self._evict(victim, preemptor, is_waiting)
        except (ApiError, WriteRefusedError, OutcomeUnknownError) as error:
            return str(error)
        self.tell(victim, Note("Preempted", preempted_by(preemptor, victim), "Preempting"))
        return ""

    async def _evict(self, victim: Pod, preemptor: Pod, is_waiting: Callable[[], bool]) -> None:
        """Write the condition, then delete the pod in that version. If others have changed the pod, it is read again.

        A pod that is gone or terminating already is a success: its devices will be free.
        """
        unknown = None
        for _ in range(ATTEMPTS):
            try:
                raw = await self.api.get(PODS, victim.key)
                now = pod_of(raw)
                if now.uid != victim.uid or now.deleting or now.is_finished:
                    return
                priority = now.priority if victim.own_priority is None else victim.priority  # that of a group stays
                if priority >= preemptor.priority:
                    raise WriteRefusedError(f"its priority is {priority} now")
                raw = await self.api.patch_status(PODS, victim.key, self._disruption(raw, victim, preemptor))
                if not is_waiting():
                    await self._spare(raw, victim)
                version = raw["metadata"]["resourceVersion"]
                await self.api.delete(PODS, victim.key, uid=victim.uid, resource_version=version)
            except ApiError as error:
                if error.is_missing:
                    return
                if not error.is_conflict:
                    raise
                unknown = None
            except OutcomeUnknownError as error:
                unknown = error
            else:
                return
        raise unknown or changed_by_others(f"pod {victim.key}")

    async def _spare(self, raw: RawObject, victim: Pod) -> None:
        """Say of a pod that it is not evicted. Raises WriteRefusedError: it is not to be deleted."""
        text = printable("the pod that it was to be evicted for waits no more")
        patch = condition_patch(raw, DISRUPTION, "PreemptionEnded", text, self.now(), status="False")
        await self.api.patch_status(PODS, victim.key, patch)
        raise WriteRefusedError(text)

    def _disruption(self, raw: RawObject, victim: Pod, preemptor: Pod) -> RawObject:
        message = f"dra-extender: preempting to accommodate {_named(preemptor, victim)}"
        return condition_patch(raw, DISRUPTION, "PreemptionByScheduler", printable(message), self.now())


def preempted_by(preemptor: Pod, victim: Pod) -> Printable:
    """The words that a victim is told. It names a preemptor of its own namespace only."""
    return printable(f"preempted by {_named(preemptor, victim)}, which needs the devices on node {preemptor.kept.node}")


def _named(preemptor: Pod, victim: Pod) -> str:
    """The pod that others are evicted for, as readers of the victim's namespace may know it."""
    is_own = preemptor.namespace == victim.namespace
    return f"{f'pod {preemptor}' if is_own else 'a pod of another namespace'} of priority {preemptor.priority}"
