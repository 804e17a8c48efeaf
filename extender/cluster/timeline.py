"""Timelines: what has changed from version to version of a cluster, so that views of it read only the changes."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Container, Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from allocator import PoolId
from allocator.tools import Recent
from extender.cluster.kinds import Topic
from extender.cluster.snapshot import Snapshot

_T = TypeVar("_T")

_NO_KEYS: Final[AbstractSet[Any]] = frozenset()


@dataclass(frozen=True, slots=True)
class Reach:
    """The objects and pools that some changes concern, each once.

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

    @property
    def size(self) -> int:
        """The number of objects and pools that are known to have changed."""
        return sum(map(len, (self.changed or {}).values()))

    def is_within(self, most: int) -> bool:
        """Whether it is known that at most so many objects and pools have changed."""
        return self.changed is not None and self.size <= most

    def __or__(self, other: "Reach") -> "Reach":
        """What the changes of both concern."""
        if self.changed is None or other.changed is None:
            return ANYTHING
        return Reach.of(chain(self.pairs(), other.pairs()))

    def pairs(self) -> Iterable[tuple[Topic, Any]]:
        """Topic and key of all that is known to have changed."""
        return ((topic, key) for topic, keys in (self.changed or {}).items() for key in keys)

    def among(self, topics: Container[Topic]) -> "Reach":
        """The changes of some topics alone."""
        changed = self.changed
        return self if changed is None else Reach({topic: keys for topic, keys in changed.items() if topic in topics})

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
    found = {known for each in snapshots if (known := each.inventory.pools.get(pool)) is not None}
    return {name for known in found for name in known.local_nodes}


class Timeline(Protocol):
    """The versions of one cluster: of that which the watches show, of a fork of it, or with kept devices."""

    def since(self, version: int) -> Reach:
        """What at least has changed after a version, up to the present."""


_Change: TypeAlias = tuple[int, Topic, Hashable]
"""The version that has changed an object or a pool, the topic, and the key."""


class _Kept(NamedTuple):
    """All changes after a version; version and changes are replaced together, for readers in other threads."""

    complete_after: int
    changes: list[_Change]


class ChangeLog:
    """The latest changes, oldest first: between ``size`` and twice as many. One thread adds; others may read."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._kept = _Kept(0, [])
        self._answers: Recent[Reach] = Recent(2 * size, lambda _, reach: 1 + reach.size)
        """What was asked lately, by the versions from and to: readers have mostly read up to one of a few versions."""

    def copy(self) -> "ChangeLog":
        """A log of its own with the same changes."""
        made = ChangeLog(self.size)
        made._kept = _Kept(self._kept.complete_after, list(self._kept.changes))
        return made

    def add(self, version: int, changed: Iterable[tuple[Topic, Hashable]]) -> None:
        """Append the changes of the next version: topics and keys."""
        kept = self._kept.changes
        kept.extend([(version, topic, key) for topic, key in changed])  # at once, for readers in other threads
        if len(kept) > 2 * self.size:
            self._kept = _Kept(kept[-self.size - 1][0], kept[-self.size :])

    def since(self, version: int) -> Reach:
        """What has changed after a version."""
        complete_after, changes = self._kept
        if version < complete_after:
            return ANYTHING
        asked = version, changes[-1][0] if changes else 0
        found = self._answers.find(asked)
        if found is None:
            first = bisect_right(changes, version, key=itemgetter(0))
            found = self._answers.keep(asked, Reach.of([each[1:] for each in changes[first:]]))
        return found


class _Known(NamedTuple, Generic[_T]):
    """The value for a version; both are replaced together, for other threads."""

    version: int
    value: _T


class View(ABC, Generic[_T]):
    """A memory of a cluster that is built once from a snapshot, and then moved by changes.

    Threads may use a view at the same time if its `apply` leaves the value as it is and returns another one.

    Args:
        timeline: of the cluster whose snapshots `at` gets; None: not known what changes.

    Attributes:
        topics: the changes that `apply` gets.
        bound: what is remembered, at most. docs/architecture.md has both of each view.
    """

    topics: ClassVar[AbstractSet[Topic]]
    bound: ClassVar[str]

    def __init__(self, timeline: Timeline | None) -> None:
        self._timeline = timeline
        self._known: _Known[_T] | None = None

    @abstractmethod
    def build(self, snapshot: Snapshot) -> _T:
        """The value for a snapshot, if nothing is remembered, or not known what has changed."""

    @abstractmethod
    def apply(self, value: _T, reach: Reach, snapshot: Snapshot) -> _T:
        """The value for a snapshot, from an earlier one; ``reach``: at least what has changed of the topics."""

    def at(self, snapshot: Snapshot) -> _T:
        """The value for a snapshot, at the cost of what has changed."""
        known = self._known
        reach = ANYTHING if known is None else self._since(known.version).among(self.topics)
        if known is None or reach.changed is None:
            value = self.build(snapshot)
        else:
            value = self.apply(known.value, reach, snapshot)
        self._known = _Known(snapshot.version, value)
        return value

    def keep(self, value: _T, snapshot: Snapshot) -> None:
        """Go on from the value for a snapshot."""
        self._known = _Known(snapshot.version, value)

    def _since(self, version: int) -> Reach:
        """What has changed after a version."""
        return ANYTHING if self._timeline is None else self._timeline.since(version)
