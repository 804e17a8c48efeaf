"""Evictions: pods of lower priority are deleted, as kube-scheduler's preemption does it.

`extender.plugins.preemption.preemptor` chooses the victims, and counts them.

kube-scheduler deletes victims and does not use the eviction subresource. So the API server refuses no eviction for a
PodDisruptionBudget: who chooses the victims looks at the budgets.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from allocator.tools import Printable, printable
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.cluster.writes.pods.patches import ATTEMPTS, changed_by_others, condition_patch, pod_of
from extender.kube.api import Api, RawObject
from extender.kube.errors import ApiError, OutcomeUnknownError, WriteRefusedError
from extender.kube.resources import PODS

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

    async def evict(self, victims: Sequence[Pod], preemptor: Pod) -> Mapping[str, str]:
        """Mark and delete pods, all at the same time. Each gets an Event that says for whom.

        Args:
            victims: hold the devices that are kept for the preemptor.
            preemptor: with the nomination.

        Returns:
            Why some of them were not deleted, by uid.
        """
        outcomes = await asyncio.gather(*(self._outcome(victim, preemptor) for victim in victims))
        return {victim.uid: why for victim, why in zip(victims, outcomes, strict=True) if why}

    async def _outcome(self, victim: Pod, preemptor: Pod) -> str:
        try:
            await self._evict(victim, preemptor)
        except (ApiError, WriteRefusedError, OutcomeUnknownError) as error:
            return str(error)
        self.tell(victim, Note("Preempted", preempted_by(preemptor, victim), "Preempting"))
        return ""

    async def _evict(self, victim: Pod, preemptor: Pod) -> None:
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
                if now.priority >= preemptor.priority:
                    raise WriteRefusedError(f"its priority is {now.priority} now")
                raw = await self.api.patch_status(PODS, victim.key, self._disruption(raw, victim, preemptor))
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

    def _disruption(self, raw: RawObject, victim: Pod, preemptor: Pod) -> RawObject:
        message = f"dra-extender: preempting to accommodate {_named(preemptor, victim)}"
        return condition_patch(raw, DISRUPTION, "PreemptionByScheduler", printable(message), self.now())


def preempted_by(preemptor: Pod, victim: Pod) -> Printable:
    """What a victim is told. It names a preemptor of its own namespace only."""
    return printable(f"preempted by {_named(preemptor, victim)}, which needs the devices on node {preemptor.kept.node}")


def _named(preemptor: Pod, victim: Pod) -> str:
    """The pod that others are evicted for, as readers of the victim's namespace may know it."""
    is_own = preemptor.namespace == victim.namespace
    return f"{f'pod {preemptor}' if is_own else 'a pod of another namespace'} of priority {preemptor.priority}"
