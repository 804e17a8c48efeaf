"""The latest decisions about pods with devices: kept for people, and told to the log."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog
from structlog.contextvars import bind_contextvars, reset_contextvars

from extender.kube.api import ObjectKey

_OUT_OF_TIME: Final = "not done in time"

_MOST_REASONS: Final = 32
"""Of one entry, the most frequent ones: they hold names from requests, and entries are kept."""

_LONGEST_TEXT: Final = 1024
"""Of a reason or an error, in characters."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer to a scheduler.

    Attributes:
        number: counts from 1.
        id: by which the lines of the log that belong to it are found.
        at: when it was asked.
        seconds: until the answer.
        node: of a bind; empty for the other verbs.
        passed: nodes that will do.
        rejected: reason to the number of nodes that won't, of the most frequent reasons.
        error: that was answered, empty if none was.
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
    """What is known of a decision that is being made."""

    passed: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    def nodes(self, passed: int, reasons: Iterable[str]) -> None:
        """So many nodes will do; the others won't, for these reasons."""
        self.passed = passed
        self.rejected = Counter(reasons)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


class DecisionLog:
    """A ring of entries. Logging is set up before one is made: it keeps a logger as it was then.

    Args:
        size: entries that are kept, the latest ones.
        now: the time of day.
        clock: seconds, to measure with.
        new_id: makes ids.
    """

    def __init__(
        self, size: int, *, now: Callable[[], datetime], clock: Callable[[], float], new_id: Callable[[], str]
    ) -> None:
        self._entries: deque[Entry] = deque(maxlen=size)
        self._now = now
        self._clock = clock
        self._new_id = new_id
        self._count = 0
        self._log = structlog.get_logger().bind()  # made here and not for every line: that would cost more than most do

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The latest entries, newest first."""
        return tuple(reversed(self._entries))

    @contextmanager
    def deciding(self, verb: str, pod: ObjectKey, node: str = "") -> Iterator[Draft]:
        """Note what comes of a verb, errors too, which go on. What is logged meanwhile carries pod and decision."""
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
            self._tell(entry)
            reset_contextvars(**bound)

    def _tell(self, entry: Entry) -> None:
        """What leaves a pod waiting, and every bind, is worth a line by default."""
        told = self._log.info if entry.error or entry.verb == "bind" or not entry.passed else self._log.debug
        fields = {"node": entry.node, "rejected": entry.rejected, "error": entry.error}
        shown = {name: value for name, value in fields.items() if value}
        told("decided", verb=entry.verb, passed=entry.passed, seconds=round(entry.seconds, 4), **shown)
