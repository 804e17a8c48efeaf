"""Problems of a cluster: what is wrong with which object, what it costs, and what to do about it.

Each feature finds its own problems; `extender.faces.assembly` has the table of all that look for some.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from extender.cluster.snapshot import Snapshot
from extender.framework.decision_log import DecisionEntry
from extender.framework.decisions.solver import Solver
from extender.kube.api import ObjectKey


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong.

    Attributes:
        cause: one of a few words, for metrics.
        kind: of the object.
        key: of the object; the namespace is empty for an object without one.
        text: what is wrong. It names objects of no other namespace, and none at all if the object has no namespace.
        cost: what it costs.
        advice: what to do.
        since: when it began, in the format of the API server, as far as the object tells; empty: not known.
    """

    cause: str
    kind: str
    key: ObjectKey
    text: str
    cost: str
    advice: str
    since: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a cluster.

    Attributes:
        now: the time.
        decisions: the latest ones, the newest first.
        pause: to be called before each small piece of work: a verb goes first.
    """

    snapshot: Snapshot
    solver: Solver
    now: datetime
    decisions: Sequence[DecisionEntry]
    pause: Callable[[], None]

    def is_older(self, time: str, age: timedelta) -> bool:
        """Whether a time of the API server is known and longer ago."""
        return bool(time) and self.now - datetime.fromisoformat(time) > age


Find: TypeAlias = Callable[[Look], Iterable[Problem]]
"""Finds the problems of one feature."""
