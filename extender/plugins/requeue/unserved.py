"""Events on pods that no node can serve, once that has lasted for a while; and the condition that says the same.

The text is the first line of the pod's explanation, and the first change that would help. Numbers in that line change
all the time. So a pod is told once for each set of reasons of its scheduler, which have no such numbers, and the line
is kept for tables.

An Event is gone after an hour, and the condition ``dra-extender/DevicesAllocated`` stays as long as the pod. But
kube-scheduler tries a pod again that an extender has rejected after any change of that pod. So each write costs one
more try, and the pod's backoff after it, in which the pod notices no free devices. That is why a pod gets its condition
only `DELAY_SECONDS` after its Event, in turns of the namespaces, and at most one pod does in `PAUSE_SECONDS`.
"""

import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from allocator import Clock
from allocator.tools import Printable, Recent, printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import WAITS, Pod
from extender.cluster.writes.events import Note
from extender.cluster.writes.pods import condition_patch, patch_status
from extender.framework.handle import Handle
from extender.framework.pods.extended_resources import request_nouns
from extender.framework.rejected_pods import PATIENCE
from extender.framework.task import UNTIL_NEWS, BackgroundTask, Rejection, share_of
from extender.kube.api import Api, ObjectKey, OutcomeUnknownError, RawObject, WriteRefusedError
from extender.planning.queue import likeness_of
from extender.tools.fairness import FairMemory, Turns
from extender.tools.faults import Faults

KEPT: Final = 4096
"""Pods of each memory here: not told yet, told, whose condition is to be written, and that have one."""

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


REASON: Final = "DevicesUnavailable"

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
