"""Events on pods that no node can serve, once that has lasted for a while.

The text is the first line of the pod's explanation, and the first change that would help. Numbers in that line change
all the time. So a pod is told once for each set of reasons of its scheduler, which have no such numbers, and the line
is kept for tables.
"""

import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from allocator import Clock
from allocator.tools import Recent, printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.framework.handle import Handle
from extender.framework.likeness import likeness_of
from extender.framework.pods.extended_resources.requests import request_nouns
from extender.framework.rejected_pods import PATIENCE
from extender.framework.task import UNTIL_NEWS, BackgroundTask, Rejection, share_of
from extender.plugins.requeue.pod_condition import PodConditions
from extender.tools.fairness.fair_memory import FairMemory
from extender.tools.fairness.turns import Turns
from extender.tools.faults import Faults

REASON: Final = "DevicesUnavailable"

KEPT: Final = 4096
"""Pods that wait to be told, and pods that were told."""

LIKE_PODS: Final = 256
"""Kinds of pods whose line is known for `_FRESH_SECONDS`: pods of a Job get the same line."""

_FRESH_SECONDS: Final = 60.0

_SHARE: Final = 10
"""Lines take at most this part of the time: after each, nine times as long passes until the next one."""

_LATE: Final = 6 * PATIENCE
"""After this, a pod is told the reasons of its scheduler alone."""


class Cause(NamedTuple):
    """The cause for which a pod fits nowhere.

    Attributes:
        line: in one line; empty if it is not known.
        remedy: a change that was tried and makes the pod fit, as an order; empty if none is known.
    """

    line: str = ""
    remedy: str = ""


FindCause = Callable[[Pod], Awaitable[Cause]]
"""Finds the cause for a pod."""


@dataclass(frozen=True, slots=True)
class _Rejection:
    reasons: str
    since: datetime


@dataclass(frozen=True, slots=True)
class _Told:
    """The reasons for which a pod was told, and its line."""

    reasons: str
    line: str = ""


class ToldPods:
    """The line that each pod was told, as long as the reasons of its scheduler stay."""

    def __init__(self) -> None:
        self._told = FairMemory[_Told](KEPT)

    def line(self, pod: Pod, reasons: Iterable[str] | None) -> str:
        """The line of a pod; empty if it has none, or if it was rejected for other reasons then (None: for any)."""
        found = self._told.get(pod.uid)
        return found.line if found is not None and (reasons is None or found.reasons == joined(reasons)) else ""

    def has(self, pod: Pod, reasons: str) -> bool:
        """Whether a pod was told for these reasons, or is being told."""
        found = self._told.get(pod.uid)
        return found is not None and found.reasons == reasons

    def keep(self, pod: Pod, reasons: str, line: str = "") -> None:
        """The pod is told for these reasons."""
        self._told.keep(pod.namespace, pod.uid, _Told(reasons, line))

    def forget(self, pod: Pod) -> None:
        """The pod has a node, or is gone."""
        self._told.pop(pod.uid)


