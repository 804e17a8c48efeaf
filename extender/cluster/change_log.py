"""The change log: what changed from version to version, so that a cache of decisions reads only the changes."""

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from extender.cluster.kinds import Topic


class Change(NamedTuple):
    """An object or pool that this version changed."""

    version: int
    topic: Topic
    key: Hashable


class _Kept(NamedTuple):
    """All changes after a version; version and changes are replaced together, for readers in other threads."""

    complete_after: int
    changes: list[Change]


class ChangeLog:
    """The latest changes, oldest first: between ``size`` and twice as many. One thread adds; others may read."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._kept = _Kept(0, [])

    def add(self, changes: Iterable[Change]) -> None:
        """Append the changes of the next version."""
        kept = self._kept.changes
        kept.extend(changes)
        if len(kept) > 2 * self.size:
            self._kept = _Kept(kept[-self.size - 1].version, kept[-self.size :])

    def since(self, version: int) -> tuple[Change, ...] | None:
        """All changes after a version; None if they are no longer kept, so that anything may have changed."""
        complete_after, changes = self._kept
        if version < complete_after:
            return None
        return tuple(changes[bisect_right(changes, version, key=lambda change: change.version) :])
