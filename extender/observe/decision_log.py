"""The latest decisions about pods with devices: kept for people, and written to the log."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog
from structlog.contextvars import bind_contextvars, reset_contextvars

from allocator import Recent
from extender.kube.api import ObjectKey

_OUT_OF_TIME: Final = "not done in time"

_ON_NODES: Final = frozenset({"filter", "bind"})
"""Verbs that say where a pod can run. preempt is asked after filter has said that it can run nowhere."""

_MOST_REASONS: Final = 32
"""Reasons of one entry, the most frequent ones. Reasons hold names from requests, and entries stay in memory."""

_LONGEST_TEXT: Final = 1024
"""Of a reason or an error, in characters."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer to a scheduler.

    Attributes:
        number: counts from 1.
        id: lines of the log with this id belong to the decision.
        at: when it was asked.
        seconds: until the answer.
        node: of a bind; empty for the other verbs.
        passed: the number of nodes that fit.
        rejected: the most frequent reasons, each with its number of rejected nodes.
        error: the error of the answer; empty if there was none.
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


@dataclass(slots=True)
class Draft:
    """What is known so far of a decision."""

    passed: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    def nodes(self, passed: int, reasons: Iterable[str]) -> None:
        """Note the number of nodes that fit, and one reason for each of the others."""
        self.passed = passed
        self.rejected = Counter(reasons)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


class DecisionLog:
    """A ring of entries, and the latest entry of each pod. Set up logging first: the constructor keeps its logger.

    Args:
        size: entries that are kept, the latest ones; and pods whose latest entry is kept.
        now: the time of day.
        clock: seconds, to measure with.
        new_id: makes ids.
    """

    def __init__(
        self, size: int, *, now: Callable[[], datetime], clock: Callable[[], float], new_id: Callable[[], str]
    ) -> None:
        self._entries: deque[Entry] = deque(maxlen=size)
        self._by_pod: Recent[Entry] = Recent(size)
        self._now = now
        self._clock = clock
        self._new_id = new_id
        self._count = 0
        self._log = structlog.get_logger().bind()  # bound once: binding for each line costs more than most lines

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The latest entries, newest first."""
        return tuple(reversed(self._entries))

    def latest(self, pod: ObjectKey) -> Entry | None:
        """The latest answer of filter or bind about a pod; None if it is forgotten, or if there was none.

        It may be about an earlier pod of that name.
        """
        return self._by_pod.find(pod)

    @contextmanager
    def deciding(self, verb: str, pod: ObjectKey, node: str = "") -> Iterator[Draft]:
        """Note the outcome of a verb; errors are noted and raised again. Log lines within carry pod and decision."""
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
            rejected = {_cut(reason): nodes for reason, nodes in draft.rejected.most_common(_MOST_REASONS)}
            entry = Entry(self._count, entry_id, at, seconds, verb, pod, node, draft.passed, rejected, _cut(error))
            self._entries.append(entry)
            if verb in _ON_NODES:
                self._by_pod.keep(pod, entry)
            self._tell(entry)
            reset_contextvars(**bound)

    def _tell(self, entry: Entry) -> None:
        """A decision that leaves a pod waiting, and every bind, is logged by default."""
        told = self._log.info if entry.error or entry.verb == "bind" or not entry.passed else self._log.debug
        fields = {"node": entry.node, "rejected": entry.rejected, "error": entry.error}
        shown = {name: value for name, value in fields.items() if value}
        told("decided", verb=entry.verb, passed=entry.passed, seconds=round(entry.seconds, 4), **shown)
