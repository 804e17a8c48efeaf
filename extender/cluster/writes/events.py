"""Events on pods and claims, which ``kubectl describe`` shows. A repeated Event is counted, not written again.

Nothing depends on an Event: one that can't be written is logged and dropped. Those on claims that are gone, and those
of a namespace that ends, are dropped before they are written.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from allocator.tools import Printable, printable
from extender.cluster.objects.pods import Pod
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import CLAIMS, EVENTS, PODS
from extender.tools.fairness import Backlog, FairMemory

QUOTA_EXCEEDED: Final = "QuotaExceeded"
"""Reason of the Event on a pod that is not bound because of a DeviceQuota or a ResourceQuota."""

REPORTER: Final = "dra-extender"

_LONGEST_NOTE: Final = 1024
"""The most bytes of an Event's note."""

_LONGEST_PREFIX: Final = 230
"""The most characters of the prefix of an Event's name. The whole name has 253 characters at most."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EventRates:
    """The rates at which Events are written.

    Attributes:
        series: least time between two writes of one Event; the later write updates its count.
        pause: seconds between two writes of any Events.
        per_pod: most different Events on one pod within `renewal`; more are dropped.
        renewal: see `per_pod`.
        kept: Events to remember, in shares by namespace; the least recently recorded one of a namespace goes first.
    """

    series: timedelta = timedelta(minutes=5)
    pause: float = 0.05
    per_pod: int = 10
    renewal: timedelta = timedelta(minutes=10)
    kept: int = 4096


@dataclass(frozen=True, slots=True)
class Note:
    """The content of an Event.

    Attributes:
        reason: CamelCase, for programs.
        text: for people; another text makes another Event.
        action: CamelCase, what the extender was about to do.
        is_warning: a person should look at it.
        of_claim: the Event is on the claim of a stand-in (`extender.framework.pods.claims`), not on a pod.
    """

    reason: str
    text: Printable
    action: str = "Scheduling"
    is_warning: bool = True
    of_claim: bool = False


@dataclass(slots=True)
class _Told:
    """An Event, and how often it was recorded.

    Attributes:
        name: empty until it is written.
        is_due: it waits to be written.
    """

    pod: Pod
    note: Note
    first: datetime
    last: datetime
    count: int = 1
    name: str = ""
    written: datetime | None = None
    is_due: bool = False


class Recorder:
    """Writes Events in the background.

    Args:
        api: the API server.
        now: the time.
        instance: name of this replica.
        has_claim: whether there is still a claim of a uid.
    """

    def __init__(
        self,
        api: Api,
        now: Callable[[], datetime],
        *,
        instance: str,
        has_claim: Callable[[str], bool],
        rates: EventRates = EventRates(),
    ) -> None:
        self._api = api
        self._now = now
        self._instance = instance
        self._has_claim = has_claim
        self._rates = rates
        self._told = FairMemory[_Told](rates.kept)
        self._waiting = Backlog[str](self._is_due)
        self._new_of_pod = FairMemory[Sequence[datetime]](rates.kept)
        self._task: asyncio.Task[None] | None = None

    def record(self, pod: Pod, note: Note) -> None:
        """Record an Event on a pod; a task on the running event loop writes it."""
        now, key = self._now(), hashlib.sha256(f"{pod.uid} {note}".encode()).hexdigest()
        told = self._told.get(key)
        if told is None:
            if not self._may_tell(pod, now):
                return
            told = _Told(pod, note, now, now)
        else:
            told.last = now
            told.count += 1
        self._told.keep(pod.namespace, key, told)
        if told.written is None or now - told.written >= self._rates.series:
            told.is_due = True
            self._waiting.add(pod.namespace, key)
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._write_all(), name="write events")

    def _may_tell(self, pod: Pod, now: datetime) -> bool:
        """Whether another Event on the pod is within the limit."""
        recent = [each for each in self._new_of_pod.get(pod.uid) or () if now - each < self._rates.renewal]
        may = len(recent) < self._rates.per_pod
        self._new_of_pod.keep(pod.namespace, pod.uid, [*recent, now] if may else recent)
        return may

    def _is_due(self, key: str) -> bool:
        """Whether an Event is to be written, is not forgotten meanwhile, and its claim is still there."""
        told = self._told.get(key)
        return told is not None and told.is_due and (not told.note.of_claim or self._has_claim(told.pod.uid))

    async def _write_all(self) -> None:
        """Write what waits, in turns of the namespaces."""
        taken: list[str] = []

        def take(key: str) -> bool:
            taken.append(key)
            return True

        while self._waiting:
            self._waiting.offer(take, 1)
            while taken:
                if (told := self._told.get(taken.pop())) is not None:
                    await self._try(told)

    async def _try(self, told: _Told) -> None:
        told.written, told.is_due = self._now(), False
        try:
            await self._write(told)
        except (ApiError, OutcomeUnknownError) as error:
            _log.warning("event not written", pod=str(told.pod), reason=told.note.reason, error=str(error))
            if isinstance(error, ApiError) and error.is_of_ending_namespace:
                self._drop(told.pod.namespace)
        await asyncio.sleep(self._rates.pause)

    def _drop(self, namespace: str) -> None:
        """Write none of the Events of a namespace that wait: each write would be refused, and take its time."""
        for _, told in self._told.of_namespace(namespace):
            told.is_due = False

    async def _write(self, told: _Told) -> None:
        if told.name:
            series = {"count": told.count, "lastObservedTime": _precise(told.last)}
            try:
                await self._api.patch(EVENTS, ObjectKey(told.pod.namespace, told.name), {"series": series})
            except ApiError as error:
                if not error.is_missing:
                    raise
                # The API server has dropped it after its time to live.
                told.name, told.count, told.first = "", 1, told.last
            else:
                return
        event = _event(told, self._instance, self._api.api_version(CLAIMS) if told.note.of_claim else "v1")
        await self._api.create(EVENTS, event)
        told.name = event["metadata"]["name"]


def _event(told: _Told, instance: str, api_version: str) -> RawObject:
    pod, note = told.pod, told.note
    identity = hashlib.sha256(f"{pod.uid} {note} {told.first} {instance}".encode()).hexdigest()[:16]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": EVENTS.kind,
        "metadata": {"namespace": pod.namespace, "name": f"{pod.name[:_LONGEST_PREFIX].rstrip('.-')}.{identity}"},
        "eventTime": _precise(told.first),
        "reportingController": REPORTER,
        "reportingInstance": instance,
        "type": "Warning" if note.is_warning else "Normal",
        "reason": note.reason,
        "action": note.action,
        "regarding": {
            "apiVersion": api_version,
            "kind": (CLAIMS if note.of_claim else PODS).kind,
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "note": _cut(printable(note.text)),
    }


def _cut(text: str) -> str:
    encoded = text.encode()
    return text if len(encoded) <= _LONGEST_NOTE else encoded[: _LONGEST_NOTE - 3].decode(errors="ignore") + "..."


def _precise(at: datetime) -> str:
    """A time in the format of MicroTime."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
