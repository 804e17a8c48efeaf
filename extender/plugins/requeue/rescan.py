"""Rescan: finds the pods that wait, and of which no background task knows.

A process that starts knows no rejection, and no memory of rejections is without a bound. So the snapshot is read again:
once at the start, for a scheduler once it has begun to ask this process, and for a namespace of which a task had to
forget pods. What is found counts as rejected. A pod that no scheduler has tried yet is still in the active queue of
its scheduler. Devices that are kept for it there are of no use to others. So such pods are found only after
`UNTRIED_SECONDS`, in case the condition was lost that a scheduler writes after a try.

Only the replica that schedulers ask may act for a pod. So at the start, one pod of each scheduler is woken first: if
its scheduler then asks this process, all pods of that scheduler are found. Namespaces take turns at that, too.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import structlog

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.writer import Writer
from extender.framework.asked import Asked
from extender.framework.handle import Handle
from extender.framework.task import UNSEEN, UNTIL_NEWS, BackgroundTask, Found
from extender.kube.api import OutcomeUnknownError, WriteRefusedError
from extender.planning.kube_scheduler import DEFAULT_SCHEDULER, no_attempt
from extender.tools.fairness import Backlog, one_of_each
from extender.tools.faults import Faults

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

UNTRIED_SECONDS: Final = 30.0
"""After a rescan has left out pods that no scheduler seems to have tried, it is made again with them."""

PROBES: Final = 3
"""Pods of one scheduler that are woken to find out whether it asks this process."""

PROBE_SECONDS: Final = 2.0
"""From one of these to the next. The first one may be in the backoff of its scheduler."""

_MOST_PROBED: Final = 16
"""Pods of one scheduler that may be woken for that. Some are gone or bound by then."""

logger = structlog.get_logger()


@dataclass(slots=True)
class _Unmet:
    """A scheduler that has not asked this process.

    Attributes:
        uids: some of its pods that waited at the start.
        probes: how many of them were woken to find out whether it asks.
        again: when to wake the next one, by the clock.
    """

    uids: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_PROBED))
    probes: int = 0
    again: float = 0.0


@dataclass(frozen=True, slots=True)
class _Scope:
    """The pods that are read.

    Attributes:
        shares: as `BackgroundTask.missed` tells them.
        schedulers: those that have begun to ask.
        has_untried: their pods that no scheduler seems to have tried are found, too.
    """

    shares: frozenset[str]
    schedulers: frozenset[str]
    has_untried: bool = False

    def has(self, pod: Pod) -> bool:
        """Whether a pod may be one of those that are looked for."""
        return self.was_forgotten(pod) or pod.scheduler_name in self.schedulers

    def was_forgotten(self, pod: Pod) -> bool:
        """Whether a pod may be one that filter has rejected."""
        return UNSEEN in self.shares or pod.namespace in self.shares


class Rescan(BackgroundTask):
    """Tells other tasks of pods that wait and of which they do not know, in turns of the namespaces.

    Args:
        state: the cluster.
        writer: wakes pods.
        tasks: are told.
        asked: which schedulers ask this process.
        clock: measures durations, in seconds.
        faults: gets unexpected errors, each with its pod.
    """

    def __init__(
        self,
        state: ClusterState,
        writer: Writer,
        tasks: Sequence[BackgroundTask],
        asked: Asked,
        clock: Callable[[], float],
        faults: Faults,
    ) -> None:
        self._state = state
        self._writer = writer
        self._tasks = tasks
        self._asked = asked
        self._clock = clock
        self._faults = faults
        self._met: frozenset[str] = frozenset()
        self._new: dict[str, float] = {}
        """The schedulers that have begun to ask since the start was read, and when to look for their pods."""
        self._unmet: dict[str, _Unmet] = {}
        self._unread: Iterator[Pod] | None = None
        self._scope: _Scope | None = None
        """What is read; None: everything, because this process has just started."""
        self._missed: set[str] = set()
        self._backlog = Backlog(self._still_waits)
        """The uids of the pods that wait and that the tasks are to be told of."""
        self._has_begun = False
        self._again = 0.0
        self._with_untried = math.inf
        """When to look for the pods that were left out; infinite: none were."""

    @property
    def idle_seconds(self) -> float:
        """Until a scheduler begins to ask, if nothing is to be read or told."""
        probed = any(name not in self._met and each.probes < PROBES for name, each in self._unmet.items())
        has_read = self._has_begun and self._unread is None
        if not has_read or self._backlog or self._new or self._missed or probed:
            return 0.0
        return min(UNTIL_NEWS, self._with_untried - self._clock())

    async def tick(self) -> None:
        """Read some pods, and tell the tasks of some."""
        if self._state.not_ready:
            return
        snapshot = self._state.snapshot
        self._meet()
        for task in self._tasks:
            self._missed.update(task.missed())
        self._begin(snapshot)
        self._read()
        asked = [*self._probes(snapshot), *self._tell_tasks(snapshot)]
        for pod in asked:
            with self._faults.of(f"pod {pod}"):
                await self._wake(pod)

    def _meet(self) -> None:
        """Take over the schedulers that ask this process."""
        met = frozenset(self._asked.schedulers)
        if self._has_begun:  # what is read from now on has all of its pods
            self._new.update(dict.fromkeys(met - self._met, self._clock() + GRACE_SECONDS))
        self._new = {name: due for name, due in self._new.items() if name in met}
        self._met = met

    def _begin(self, snapshot: Snapshot) -> None:
        """Begin to read, if there is reason to and the last rescan is over."""
        now = self._clock()
        if self._unread is not None or self._backlog:
            self._again = now + PAUSE_SECONDS
        if self._unread is not None:
            return
        begun = frozenset(name for name, due in self._new.items() if now >= due)
        if not self._has_begun:
            self._has_begun = True
        elif not self._unmet.keys().isdisjoint(begun) or ((self._missed or begun) and now >= self._again):
            self._scope, self._missed = _Scope(frozenset(self._missed), begun), set()
            for name in begun:
                del self._new[name]
                self._unmet.pop(name, None)
        elif now >= self._with_untried:
            self._scope, self._with_untried = _Scope(frozenset(), self._met, has_untried=True), math.inf
        else:
            return
        self._unread = iter(snapshot.pods.values())

    def _read(self) -> None:
        """Read the next pods of the snapshot."""
        if self._unread is None:
            return
        pods = list(islice(self._unread, READ_AT_ONCE))
        for pod in pods:
            if pod.is_pending and (self._scope is None or self._scope.has(pod)) and self._may_be_tried(pod):
                if pod.scheduler_name in self._met:
                    self._find(pod)
                elif self._scope is None:
                    self._unmet.setdefault(pod.scheduler_name, _Unmet()).uids.append(pod.uid)
        if len(pods) < READ_AT_ONCE:
            self._unread = None

    def _find(self, pod: Pod) -> None:
        scope = self._scope
        if pod.is_rejected or (scope is not None and (scope.has_untried or scope.was_forgotten(pod))):
            self._backlog.add(pod.namespace, pod.uid)
        else:
            self._with_untried = min(self._with_untried, self._clock() + UNTRIED_SECONDS)

    def _may_be_tried(self, pod: Pod) -> bool:
        return pod.needs_devices and not pod.gates and not no_attempt(pod, self._asked.named)

    def _still_waits(self, uid: str) -> bool:
        pod = self._state.snapshot.pod(uid)
        return pod is not None and pod.is_pending

    def _probes(self, snapshot: Snapshot) -> Sequence[Pod]:
        """A pod of each scheduler of which it is not known whether it asks this process; a few in one turn."""
        if self._unread is not None:
            return ()
        now, due = self._clock(), dict[str, dict[str, Pod]]()
        for name, unmet in self._unmet.items():
            if name not in self._met and unmet.probes < PROBES and now >= unmet.again:
                pod = snapshot.pod(unmet.uids[0])
                unmet.uids.rotate(-1)
                if pod is not None and pod.is_pending:
                    due.setdefault(pod.namespace, {})[name] = pod
        pods = {name: pod for of_namespace in due.values() for name, pod in of_namespace.items()}
        found = []
        for name in islice(one_of_each(due), WOKEN_AT_ONCE):
            unmet = self._unmet[name]
            unmet.probes, unmet.again = unmet.probes + 1, now + PROBE_SECONDS
            found.append(pods[name])
            logger.info("scheduler tried", scheduler=name or DEFAULT_SCHEDULER, pod=str(pods[name]))
        return found

    def _tell_tasks(self, snapshot: Snapshot) -> Sequence[Pod]:
        """Tell the tasks of pods, one of each namespace after the other; returns those that are to be asked about."""
        asked: list[Pod] = []

        def tell(uid: str) -> bool:
            pod = snapshot.pod(uid)
            if pod is None:
                return True
            found = self._answer_of_tasks(pod, snapshot)
            if found is Found.FULL or (found is Found.ASK and len(asked) == WOKEN_AT_ONCE):
                return False
            if found is Found.ASK:
                asked.append(pod)
            return True

        self._backlog.offer(tell, FOUND_AT_ONCE)
        return asked

    def _answer_of_tasks(self, pod: Pod, snapshot: Snapshot) -> Found:
        """What the tasks say to a pod."""
        said = [Found.KNOWN]
        self._asked.remember(pod, snapshot)
        for task in self._tasks:
            with self._faults.of(f"pod {pod}"):
                said.append(task.on_found(pod, snapshot))
        return max(said)

    async def _wake(self, pod: Pod) -> None:
        try:
            await self._writer.wake(pod)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("pod not woken", pod=str(pod), error=str(error))


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task that finds pods again, if there are schedulers that would try them."""
    if not handle.has_schedulers:
        return []
    others = handle.background.tasks
    return [Rescan(handle.state, handle.writer, others, handle.asked, handle.clock, handle.faults)]