class Unserved(BackgroundTask):
    """Remembers who was rejected, and tells it of those that stay pending: once for each reason that is new.

    Args:
        state: tells which pods are still pending.
        record: writes Events, in the background.
        now: the time.
        clock: measures durations, in seconds.
        faults: gets unexpected errors, each with its pod.
        find_cause: finds the lines, with what would help.
        told: keeps the lines.
    """

    def __init__(
        self,
        state: ClusterState,
        record: Callable[[Pod, Note], None],
        now: Callable[[], datetime],
        clock: Clock,
        faults: Faults,
        find_cause: FindCause,
        told: ToldPods,
    ) -> None:
        self._state = state
        self._record = record
        self._now = now
        self._clock = clock
        self._faults = faults
        self._find_cause = find_cause
        self._told = told
        self._waiting = FairMemory[_Rejection](KEPT)
        self._turns = Turns(clock)
        self._causes = Recent[tuple[float, Cause]](LIKE_PODS)
        self._rests_until = -math.inf

    def on_rejected(self, rejection: Rejection) -> None:
        """Remember the pod, once its scheduler gives up."""
        if rejection.is_final:
            pod = rejection.sent
            self.rejected(pod, rejection.result.unresolvable.counts(request_nouns(pod)))

    def on_held(self, pod: Pod, reasons: Collection[str]) -> None:
        """A scheduling gate is left on the pod, or its turn is near."""
        if reasons:
            self.rejected(pod, reasons)
        else:
            self.forget(pod)

    def on_passed(self, pod: Pod) -> None:
        """The pod has a node."""
        self.forget(pod)

    @property
    def idle_seconds(self) -> float:
        """Until a pod is rejected, if none waits to be told."""
        return 0.0 if self._waiting else UNTIL_NEWS

    async def tick(self) -> None:
        """Tell pods."""
        await self.look()

    def rejected(self, pod: Pod, reasons: Iterable[str]) -> None:
        """Filter has left the pod no node, for these reasons."""
        text = joined(reasons)
        known = self._waiting.get(pod.uid)
        if self._told.has(pod, text) or (known is not None and known.reasons == text):
            return
        if known is None:
            share = share_of(pod, self._state.snapshot)
            self._waiting.keep(share, pod.uid, _Rejection(text, self._now()))
        else:  # a reason that changes does not start the wait anew
            self._waiting.replace(pod.uid, _Rejection(text, known.since))

    def forget(self, pod: Pod) -> None:
        """The pod has a node, or is gone."""
        self._waiting.pop(pod.uid)
        self._told.forget(pod)

    async def look(self) -> None:
        """Tell what has lasted for long enough, in turns of the namespaces; at most one line is found."""
        due = self._now() - PATIENCE
        for namespace in list(self._turns.ordered(self._waiting.namespaces, str)):
            while (first := self._waiting.oldest(namespace)) is not None and first[1].since <= due:
                uid, rejection = first
                pod = self._state.snapshot.pod(uid)
                if pod is None or pod.node_name:
                    self._waiting.pop(uid)
                    continue
                is_late = rejection.since <= self._now() - _LATE
                cause = self._known_cause(pod, rejection.reasons)
                if cause is None and not is_late and self._clock() < self._rests_until:
                    break  # a line for this pod comes later; another namespace may have lines that are known
                self._waiting.pop(uid)
                self._told.keep(pod, rejection.reasons)
                with self._faults.of(f"pod {pod}"):
                    if cause is None and not is_late:
                        cause = await self._found_cause(pod, namespace, rejection.reasons)
                    self._write_event(pod, rejection.reasons, cause or Cause())

    def _known_cause(self, pod: Pod, reasons: str) -> Cause | None:
        found = self._causes.find(self._kind(pod, reasons))
        return None if found is None or found[0] <= self._clock() - _FRESH_SECONDS else found[1]

    async def _found_cause(self, pod: Pod, namespace: str, reasons: str) -> Cause:
        began = self._clock()
        try:
            cause = await self._find_cause(pod)
        finally:
            seconds = self._clock() - began
            self._turns.spend(namespace, seconds)
            self._rests_until = self._clock() + (_SHARE - 1) * seconds
        self._causes.keep(self._kind(pod, reasons), (self._clock(), cause))
        return cause

    def _kind(self, pod: Pod, reasons: str) -> Hashable:
        return pod.namespace, likeness_of(pod, self._state.snapshot), reasons

    def _write_event(self, pod: Pod, reasons: str, cause: Cause) -> None:
        """Write the Event, unless the pod has got a node meanwhile, or was rejected for other reasons."""
        if self._told.has(pod, reasons):
            self._told.keep(pod, reasons, cause.line)
            text = text_of(pod, cause.line or plain_line(reasons), cause.remedy)
            self._record(pod, Note(REASON, printable(text)))


def joined(reasons: Iterable[str]) -> str:
    """Reasons in one text that stays the same while they do: without numbers of nodes, which change all the time."""
    return "; ".join(sorted(set(reasons)))


def plain_line(reasons: str) -> str:
    """The line if no better one is known."""
    return f"no node has the devices that the pod needs: {reasons}"


def text_of(pod: Pod, line: str, remedy: str = "") -> str:
    """The Event's text."""
    remedy = f". What would help: {remedy}" if remedy else ""
    return f"{line}{remedy} (kubectl dra explain {pod.name} -n {pod.namespace} says more)"


def tasks(handle: Handle, find_cause: FindCause, told: ToldPods) -> Sequence[BackgroundTask]:
    """The background tasks for unserved pods: their Events, and their conditions."""
    if not (handle.has_schedulers and handle.settings.scheduling.pod_condition):
        return [Unserved(handle.state, handle.tell, handle.now, handle.clock, handle.faults, find_cause, told)]
    conditions = PodConditions(handle.state, handle.api, handle.now, handle.clock)

    def record(pod: Pod, note: Note) -> None:
        handle.tell(pod, note)
        conditions.want(pod, note.text)

    return [Unserved(handle.state, record, handle.now, handle.clock, handle.faults, find_cause, told), conditions]
