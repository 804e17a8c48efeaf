"""Nominations: devices are kept for a pod on a node.

kube-scheduler forgets a nomination each time that the pod fits nowhere. So the nomination is also a condition in the
pod's status. The condition lasts until dra-extender ends it, and every replica reads it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from allocator.tools import printable
from extender.cluster.objects.pods import KEPT, Keeping, Pod
from extender.cluster.writes.pods.patches import (
    DEVICES_CHANGED,
    check_unbound,
    condition_patch,
    marking_patch,
    patch_status,
)
from extender.kube.api import Api, RawObject
from extender.kube.errors import WriteRefusedError


@dataclass(frozen=True, slots=True)
class Nominator:
    """Keeps devices for pods."""

    api: Api
    now: Callable[[], datetime]

    async def keep(self, pod: Pod, keeping: Keeping, *, in_gang: bool = False) -> Pod:
        """Nominate a pod: from now on its devices on the node are kept from pods of equal or lower priority.

        The nomination names the devices and the victims. So a process that carries on evicts only these pods.

        Args:
            pod: a pending pod.
            keeping: what is kept for it.
            in_gang: for the gang of the pod; it goes before a nomination by a scheduler.

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
            found = condition_patch(
                raw, KEPT, "Gang" if in_gang else "Preempting", printable(keeping.message), self.now()
            )
            found["status"]["nominatedNodeName"] = keeping.node
            return found

        before = await patch_status(self.api, pod.key, patch)
        if before is None:
            raise WriteRefusedError(f"pod {pod.key} is gone")
        return before

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
