"""The latest decisions about pods with devices: kept for people, and written to the log."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from operator import itemgetter
from typing import Final

import structlog
from structlog.contextvars import bind_contextvars, reset_contextvars

from extender.framework.decisions.verdict import PendingReason
from extender.kube.api import ObjectKey
from extender.tools.fairness import FairMemory

_OUT_OF_TIME: Final = "not done in time"

_ERRORS: Final = {"filter": PendingReason.FILTER_ERROR, "bind": PendingReason.BIND_ERROR}
"""What a pod waits for after an error, by verb. Only the answers to these verbs say where a pod can run. preempt does
not: kube-scheduler calls it after filter has said that the pod can run nowhere."""

_MOST_REASONS: Final = 32
"""An entry keeps this number of reasons, the most frequent ones. Reasons hold names from requests, and entries stay in
memory."""

_LONGEST_TEXT: Final = 1024
"""The most characters of a reason or an error."""

MOST_CHANGES: Final = 20_000
"""The log remembers at most this number of pods with new answers, until `DecisionLog.changes` is called."""

_MOST_WEIGHT: Final = 20_000_000
"""The most weight of the latest answers about pods together, in characters."""

_ARRIVES_WITHIN: Final = timedelta(minutes=1)
"""The watch shows a new pod sooner than this, so a pod that it does not have then is gone."""

_LOOKED_AT_EACH_TIME: Final = 2
"""With each answer that leaves a pod waiting, two known ones are looked at. So those about pods that are gone, most of
which have waited, are soon found."""

_ENTRY_WEIGHT: Final = 900
"""The weight of an entry without its reasons and its error. The entry takes about this number of bytes."""


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """One answer to a scheduler.

    Attributes:
        number: counts from 1.
        id: lines of the log with this id belong to the decision.
        at: when the scheduler asked.
        seconds: the time from the question to the answer.
        node: the node of a bind; empty for the other verbs.
        passed: the number of nodes that fit.
        rejected: the most frequent reasons, each with its number of rejected nodes.
        error: the error of the answer; empty if there was none.
        waits_for: what the pod waits for after this answer, if it is pending.
    """

    number: int
    id: str
    at: datetime
    seconds: float
    verb: str
    pod: ObjectKey
    node: str = ""
    passed: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    waits_for: PendingReason = PendingReason.FITS


@dataclass(slots=True)
class Draft:
    """A decision that is being made, as far as it is known."""

    passed: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    waits_for: PendingReason = PendingReason.FITS

    def nodes(self, passed: int, rejected: Mapping[str, int], waits_for: PendingReason = PendingReason.FITS) -> None:
        """Note the number of nodes that fit, the numbers of the others by reason, and what the pod waits for."""
        self.passed = passed
        self.rejected = rejected
        self.waits_for = waits_for


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def _weight(entry: DecisionEntry) -> int:
    return _ENTRY_WEIGHT + sum(map(len, entry.rejected)) + len(entry.error)


class DecisionLog:
    """The latest entries, and the latest entry of each pod that is not bound, both in shares by namespace.

    The entry of a pod that is gone is forgotten some answers later.

    Set up logging first: the constructor keeps its logger.

    Args:
        size: how many of the latest entries are kept.
        now: the time of day.
        clock: measures durations, in seconds.
        new_id: makes ids.
        has_pod: whether the cluster has a pod of this uid.
    """

    def __init__(
        self,
        size: int,
        *,
        now: Callable[[], datetime],
        clock: Callable[[], float],
        new_id: Callable[[], str],
        has_pod: Callable[[str], bool],
    ) -> None:
        self._entries = FairMemory[DecisionEntry](size)
        self._by_pod = FairMemory[DecisionEntry](_MOST_WEIGHT, _weight)
        self._changes: deque[ObjectKey] = deque(maxlen=MOST_CHANGES)
        self._now = now
        self._clock = clock
        self._new_id = new_id
        self._has_pod = has_pod
        self._to_look_at: Iterator[str] = iter(())
        self._count = 0
        self._log = structlog.get_logger().bind()  # bound once: binding for each line costs more than most lines

    @property
    def entries(self) -> tuple[DecisionEntry, ...]:
        """The latest entries, newest first."""
        return tuple(reversed(self._entries.values()))

    def latest(self, uid: str) -> DecisionEntry | None:
        """The latest answer of filter or bind about a pod; None if it is forgotten, if there was none, or after a bind.

        Args:
            uid: the uid of the pod.
        """
        return self._by_pod.get(uid)

    def changes(self) -> Sequence[ObjectKey] | None:
        """The pods with a new answer since the last call; None: there were too many to remember."""
        is_whole = len(self._changes) < MOST_CHANGES
        taken = [self._changes.popleft() for _ in range(len(self._changes))]
        return taken if is_whole else None

    @contextmanager
    def deciding(self, verb: str, pod: ObjectKey, uid: str, node: str = "", *, share: str) -> Iterator[Draft]:
        """Note the outcome of a verb; errors are noted and raised again. Log lines within carry pod and decision.

        The entry is kept in a share: the namespace of the pod, if the cluster has the pod.
        """
        at, started, entry_id, draft, error = self._now(), self._clock(), self._new_id(), Draft(), ""
        bound = bind_contextvars(decision=entry_id, pod=str(pod))
        try:
            yield draft
        except (TimeoutError, asyncio.CancelledError):
            error = _OUT_OF_TIME
            raise
        except Exception as problem:
            error = str(problem) or type(problem).__name__
            raise
        finally:
            self._count += 1
            seconds = self._clock() - started
            most = sorted(draft.rejected.items(), key=itemgetter(1), reverse=True)[:_MOST_REASONS]
            rejected = {_cut(reason): nodes for reason, nodes in most}
            waits_for = _ERRORS[verb] if error and verb in _ERRORS else draft.waits_for
            entry = DecisionEntry(
                self._count, entry_id, at, seconds, verb, pod, node, draft.passed, rejected, _cut(error), waits_for
            )
            self._entries.keep(share, str(entry.number), entry)
            self._remember(uid, entry, share)
            self._log_decision(entry)
            reset_contextvars(**bound)

    def _remember(self, uid: str, entry: DecisionEntry, share: str) -> None:
        """Keep the latest answer about a pod. A pod that is bound waits no longer."""
        if entry.verb not in _ERRORS:
            return
        if entry.verb == "bind" and not entry.error:
            self._by_pod.pop(uid)
        else:
            self._by_pod.keep(share, uid, entry)
            if not entry.passed:
                self._forget_gone(entry.at)
        self._changes.append(entry.pod)

    def _forget_gone(self, now: datetime) -> None:
        """Forget the answers about pods that are gone, some in turn."""
        looked_at = list(islice(self._to_look_at, _LOOKED_AT_EACH_TIME))
        if not looked_at:
            self._to_look_at = iter(tuple(self._by_pod))
        for uid in looked_at:
            known = self._by_pod.get(uid)
            if known is not None and known.at + _ARRIVES_WITHIN < now and not self._has_pod(uid):
                self._by_pod.pop(uid)

    def _log_decision(self, entry: DecisionEntry) -> None:
        """A decision that leaves a pod waiting, and every bind, is logged by default."""
        told = self._log.info if entry.error or entry.verb == "bind" or not entry.passed else self._log.debug
        fields = {"node": entry.node, "rejected": entry.rejected, "error": entry.error}
        shown = {name: value for name, value in fields.items() if value}
        told("decided", verb=entry.verb, passed=entry.passed, seconds=round(entry.seconds, 4), **shown)
