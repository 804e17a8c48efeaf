"""Pending pods with devices by where they stand: before the gate, with their scheduler, or rejected by it."""

from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from immutables import Map

from extender.cluster.indexes import removed, with_uid
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, Timeline, View
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import DEFAULT_SCHEDULER


class Line(Enum):
    """Where a pending pod stands."""

    GATED = auto()
    """Our gate keeps it from its scheduler, and no other one does."""

    LIFTED = auto()
    """It has no gate, and its scheduler has not rejected it."""

    REJECTED = auto()
    """Its scheduler has found no node for it."""

    __hash__ = object.__hash__  # a member is equal to itself alone; that of Enum is written in Python


Place: TypeAlias = tuple[Line, str]
"""A line, and a namespace."""


class Lines(NamedTuple):
    """The pods in all lines. A change makes a new value.

    Attributes:
        pods: line and namespace to the uids of the pods.
        places: each of these pods with its place and its uid.
    """

    pods: Map[Place, Map[str, None]] = Map()
    places: Map[ObjectKey, tuple[Place, str]] = Map()

    def of(self, line: Line, namespace: str) -> Collection[str]:
        """The uids of the pods of a namespace in a line."""
        return self.pods.get((line, namespace), Map())

    def namespaces(self, line: Line) -> Iterable[str]:
        """The namespaces with pods in a line."""
        return (namespace for each, namespace in self.pods if each is line)

    def moved(self, key: ObjectKey, pod: Pod | None, line: Line | None) -> "Lines":
        """With the pod of a key in another line; None: in none."""
        pods, places, before = self.pods, self.places, self.places.get(key)
        if before is not None:
            pods, places = removed(pods, *before), places.delete(key)
        if pod is not None and line is not None:
            place = line, pod.namespace
            pods, places = with_uid(pods, place, pod.uid), places.set(key, (place, pod.uid))
        return Lines(pods, places)


class PodLines(View[Lines]):
    """Knows where each pod stands.

    Args:
        timeline: of the cluster.
        schedulers: names of the schedulers that call the extender; empty: any may.
    """

    topics = frozenset({Topic.POD})
    bound = "the name of each pending pod with devices"

    def __init__(self, timeline: Timeline | None, schedulers: Collection[str]) -> None:
        super().__init__(timeline)
        self._schedulers = schedulers

    def build(self, snapshot: Snapshot) -> Lines:
        """Read all pods."""
        return self._moved(Lines(), snapshot.pods, snapshot)

    def apply(self, value: Lines, reach: Reach, snapshot: Snapshot) -> Lines:
        """Read the pods that have changed."""
        return self._moved(value, reach.keys(Topic.POD) or (), snapshot)

    def _moved(self, value: Lines, keys: Iterable[ObjectKey], snapshot: Snapshot) -> Lines:
        for key in keys:
            pod = snapshot.pods.get(key)
            value = value.moved(key, pod, None if pod is None else self._line_of(pod))
        return value

    def _line_of(self, pod: Pod) -> Line | None:
        if not pod.is_pending or (
            self._schedulers and (pod.scheduler_name or DEFAULT_SCHEDULER) not in self._schedulers
        ):
            return None
        if pod.gates:
            return Line.GATED if pod.awaits_turn else None
        return Line.REJECTED if pod.is_rejected else Line.LIFTED
