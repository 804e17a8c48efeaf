"""Counts of objects that are kept up with the cluster: a scrape costs what has changed since the last one."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from extender.cluster.change_log import Change
from extender.cluster.kinds import Topic
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ObjectKey

_L = TypeVar("_L", bound=Hashable)


class Tally(Generic[_L]):
    """Counts the objects of one kind by label. One thread counts at a time.

    Args:
        topic: changes of this topic concern the objects; their keys are ObjectKeys.
        changes_since: the changes after a version of the snapshot; None: anything may have changed.
        keys: the keys of all objects in a snapshot.
        label: the label of an object; None if it does not count, or does not exist.
    """

    def __init__(
        self,
        topic: Topic,
        changes_since: Callable[[int], Iterable[Change] | None],
        keys: Callable[[Snapshot], Iterable[ObjectKey]],
        label: Callable[[Snapshot, ObjectKey], _L | None],
    ) -> None:
        self._topic = topic
        self._changes_since = changes_since
        self._keys = keys
        self._label = label
        self._labels: dict[ObjectKey, _L] = {}
        self._counts: Counter[_L] = Counter()
        self._version = -1

    def forget(self) -> None:
        """Count everything at the next time."""
        self._version = -1

    def count(self, snapshot: Snapshot, others: Iterable[ObjectKey] = ()) -> Mapping[_L, int]:
        """How many objects have each label; a label without objects has 0, or is absent.

        Args:
            snapshot: the cluster.
            others: objects whose label may have changed although they have not.
        """
        changes = None if self._version < 0 else self._changes_since(self._version)
        if changes is None:
            # Labels that are gone stay with 0: a series that ends looks like a failed scrape.
            self._labels, self._counts = {}, Counter(dict.fromkeys(self._counts, 0))
            changed = set(self._keys(snapshot))
        else:
            changed = {each.key for each in changes if each.topic is self._topic and isinstance(each.key, ObjectKey)}
            changed.update(others)
        for key in changed:
            self._put(key, self._label(snapshot, key))
        self._version = snapshot.version
        return self._counts

    def _put(self, key: ObjectKey, label: _L | None) -> None:
        old = self._labels.get(key)
        if old == label:
            return
        if old is not None:
            self._counts[old] -= 1
        if label is None:
            del self._labels[key]
        else:
            self._labels[key] = label
            self._counts[label] += 1
