"""The condition ``dra-extender/DevicesAllocated``, which says why a pod waits, in the words of the pod's Event.

An Event is gone after an hour, and the condition stays as long as the pod. But kube-scheduler tries a pod again that an
extender has rejected after any change of that pod. So each write costs one more try, and the pod's backoff after it, in
which the pod notices no free devices. That is why a pod gets its condition only `DELAY_SECONDS` after its Event, in
turns of the namespaces, and at most one pod does in `PAUSE_SECONDS`.
"""

import math
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from allocator import Clock
from allocator.tools import Printable, printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import WAITS, Pod
from extender.cluster.writes.pods import condition_patch, patch_status
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import Api, ObjectKey, OutcomeUnknownError, RawObject, WriteRefusedError
from extender.tools.fairness.fair_memory import FairMemory
from extender.tools.fairness.turns import Turns

KEPT: Final = 4096
"""Pods whose condition is to be written, and pods that have one; each in shares by namespace."""

PAUSE_SECONDS: Final = 2.0
"""The least time between two writes that make a scheduler try a pod. A try in vain costs it about 0.1 s."""

DELAY_SECONDS: Final = 60.0
"""The time from a pod's Event to its condition, so also the least time between two of its conditions. A pod that finds
devices before, or waits for other reasons, loses no time."""

_MOST_ENDED: Final = 8
"""Pods that have a node, and whose condition becomes ``True`` in one turn. Their schedulers do not try them again."""

_log = structlog.get_logger()


class _Wanted(NamedTuple):
    due: float
    text: Printable


class PodConditions(BackgroundTask):
    """Writes the condition of pods that wait, and ends it once they have a node.

    A process that starts takes over the conditions that it finds.

    Args:
        state: the cluster.
        api: the API server.
        now: the time.
        clock: measures durations, in seconds.
    """

    def __init__(self, state: ClusterState, api: Api, now: Callable[[], datetime], clock: Clock) -> None:
        self._state = state
        self._api = api
        self._now = now
        self._clock = clock
        self._wanted = FairMemory[_Wanted](KEPT)
        self._written = FairMemory[Pod](KEPT)
        """The pods whose condition was written, also by an earlier process."""
        self._turns = Turns(clock)
        self._rests_until = -math.inf
        self._has_looked = False
        self._ended_in: Mapping[ObjectKey, Pod] | None = None
        """The pods, when all conditions of those with a node were ended."""

    def want(self, pod: Pod, text: Printable) -> None:
        """Let the condition of a pod have this text, if the pod still waits for these reasons then."""
        self._wanted.keep(pod.namespace, pod.uid, _Wanted(self._clock() + DELAY_SECONDS, text))

    def on_passed(self, pod: Pod) -> None:
        """The pod is going to have a node."""
        self._wanted.pop(pod.uid)
        if pod.is_told and pod.uid not in self._written:
            self._written.keep(pod.namespace, pod.uid, pod)

    def on_held(self, pod: Pod, reasons: Collection[str]) -> None:
        """Without reasons, the pod is going to be tried."""
        if not reasons:
            self._wanted.pop(pod.uid)

    @property
    def idle_seconds(self) -> float:
        """Until pods change, if no condition is to be written."""
        is_idle = not self._wanted and self._state.snapshot.pods is self._ended_in
        return UNTIL_NEWS if is_idle else 0.0

    async def tick(self) -> None:
        """Write what is due."""
        if self._state.not_ready:
            return
        self._look_around()
        await self._end()
        if self._wanted and self._clock() >= self._rests_until:
            await self._tell_one()

    def _look_around(self) -> None:
        """Find the conditions of an earlier process, once."""
        if not self._has_looked:
            self._has_looked = True
            for pod in self._state.snapshot.pods.values():
                if pod.is_told:
                    self._written.keep(pod.namespace, pod.uid, pod)

    async def _end(self) -> None:
        """Say of pods that have a node that they wait no more."""
        pods = self._state.snapshot.pods
        if pods is self._ended_in:
            return
        ended = list[Pod]()
        for uid in tuple(self._written):
            pod = self._state.snapshot.pod(uid)
            if pod is None or pod.is_finished:
                self._written.pop(uid)
            elif pod.node_name:
                ended.append(pod)
        if len(ended) <= _MOST_ENDED:
            self._ended_in = pods
        for pod in ended[:_MOST_ENDED]:
            self._written.pop(pod.uid)
            await self._write(pod, "True", "DevicesAllocated", printable(f"the pod has node {pod.node_name}"))

    async def _tell_one(self) -> None:
        """Write the condition of one pod, in turns of the namespaces."""
        now = self._clock()
        for namespace in self._turns.ordered(self._wanted.namespaces, str):
            while (first := self._wanted.oldest(namespace)) is not None and first[1].due <= now:
                uid, wanted = first
                self._wanted.pop(uid)
                pod = self._state.snapshot.pod(uid)
                if pod is not None and pod.is_pending:
                    self._written.keep(namespace, uid, pod)
                    self._turns.spend(namespace, PAUSE_SECONDS)
                    self._rests_until = now + PAUSE_SECONDS
                    await self._write(pod, "False", "DevicesUnavailable", wanted.text)
                    return

    async def _write(self, pod: Pod, status: str, reason: str, text: Printable) -> None:
        """Write the condition of a pod, unless it has another node than is known, or says this already."""

        def patch(raw: RawObject, now: Pod) -> RawObject | None:
            if now.uid != pod.uid or now.deleting or bool(now.node_name) is (status == "False"):
                return None
            known = next(
                (each for each in (raw.get("status") or {}).get("conditions") or () if each["type"] == WAITS), None
            )
            if known is not None and (known["status"], known.get("message")) == (status, text):
                return None
            return condition_patch(raw, WAITS, reason, text, self._now(), status=status)

        try:
            await patch_status(self._api, pod.key, patch)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            _log.info("condition not written", pod=str(pod), error=str(error))
