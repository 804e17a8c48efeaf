"""Lifts the gates of pods, in the replica that holds the lease; and tells people of gates.

`SchedulingGatesPlugin` says what keeps a pod from its scheduler. `problems` finds gates that nobody lifts: the setting
is off, or the scheduler of the pod is none of ours.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import structlog
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client import Counter as CounterMetric

from allocator.tools import Recent
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.lease import SharedLease
from extender.cluster.writes.pods import lift_gate
from extender.config.settings import Settings
from extender.framework.bind_errors import BindError
from extender.framework.handle import Handle
from extender.framework.plugin import Plugin, Refused
from extender.framework.problem import Find, Look, Problem
from extender.framework.task import BackgroundTask, Rejection
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, WriteRefusedError
from extender.kube.resources import NAMESPACES
from extender.planning.kube_scheduler import at_gate, no_attempt
from extender.plugins.scheduling_gates.gate_queue import GateQueue
from extender.plugins.scheduling_gates.pod_lines import Line, PodLines
from extender.plugins.scheduling_gates.shares import Bounds
from extender.tools.fairness import Backlog


class GateMetrics:
    """Counts pods at the gate and lifted gates. Only the replica that lifts gates counts any."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "Pods that wait at the scheduling gate: those that are held, and those that wait for their turn."
        self._pods = Gauge("dra_extender_gated_pods", text, ["state"], registry=registry)
        self._lifted = CounterMetric(
            "dra_extender_lifted_gates", "Scheduling gates that were lifted.", registry=registry
        )
        self._failed = CounterMetric(
            "dra_extender_lifted_gates_failed", "Scheduling gates that could not be lifted.", registry=registry
        )
        self.at_gate(0, 0)

    def at_gate(self, held: int, waiting: int) -> None:
        """Note how many pods are held, and how many wait for their turn."""
        self._pods.labels("held").set(held)
        self._pods.labels("waiting").set(waiting)

    def lifted(self) -> None:
        """A gate was lifted."""
        self._lifted.inc()

    def failed(self) -> None:
        """A gate could not be lifted."""
        self._failed.inc()


SCHEDULING_GATES: Final = ObjectKey("kube-system", "dra-extender-scheduling-gates")
"""The lease of the replica that lifts gates."""

MOST_WRITES: Final = 8
"""The most gates of one namespace that are lifted at a time. Of all namespaces, at most `Bounds.lifted` are."""

WRITE_SECONDS: Final = 0.1
"""The time in which a turn begins writes and waits for them. Slow writes go on beside the next turns."""

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
"""After a write that failed, no gate of its namespace is lifted for a while. The time doubles with each failure in a
row."""

KEPT_PAUSES: Final = 4096
"""Namespaces whose pause is remembered."""

_LEASE: Final = ""
"""Stands for a namespace where a pause is that of the lease."""

_ADVICE: Final = (
    "turn on schedulingGates.enabled; or take the policy dra-extender-gate away, and lift the gates that are left"
)

logger = structlog.get_logger()


