"""Nominations: devices are kept for a pod on a node, and the pods that hold them are evicted.

kube-scheduler forgets a nomination each time that the pod fits nowhere. So the nomination is also a condition in the
pod's status. The condition lasts until dra-extender ends it, and every replica reads it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from extender.kube.api import Api, RawObject
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kube.resources import PODS
from extender.state.objects.pods import Pod
from extender.state.pod_fields.conditions import KEPT, Keeping
from extender.writes.claim_json import WriteRefusedError
from extender.writes.conditions import DEVICES_CHANGED, condition_patch, marking_patch
from extender.writes.pods import ATTEMPTS, changed_by_others, check_unbound, patch_status, pod_of

DISRUPTION: Final = "DisruptionTarget"
"""Kubernetes' condition of a pod that is about to be evicted (KEP-3329)."""


@dataclass(frozen=True, slots=True)
class Evictor:
    """Keeps devices for pods, and evicts others."""

    api: Api
    now: Callable[[], datetime]

    async def keep(self, pod: Pod, keeping: Keeping, *, in_gang: bool = False) -> None:
        """Nominate a pod: from now on its devices on the node are kept from pods of equal or lower priority.

        The nomination names the devices and the victims. So a process that carries
        on evicts only these pods.

        Args:
            pod: a pending pod.
            keeping: what is kept for it.
            in_gang: for the gang of the pod; it goes before a nomination by a scheduler.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the pod may not be nominated, so no pod may be evicted for it.
        """

        def patch(raw: RawObject, now: Pod) -> RawObject:
            if now.uid != pod.uid:
                raise WriteRefusedError(f"pod {pod.key} was deleted and made again")
            check_unbound(now)
            if now.kept.node or (now.nominated_node and not in_gang):
                raise WriteRefusedError(f"pod {pod.key} is nominated to node {now.nominated_node} already")
            found = condition_patch(raw, KEPT, "Gang" if in_gang else "Preempting", keeping.message, self.now())
            found["status"]["nominatedNodeName"] = keeping.node
            return found

        if await patch_status(self.api, pod.key, patch) is None:
            raise WriteRefusedError(f"pod {pod.key} is gone")

    async def end(self, pod: Pod, why: str) -> Pod | None:
        """End a nomination by dra-extender. A pod that is gone or bound has none.

        Returns:
            The pod as it was before; None if it is gone.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the nomination may last.
        """

        def patch(raw: RawObject, now: Pod) -> RawObject | None:
            if now.uid != pod.uid or not now.kept.node:
                return None
            found = condition_patch(raw, KEPT, "Ended", why, self.now(), status="False")
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
            found = marking_patch(raw, DEVICES_CHANGED, "Gang", "devices are kept for the pod", self.now())
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
            return condition_patch(raw, KEPT, "Terminating", message, self.now())

        await patch_status(self.api, pod.key, patch)

    async def evict(self, victims: Sequence[Pod], preemptor: Pod) -> Mapping[str, str]:
        """Mark and delete pods, all at the same time. Returns why some of them were not deleted, by uid."""
        outcomes = await asyncio.gather(*(self._outcome(victim, preemptor) for victim in victims))
        return {victim.uid: why for victim, why in zip(victims, outcomes, strict=True) if why}

    async def _outcome(self, victim: Pod, preemptor: Pod) -> str:
        try:
            await self._evict(victim, preemptor)
        except (ApiError, WriteRefusedError, OutcomeUnknownError) as error:
            return str(error)
        return ""

    async def _evict(self, victim: Pod, preemptor: Pod) -> None:
        """Write the condition, then delete the pod in that version. If others have changed the pod, it is read again.

        A pod that is gone or terminating already is a success: its devices will be free.
        """
        for _ in range(ATTEMPTS):
            try:
                raw = await self.api.get(PODS, victim.key)
                now = pod_of(raw)
                if now.uid != victim.uid or now.deleting or now.is_finished:
                    return
                if now.priority >= preemptor.priority:
                    raise WriteRefusedError(f"its priority is {now.priority} now")
                raw = await self.api.patch_status(PODS, victim.key, self._disruption(raw, preemptor))
                version = raw["metadata"]["resourceVersion"]
                await self.api.delete(PODS, victim.key, uid=victim.uid, resource_version=version)
            except ApiError as error:
                if error.is_missing:
                    return
                if not error.is_conflict:
                    raise
            except OutcomeUnknownError:
                continue
            else:
                return
        raise changed_by_others(f"pod {victim.key}")

    def _disruption(self, raw: RawObject, preemptor: Pod) -> RawObject:
        message = f"dra-extender: preempting to accommodate pod {preemptor} of higher priority"
        return condition_patch(raw, DISRUPTION, "PreemptionByScheduler", message, self.now())
