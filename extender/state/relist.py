"""A list of all objects of a kind, taken in bit by bit; nothing of it is seen before it is complete."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.kube.api import ObjectKey, RawObject
from extender.kube.raw import Version, version_of
from extender.state.edit import Edit, read
from extender.state.kinds import Kind
from extender.state.snapshot import Snapshot


@dataclass(slots=True)
class Relist:
    """All objects of a kind, as far as they have come. What is known already is not read again.

    What is new is put at once into a snapshot of the list's own. In the end the kind is taken over from there, so that
    nothing long is left to be done then, however much is new. Where the kind changed meanwhile, all is put in again.

    Attributes:
        known: the versions of the objects that are known.
        before: a snapshot from when the list began.
    """

    kind: Kind[Any]
    known: Mapping[ObjectKey, Version]
    before: Snapshot
    _same: set[ObjectKey] = field(default_factory=set)
    _new: dict[ObjectKey, tuple[Version | None, object]] = field(default_factory=dict)
    _ahead: Edit = field(init=False)

    def __post_init__(self) -> None:
        self._ahead = Edit(self.before)

    def add(self, key: ObjectKey, obj: RawObject) -> None:
        """One object of the list, and where it is."""
        version = version_of(obj)
        is_same = version is not None and self.known.get(key) == version
        if is_same and self.kind.find(self.before, key) is not None:
            self._same.add(key)
        else:
            value = read(self.kind, obj)
            self._new[key] = version, value
            self._ahead.put(self.kind, key, value, listed=True)

    def apply_to(self, edit: Edit) -> None:
        """Make what is listed all that there is of the kind."""
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
        """The versions of what is listed."""
        yield from ((key, self.known[key]) for key in self._same)
        yield from ((key, version) for key, (version, _) in self._new.items() if version is not None)
