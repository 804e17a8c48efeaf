"""A list of all objects of a kind that is read step by step, and shown when it is complete."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.cluster.kinds import WatchedKind
from extender.cluster.snapshot import Snapshot
from extender.cluster.snapshot_edit import SnapshotEdit, read
from extender.kube.api import ObjectKey, RawObject
from extender.kube.raw import Version, version_of


@dataclass(slots=True)
class Relist:
    """The objects of a list so far. Objects with a known version are not parsed again.

    New objects are put into a snapshot of the list's own, from which the kind is taken over in the end: that step is
    short, however many objects are new. If the kind has changed meanwhile, all new objects are put again.

    Attributes:
        known: the versions of the known objects.
        before: the snapshot at the start of the list.
    """

    kind: WatchedKind[Any]
    known: Mapping[ObjectKey, Version]
    before: Snapshot
    _same: set[ObjectKey] = field(default_factory=set)
    _new: dict[ObjectKey, tuple[Version | None, object]] = field(default_factory=dict)
    _ahead: SnapshotEdit = field(init=False)

    def __post_init__(self) -> None:
        self._ahead = SnapshotEdit(self.before)

    def add(self, key: ObjectKey, obj: RawObject) -> None:
        """Add an object of the list."""
        version = version_of(obj)
        is_same = version is not None and self.known.get(key) == version
        if is_same and self.kind.find(self.before, key) is not None:
            self._same.add(key)
        else:
            value = read(self.kind, obj)
            self._new[key] = version, value
            self._ahead.put(self.kind, key, value, listed=True)

    def apply_to(self, edit: SnapshotEdit) -> None:
        """Make the listed objects the only ones of the kind."""
        if self.kind.is_same(self.before, edit.snapshot):
            edit.take_over(self.kind, self._ahead)
        else:
            for key, (_, value) in self._new.items():
                edit.put(self.kind, key, value, listed=True)
        unreadable = [key for of, key in edit.snapshot.problems if of == self.kind.resource.kind]
        for key in {*self.kind.keys(edit.snapshot), *unreadable} - self._same - self._new.keys():
            edit.drop(self.kind, key)

    @property
    def versions(self) -> Iterable[tuple[ObjectKey, Version]]:
        """The versions of the listed objects."""
        yield from ((key, self.known[key]) for key in self._same)
        yield from ((key, version) for key, (version, _) in self._new.items() if version is not None)
