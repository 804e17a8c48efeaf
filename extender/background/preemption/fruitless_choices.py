"""Choices of victims that found no pod to evict, so that they are not made again for nothing.

A pod that no eviction helps is rejected again and again, and each choice may take half a second. So a choice is made
again when something has changed that matters, and choices for pods of one kind take a small share of the time.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from immutables import Map

from allocator import PoolId
from allocator.tools import Recent
from extender.background.requeue.queueing_hints import local_nodes, roams
from extender.cluster.change_log import Change
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ObjectKey
from extender.pods.likeness import likeness_of

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
        changes_since: the changes of the cluster since a version; None if they are not known any more.
        clock: measures durations, in seconds.
    """

    def __init__(self, changes_since: Callable[[int], Iterable[Change] | None], clock: Callable[[], float]) -> None:
        self._changes_since = changes_since
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
        changes = self._changes_since(last.version)
        if changes is None or snapshot.nominated != last.nominated:
            return True
        return any(_matters(change, last, snapshot) for change in changes)


def _key(pod: Pod, snapshot: Snapshot) -> Hashable:
    """Equal for pods for which the same pods would be evicted. Nominated pods may share claims that have a name."""
    named = tuple(each.claim_name for each in pod.claims if each.claim_name)
    return likeness_of(pod, snapshot), (pod.namespace, *named) if named else ()


def _matters(change: Change, last: _Choice, now: Snapshot) -> bool:
    """Whether other pods may be evicted after a change, or fewer devices may be missing."""
    match change.topic, change.key:
        case Topic.NODE, str() as name:
            return last.concerns((name,))
        case Topic.POOL, PoolId() as pool:
            is_gone = pool not in now.inventory.pools
            return is_gone or roams(pool, now, now) or last.concerns(local_nodes(pool, now, now))
        case Topic.CLAIM, ObjectKey() as key:
            claim = now.claims.get(key)
            return claim is not None and bool(now.held_by(claim.claim.uid))
        case Topic.POD, ObjectKey() as key:
            found = now.pods.get(key)
            return found is None or bool(found.node_name)
    return change.topic.alters_victims
