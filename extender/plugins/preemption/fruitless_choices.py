"""Choices of victims that found no pod to evict, so that they are not made again for nothing.

A pod that no eviction helps is rejected again and again, and each choice may take half a second. So a choice is made
again when something has changed that matters, and choices for pods of one kind take a small share of the time.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from immutables import Map

from allocator.tools import Recent
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, Timeline, roams
from extender.framework.likeness import likeness_of

MOST_NAMES: Final = 200_000
"""Names of nodes that are remembered, for all kinds of pods together: about 10 MB."""

PAUSE: Final = 20.0
"""The pause after a choice, as a multiple of the time that the choice took."""

LONGEST_SECONDS: Final = 300.0
"""After this time, a choice is made again in any case."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """A choice that found no victims.

    Attributes:
        names: the nodes that it was made among; None for all nodes.
        version: the version of the snapshot that it was made on.
        nominated: the nominated pods of that snapshot.
        ended: when it ended, in seconds of the clock.
        pause: the seconds after that until it may be made again.
        is_complete: everything was tried; otherwise time was up.
    """

    names: frozenset[str] | None
    version: int
    nominated: Map[str, Map[str, None]]
    ended: float
    pause: float
    is_complete: bool

    def is_among(self, names: Iterable[str]) -> bool:
        """Whether it was made among all of these nodes."""
        return self.names is None or self.names.issuperset(names)

    def concerns(self, names: Collection[str]) -> bool:
        """Whether it was made among one of these nodes."""
        return bool(names) and (self.names is None or not self.names.isdisjoint(names))


class Fruitless:
    """Remembers choices that found no victims.

    Args:
        timeline: of the cluster.
        clock: measures durations, in seconds.
    """

    def __init__(self, timeline: Timeline, clock: Callable[[], float]) -> None:
        self._timeline = timeline
        self._clock = clock
        self._known: Recent[_Choice] = Recent(MOST_NAMES, lambda _, choice: 1 + len(choice.names or ()))

    def note(self, pod: Pod, names: Sequence[str], snapshot: Snapshot, began: float, *, is_complete: bool) -> None:
        """A choice for a pod has found no victims on a snapshot. ``began``: when it began, in seconds of the clock."""
        now = self._clock()
        own = None if len(names) >= len(snapshot.nodes) else frozenset(names)
        choice = _Choice(own, snapshot.version, snapshot.nominated, now, PAUSE * (now - began), is_complete)
        self._known.keep(_key(pod, snapshot), choice)

    def wait(self, pod: Pod, names: Sequence[str], snapshot: Snapshot) -> float:
        """Seconds until a choice for a pod may find victims; infinite if nothing has changed that matters."""
        now = self._clock()
        last = self._known.find(_key(pod, snapshot))
        if last is None or now >= last.ended + LONGEST_SECONDS or not last.is_among(names):
            return 0.0
        if last.is_complete and not self._has_changed(last, snapshot):
            return math.inf
        return max(0.0, last.ended + last.pause - now)

    def _has_changed(self, last: _Choice, snapshot: Snapshot) -> bool:
        return snapshot.nominated != last.nominated or _matters(self._timeline.since(last.version), last, snapshot)


def _key(pod: Pod, snapshot: Snapshot) -> Hashable:
    """Equal for pods for which the same pods would be evicted. Nominated pods may share claims that have a name."""
    named = tuple(each.claim_name for each in pod.claims if each.claim_name)
    return likeness_of(pod, snapshot), (pod.namespace, *named) if named else ()


_KEYED: Final = frozenset({Topic.NODE, Topic.POOL, Topic.CLAIM, Topic.POD})
"""Of these, not every change matters."""


def _matters(reach: Reach, last: _Choice, now: Snapshot) -> bool:
    """Whether other pods may be evicted after some changes, or fewer devices may be missing."""
    topics, nodes = reach.changed, reach.nodes(now, now)
    if topics is None or nodes is None or last.concerns(nodes):
        return True
    claims = (now.claims.get(key) for key in topics.get(Topic.CLAIM, ()))
    pods = (now.pods.get(key) for key in topics.get(Topic.POD, ()))
    return (
        any(topic.alters_victims for topic in topics if topic not in _KEYED)
        or any(pool not in now.inventory.pools or roams(pool, now) for pool in topics.get(Topic.POOL, ()))
        or any(claim is not None and now.held_by(claim.claim.uid) for claim in claims)
        or any(pod is None or pod.node_name for pod in pods)
    )
