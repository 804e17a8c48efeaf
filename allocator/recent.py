"""The one bounded memory: it keeps what was used lately."""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(dict[Hashable, T], Generic[T]):
    """A bounded dict that forgets the entries that were not used lately.

    The dict itself has the younger half of the entries, so `get` is as fast as a dict's; `find` also looks in the older
    half. When the younger half is full, it becomes the older half, and the entries that were there are forgotten. So at
    least the latest half of `limit` entries are kept.

    Safe to use from several threads: at worst an entry is lost.

    Args:
        limit: the most entries.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._half = max(1, limit // 2)
        self._older: dict[Hashable, T] = {}

    def find(self, key: Hashable) -> T | None:
        """The value of a key, which counts as used; None if there is none."""
        found = self.get(key)
        return self.recall(key) if found is None else found

    def recall(self, key: Hashable) -> T | None:
        """As `find`, of a key that `get` has not found."""
        found = self._older.get(key)
        if found is not None:
            self.keep(key, found)
        return found

    def keep(self, key: Hashable, value: T) -> T:
        """Keep a value, instead of the one before; returns it."""
        if len(self) >= self._half and key not in self:
            self._older = dict(self)
            self.clear()
        self[key] = value
        return value

    def forget(self, key: Hashable) -> T | None:
        """Remove a key; returns its value, or None if there is none."""
        older = self._older.pop(key, None)
        return self.pop(key, older)

    def forget_all(self) -> None:
        """Remove everything."""
        self._older = {}
        self.clear()
