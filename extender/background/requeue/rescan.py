"""Rescan: finds the pods that wait, and of which no background task knows.

A process that starts knows no rejection, and no memory of rejections is without a bound. So the snapshot is read again:
once at the start, and for a namespace of which a task had to forget pods. What is found counts as rejected.

Only the replica that schedulers ask may act for a pod. So at the start, one pod of each scheduler is woken first: if
its scheduler then asks this process, all pods of that scheduler are found.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import structlog

from extender.background.task import UNSEEN, BackgroundTask, Found, Rejection
from extender.fairness.backlog import Backlog
from extender.faults import Faults
from extender.kube.errors import OutcomeUnknownError
from extender.kube_scheduler.attempts import DEFAULT_SCHEDULER, no_attempt
from extender.state.cluster_state import ClusterState
from extender.state.objects.pods import Pod
from extender.state.snapshot import Snapshot
from extender.writes.errors import WriteRefusedError
from extender.writes.writer import Writer

READ_AT_ONCE: Final = 2000
"""Pods of the snapshot that are read in one turn: they take some milliseconds."""

FOUND_AT_ONCE: Final = 100
"""Pods that the tasks are told of in one turn."""

WOKEN_AT_ONCE: Final = 5
"""Pods that are woken in one turn, so that their schedulers ask about them."""

PAUSE_SECONDS: Final = 10.0
"""From the end of a rescan to the next one."""

GRACE_SECONDS: Final = 1.0
"""A scheduler that has just begun to ask comes to many of its pods within this time."""

PROBES: Final = 3
"""Pods of one scheduler that are woken to find out whether it asks this process."""

PROBE_SECONDS: Final = 2.0
"""From one of these to the next. The first one may be in the backoff of its scheduler."""

_MOST_SCHEDULERS: Final = 1024
"""Schedulers that are remembered because they ask. Their names come with the calls."""

logger = structlog.get_logger()


@dataclass(slots=True)
class _Unmet:
    """A scheduler that has not asked this process.

    Attributes:
        uids: its pods that wait.
        probes: how many of them were woken to find out whether it asks.
        again: when to wake the next one, by the clock.
    """

    uids: deque[str]
    probes: int = 0
    again: float = 0.0


class Rescan(BackgroundTask):
    """Tells other tasks of pods that wait and of which they do not know, in turns of the namespaces.

    Args:
        state: the cluster.
        writer: wakes pods.
        schedulers: the schedulers that call the extender; empty: not known.
        tasks: are told.
        clock: measures durations, in seconds.
        faults: gets unexpected errors, each with its pod.
    """

    def __init__(
        self,
        state: ClusterState,
        writer: Writer,
        schedulers: Collection[str],
        tasks: Sequence[BackgroundTask],
        clock: Callable[[], float],
        faults: Faults,
    ) -> None:
        self._state = state
        self._writer = writer
        self._schedulers = schedulers
        self._tasks = tasks
        self._clock = clock
        self._faults = faults
        self._met: dict[str, float] = {}
        self._unmet: dict[str, _Unmet] = {}
        self._unread: Iterator[Pod] | None = None
        self._scope: Collection[str] | None = None
        """The shares that are read, as `BackgroundTask.missed` tells them; None: all, as this process has started."""
        self._missed: set[str] = set()
        self._backlog = Backlog[str]()
        """The uids of the pods that wait and that the tasks are to be told of."""
        self._has_begun = False
        self._again = 0.0

    def on_rejected(self, rejection: Rejection) -> None:
        """Its scheduler asks this process."""
        self._meet(rejection.sent)

    def on_passed(self, pod: Pod) -> None:
        """Its scheduler asks this process."""
        self._meet(pod)

    async def tick(self) -> None:
        """Read some pods, and tell the tasks of some."""
        if self._state.not_ready:
            return
        snapshot = self._state.snapshot
        for task in self._tasks:
            self._missed.update(task.missed())
        self._begin(snapshot)
        self._read()
        self._leave_to_tasks()
        asked = [*self._probes(snapshot), *self._find(snapshot)]
        for pod in asked:
            with self._faults.of(f"pod {pod}"):
                await self._wake(pod)

    def _meet(self, pod: Pod) -> None:
        if pod.scheduler_name not in self._met:
            if len(self._met) >= _MOST_SCHEDULERS:
                del self._met[next(iter(self._met))]
            self._met[pod.scheduler_name] = self._clock()

    def _begin(self, snapshot: Snapshot) -> None:
        """Begin to read, if there is reason to and the last rescan is over."""
        if self._unread is not None or self._backlog:
            self._again = self._clock() + PAUSE_SECONDS
            return
        if not self._has_begun:
            self._has_begun, self._scope = True, None
        elif self._missed and self._clock() >= self._again:
            self._scope, self._missed = frozenset(self._missed), set()
        else:
            return
        self._unread = iter(snapshot.pods.values())

    def _read(self) -> None:
        """Read the next pods of the snapshot."""
        if self._unread is None:
            return
        pods = list(islice(self._unread, READ_AT_ONCE))
        for pod in pods:
            if pod.is_pending and self._is_in_scope(pod) and self._is_tried(pod):
                if pod.scheduler_name in self._met:
                    self._backlog.add(pod.namespace, pod.uid)
                elif self._scope is None:
                    self._unmet.setdefault(pod.scheduler_name, _Unmet(deque())).uids.append(pod.uid)
        if len(pods) < READ_AT_ONCE:
            self._unread = None

    def _is_in_scope(self, pod: Pod) -> bool:
        return self._scope is None or UNSEEN in self._scope or pod.namespace in self._scope

    def _is_tried(self, pod: Pod) -> bool:
        return pod.needs_devices and not no_attempt(pod, self._schedulers)

    def _leave_to_tasks(self) -> None:
        """The pods of schedulers that have begun to ask are found, if these do not come to them by themselves."""
        now = self._clock()
        for name in [name for name in self._unmet if now >= self._met.get(name, now) + GRACE_SECONDS]:
            for uid in self._unmet.pop(name).uids:
                pod = self._state.snapshot.pod(uid)
                if pod is not None:
                    self._backlog.add(pod.namespace, uid)

    def _probes(self, snapshot: Snapshot) -> Sequence[Pod]:
        """A pod of each scheduler of which it is not known whether it asks this process."""
        if self._unread is not None:
            return ()
        now, found = self._clock(), []
        for name, unmet in self._unmet.items():
            if name in self._met or unmet.probes >= PROBES or now < unmet.again:
                continue
            unmet.uids.rotate(-1)
            pod = snapshot.pod(unmet.uids[-1])
            if pod is None or not pod.is_pending:
                continue
            unmet.probes, unmet.again = unmet.probes + 1, now + PROBE_SECONDS
            found.append(pod)
            logger.info("scheduler tried", scheduler=name or DEFAULT_SCHEDULER, pod=str(pod))
        return found

    def _find(self, snapshot: Snapshot) -> Sequence[Pod]:
        """Tell the tasks of pods, one of each namespace after the other; returns those that are to be asked about."""
        asked: list[Pod] = []

        def tell(uid: str) -> bool:
            pod = snapshot.pod(uid)
            if pod is None or not pod.is_pending:
                return True
            found = self._told(pod, snapshot)
            if found is Found.FULL or (found is Found.ASK and len(asked) == WOKEN_AT_ONCE):
                return False
            if found is Found.ASK:
                asked.append(pod)
            return True

        self._backlog.offer(tell, FOUND_AT_ONCE)
        return asked

    def _told(self, pod: Pod, snapshot: Snapshot) -> Found:
        """What the tasks say to a pod."""
        said = [Found.KNOWN]
        for task in self._tasks:
            with self._faults.of(f"pod {pod}"):
                said.append(task.on_found(pod, snapshot))
        return max(said)

    async def _wake(self, pod: Pod) -> None:
        try:
            await self._writer.wake(pod)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("pod not woken", pod=str(pod), error=str(error))
