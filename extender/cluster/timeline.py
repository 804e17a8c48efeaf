"""Timelines: what has changed from version to version of a cluster, so that views of it read only the changes."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from allocator import PoolId
from extender.cluster.kinds import Topic
from extender.cluster.snapshot import Snapshot

_T = TypeVar("_T")

_NO_KEYS: Final[AbstractSet[Any]] = frozenset()


@dataclass(frozen=True, slots=True)
class Reach:
    """What some changes concern, each object or pool once.

    Attributes:
        changed: topic to the keys of what has changed, in the order of the changes; None: anything may have changed.
    """

    changed: Mapping[Topic, AbstractSet[Any]] | None

    @classmethod
    def of(cls, changes: Iterable[tuple[Topic, Any]]) -> "Reach":
        """The reach of changes, each a topic and a key."""
        found: dict[Topic, dict[Any, None]] = {}
        for topic, key in changes:
            found.setdefault(topic, {})[key] = None
        return cls({topic: keys.keys() for topic, keys in found.items()})

    def is_within(self, most: int) -> bool:
        """Whether it is known that at most so many objects and pools have changed."""
        return self.changed is not None and sum(map(len, self.changed.values())) <= most

    def __or__(self, other: "Reach") -> "Reach":
        """What the changes of both concern."""
        if self.changed is None or other.changed is None:
            return ANYTHING
        return Reach.of(chain(self.pairs(), other.pairs()))

    def pairs(self) -> Iterable[tuple[Topic, Any]]:
        """Topic and key of all that is known to have changed."""
        return ((topic, key) for topic, keys in (self.changed or {}).items() for key in keys)

    def among(self, topics: Iterable[Topic]) -> "Reach":
        """The changes of some topics alone."""
        if self.changed is None:
            return self
        return Reach({topic: self.changed[topic] for topic in topics if topic in self.changed})

    def keys(self, topic: Topic) -> AbstractSet[Any] | None:
        """The keys of a topic's objects that have changed; None: any may have, or be gone."""
        return None if self.changed is None else self.changed.get(topic, _NO_KEYS)

    def nodes(self, before: Snapshot, after: Snapshot) -> AbstractSet[str] | None:
        """The nodes that see other devices, or another use of pools of their own; None: any may.

        What is in use of roaming pools is left out.
        """
        if self.changed is None or Topic.TAINT_RULE in self.changed:
            return None
        found: set[str] = {*self.changed.get(Topic.NODE, ())}
        for pool in self.changed.get(Topic.POOL, ()):
            if not roams(pool, before, after):
                found |= nodes_of(pool, before, after)
            elif before.inventory.pools.get(pool) is not after.inventory.pools.get(pool):
                return None
        return found

    def pools(self, snapshot: Snapshot) -> AbstractSet[PoolId] | None:
        """The pools whose devices may be in other states; None: any may."""
        if self.changed is None or Topic.TAINT_RULE in self.changed:
            return None
        nodes, inventory = self.changed.get(Topic.NODE, ()), snapshot.inventory
        own = (pool for node in nodes for pool in inventory.local.get(node, ()))
        return dict.fromkeys([*self.changed.get(Topic.POOL, ()), *own, *(inventory.roaming if nodes else ())]).keys()


ANYTHING: Final = Reach(None)
"""The reach of changes that are not known any more."""


def roams(pool: PoolId, *snapshots: Snapshot) -> bool:
    """Whether more than one node may reach the pool in one of the snapshots."""
    return any(pool in each.inventory.roaming for each in snapshots)


def nodes_of(pool: PoolId, *snapshots: Snapshot) -> set[str]:
    """The nodes that have slices of the pool for themselves in one of the snapshots."""
    found = (each.inventory.pools[pool] for each in snapshots if pool in each.inventory.pools)
    return {name for pool in found for name in pool.local_nodes}


class Timeline(Protocol):
    """The versions of one cluster: of that which the watches show, of a fork of it, or with kept devices."""

    def since(self, version: int) -> Reach:
        """What at least has changed after a version, up to the present."""


class _Change(NamedTuple):
    """What a version has changed: an object or a pool."""

    version: int
    topic: Topic
    key: Hashable


class _Kept(NamedTuple):
    """All changes after a version; version and changes are replaced together, for readers in other threads."""

    complete_after: int
    changes: list[_Change]


class _Latest(NamedTuple):
    """What was asked last: most readers of one moment have read up to the same version."""

    after: int
    end: int
    reach: Reach


class ChangeLog:
    """The latest changes, oldest first: between ``size`` and twice as many. One thread adds; others may read."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._kept = _Kept(0, [])
        self._latest = _Latest(0, 0, Reach({}))

    def add(self, version: int, changed: Iterable[tuple[Topic, Hashable]]) -> None:
        """Append the changes of the next version: topics and keys."""
        kept = self._kept.changes
        kept.extend([_Change(version, topic, key) for topic, key in changed])  # at once, for readers in other threads
        if len(kept) > 2 * self.size:
            self._kept = _Kept(kept[-self.size - 1].version, kept[-self.size :])

    def since(self, version: int) -> Reach:
        """What has changed after a version."""
        complete_after, changes = self._kept
        if version < complete_after:
            return ANYTHING
        latest, end = self._latest, changes[-1].version if changes else 0
        if (latest.after, latest.end) == (version, end):
            return latest.reach
        first = bisect_right(changes, version, key=lambda change: change.version)
        reach = Reach.of((topic, key) for _, topic, key in changes[first:])
        self._latest = _Latest(version, end, reach)
        return reach


class View(ABC, Generic[_T]):
    """What is remembered of a cluster: built once from a snapshot, then moved by what changes.

    Threads may use a view at the same time if its `apply` leaves the value as it is and returns another one.

    Args:
        timeline: of the cluster whose snapshots `at` gets.

    Attributes:
        topics: the changes that `apply` gets.
        bound: what is remembered, at most. docs/architecture.md has both of each view.
    """

    topics: ClassVar[AbstractSet[Topic]]
    bound: ClassVar[str]

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._known: tuple[int, _T] | None = None

    @abstractmethod
    def build(self, snapshot: Snapshot) -> _T:
        """The value for a snapshot, if nothing is remembered, or not known what has changed."""

    @abstractmethod
    def apply(self, value: _T, reach: Reach, snapshot: Snapshot) -> _T:
        """The value for a snapshot, from an earlier one; ``reach``: at least what has changed of the topics."""

    def at(self, snapshot: Snapshot) -> _T:
        """The value for a snapshot, at the cost of what has changed."""
        value, known = None, self._known
        if known is not None:
            reach = self._timeline.since(known[0]).among(self.topics)
            value = None if reach.changed is None else self.apply(known[1], reach, snapshot)
        value = self.build(snapshot) if value is None else value
        self._known = snapshot.version, value
        return value

    def forget(self) -> None:
        """Build the value at the next time."""
        self._known = None
