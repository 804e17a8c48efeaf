"""Lifts the gates of pods, in the replica that holds the lease."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.lease import SharedLease
from extender.cluster.writes.pods import lift_gate
from extender.framework.handle import Handle
from extender.framework.plugin import Refused
from extender.framework.task import BackgroundTask
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, WriteRefusedError
from extender.plugins.scheduling_gates.gate_queue import GateQueue
from extender.plugins.scheduling_gates.metrics import GateMetrics
from extender.plugins.scheduling_gates.pod_lines import Line, PodLines
from extender.plugins.scheduling_gates.shares import Bounds

SCHEDULING_GATES: Final = ObjectKey("kube-system", "dra-extender-scheduling-gates")
"""The lease of the replica that lifts gates."""

MOST_WRITES: Final = 32
"""Gates that are lifted at a time."""

WRITE_SECONDS: Final = 0.1
"""How long a turn waits for its writes. Slow ones go on beside the next turns."""

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
"""After a write that failed, no gate is lifted for a while. The time doubles with each failure in a row."""

logger = structlog.get_logger()


class GateLifter(BackgroundTask):
    """Gives the pods at the gate their turns.

    Args:
        state: the cluster.
        api: the API server.
        lease: this replica holds it while pods have the gate.
        lines: where each pod stands.
        queue: says whose turn it is.
        metrics: count.
    """

    def __init__(
        self,
        state: ClusterState,
        api: Api,
        lease: SharedLease,
        lines: PodLines,
        queue: GateQueue,
        metrics: GateMetrics,
    ) -> None:
        self._state, self._api, self._lease, self._lines = state, api, lease, lines
        self._queue, self._clock, self._metrics = queue, queue.clock, metrics
        self._version: int | None = None
        """Of the snapshot that the queue has seen last; None: this replica lifts no gates."""
        self._writes: set[asyncio.Task[None]] = set()
        self._waiting: list[Pod] = []
        """Chosen pods for which there is no place among the writes yet."""
        self._pause, self._again = FIRST_PAUSE_SECONDS, 0.0

    @property
    def unfinished(self) -> Sequence[asyncio.Task[None]]:
        """The writes that lift gates."""
        return [*self._writes]

    async def tick(self) -> None:
        """Lift the gates of pods whose turn it is."""
        if self._state.not_ready or self._clock() < self._again:
            return
        snapshot = self._state.snapshot
        lines = self._lines.at(snapshot)
        has_work = bool(self._writes) or next(iter(lines.namespaces(Line.GATED)), None) is not None
        if not await self._leads(has_work=has_work):
            return
        if self._version is None:
            self._queue.begin(snapshot, lines)
        else:
            self._queue.follow(snapshot, lines, self._state.since(self._version))
        self._version = snapshot.version
        self._queue.judge()
        self._waiting += self._queue.chosen()
        self._metrics.at_gate(self._queue.held, self._queue.waiting)
        await self._lift()

    async def _leads(self, *, has_work: bool) -> bool:
        """Whether this replica lifts gates now. Without work, it gives the lease back."""
        is_held = False
        try:
            if has_work:
                is_held = await self._lease.take()
            else:
                await self._lease.give_back()
        except (WriteRefusedError, OutcomeUnknownError) as error:
            self._fail("lease not taken", error=str(error))
        if not is_held and self._version is not None:
            self._version = None
            self._waiting.clear()
            self._metrics.at_gate(0, 0)
        return is_held

    async def _lift(self) -> None:
        """Begin as many writes as there are places for, and wait for them a moment."""
        while self._waiting and len(self._writes) < MOST_WRITES:
            write = asyncio.create_task(self._lift_one(self._waiting.pop(0)))
            self._writes.add(write)
            write.add_done_callback(self._writes.discard)
        if self._writes:
            await asyncio.wait(self._writes, timeout=WRITE_SECONDS)

    async def _lift_one(self, pod: Pod) -> None:
        try:
            await lift_gate(self._api, pod)
        except ApiError as error:
            self._queue.not_lifted(pod.uid)
            if not (error.is_conflict or error.is_missing):
                self._fail("gate not lifted", pod=str(pod), error=str(error))
        except OutcomeUnknownError as error:
            self._fail("gate perhaps not lifted", pod=str(pod), error=str(error))
        else:
            self._pause = FIRST_PAUSE_SECONDS
            self._metrics.lifted()
            logger.info("gate lifted", pod=str(pod))

    def _fail(self, event: str, **fields: str) -> None:
        """Something could not be written: the API server has its time."""
        self._metrics.failed()
        now = self._clock()
        if now >= self._again:  # writes that fail together count once
            self._again = now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        logger.warning(event, **fields)


def _told(handle: Handle, pod: Pod, refused: Refused | None) -> None:
    handle.background.note_held(pod, () if refused is None else (refused.refusal.reason.in_words(),))


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task that lifts gates, if the settings say so."""
    settings, metrics = handle.settings.scheduling_gates, GateMetrics(handle.registry)
    lease = handle.lease(SCHEDULING_GATES)
    if not (settings.enabled and handle.has_schedulers):
        return []
    lines = PodLines(handle.state, handle.settings.scheduling.scheduler_names)
    queue = GateQueue(handle.decider, Bounds(settings.most_lifted, settings.most_hopeless), partial(_told, handle))
    return [GateLifter(handle.state, handle.api, lease, lines, queue, metrics)]