class _Pause(NamedTuple):
    """A pause after a write that failed: how long it is, and when it ends."""

    seconds: float
    ends: float


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
        """The version of the last snapshot that the queue has seen; None: this replica lifts no gates."""
        self._writes: dict[str, set[asyncio.Task[None]]] = {}
        """The writes by namespace, without empty sets."""
        self._waiting = Backlog[str](self._awaits_turn)
        """The uids of chosen pods for which there is no place among the writes yet."""
        self._pauses = Recent[_Pause](KEPT_PAUSES)
        """The pauses by namespace."""

    @property
    def unfinished(self) -> Sequence[asyncio.Task[None]]:
        """The writes that lift gates."""
        return [each for writes in self._writes.values() for each in writes]

    def on_rejected(self, rejection: Rejection) -> None:
        """Note that a scheduler has tried a pod in vain. Other pods waited meanwhile."""
        if rejection.is_final:
            self._queue.note_retry(rejection.sent)

    def on_bind_failed(self, uid: str, _node: str, _error: BindError) -> None:
        """Note that the bind of a pod has failed."""
        pod = self._state.snapshot.pod(uid)
        if pod is not None:
            self._queue.note_failed(pod.namespace)

    async def tick(self) -> None:
        """Lift the gates of pods whose turn it is."""
        if self._state.not_ready or self._is_paused(_LEASE):
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
        for _ in self._queue.judge():
            await asyncio.sleep(0)
        for pods in self._queue.chosen():
            for pod in pods:
                self._waiting.add(pod.namespace, pod.uid)
            await asyncio.sleep(0)
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
            self._fail(_LEASE, "lease not taken", error=str(error))
        else:
            self._pauses.forget(_LEASE)
        if not is_held and self._version is not None:
            self._version = None
            self._waiting = Backlog[str](self._awaits_turn)
            self._metrics.at_gate(0, 0)
        return is_held

    async def _lift(self) -> None:
        """Begin writes, in turns of the namespaces, each as soon as there is a place for it; for a moment."""
        now = asyncio.get_running_loop().time
        until, before = now() + WRITE_SECONDS, {*self.unfinished}
        while (left := until - now()) > 0:
            self._waiting.offer(self._begin, len(self._waiting))
            if not (begun := {*self.unfinished} - before):
                return
            await asyncio.wait(begun, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _awaits_turn(self, uid: str) -> bool:
        pod = self._state.snapshot.pod(uid)
        return pod is not None and pod.awaits_turn

    def _begin(self, uid: str) -> bool:
        """Begin to lift the gate of a pod; False: its namespace has no place now."""
        pod = self._state.snapshot.pod(uid)
        if pod is None:
            return True
        writes = self._writes.get(pod.namespace, set())
        if len(writes) >= MOST_WRITES or self._is_paused(pod.namespace):
            return False
        write = asyncio.create_task(self._lift_one(pod))
        self._writes[pod.namespace] = writes | {write}
        write.add_done_callback(partial(self._end, pod.namespace))
        return True

    def _end(self, namespace: str, write: asyncio.Task[None]) -> None:
        if left := self._writes.pop(namespace) - {write}:
            self._writes[namespace] = left

    async def _lift_one(self, pod: Pod) -> None:
        try:
            await lift_gate(self._api, pod)
        except ApiError as error:
            self._queue.not_lifted(pod.uid)
            if not (error.is_conflict or error.is_missing):
                self._fail(pod.namespace, "gate not lifted", pod=str(pod), error=str(error))
        except OutcomeUnknownError as error:
            self._fail(pod.namespace, "gate perhaps not lifted", pod=str(pod), error=str(error))
        else:
            self._pauses.forget(pod.namespace)
            self._metrics.lifted()
            logger.info("gate lifted", pod=str(pod))

    def _is_paused(self, namespace: str) -> bool:
        pause = self._pauses.find(namespace)
        return pause is not None and self._clock() < pause.ends

    def _fail(self, namespace: str, event: str, **fields: str) -> None:
        """Something of a namespace could not be written: the API server has its time."""
        self._metrics.failed()
        if not self._is_paused(namespace):  # writes that fail together count once
            before = self._pauses.find(namespace)
            seconds = FIRST_PAUSE_SECONDS if before is None else min(2 * before.seconds, LONGEST_PAUSE_SECONDS)
            self._pauses.keep(namespace, _Pause(seconds, self._clock() + seconds))
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


class SchedulingGatesPlugin(Plugin):
    """Tells of the gate of a pod. It refuses no pod: a pod that has its turn is tried, and no other is asked about."""

    name = "scheduling-gates"
    of_pod = ("gates",)

    def notes(self, pod: Pod, snapshot: Snapshot) -> Sequence[str]:
        """Return what keeps the pod from its scheduler."""
        text = at_gate(pod)
        return (text,) if text else ()


def problems(settings: Settings) -> Find:
    """Make the finder of gates that nobody lifts."""
    gates, schedulers = settings.scheduling_gates, settings.scheduling.scheduler_names

    def find(look: Look) -> Iterator[Problem]:
        """Yield a problem for each namespace with such pods."""
        stuck = Counter[str]()
        for pod in look.snapshot.pods.values():
            look.pause()
            if pod.awaits_turn and pod.is_pending and (not gates.enabled or no_attempt(pod, schedulers)):
                stuck[pod.namespace] += 1
        for namespace, number in stuck.items():
            pods = "1 pod waits" if number == 1 else f"{number} pods wait"
            text = f"{pods} at the scheduling gate dra-extender.dev/turn, and nobody lifts it"
            yield Problem("gate", NAMESPACES.kind, ObjectKey("", namespace), text, "these pods wait for ever", _ADVICE)

    return find
