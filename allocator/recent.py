"""The one bounded memory: it keeps what was used lately."""

from collections.abc import Hashable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(dict[Hashable, T], Generic[T]):
    """A bounded dict that forgets the entries that were not used lately.

    The dict itself has the young entries, so `get` is as fast as a dict's; `find` also looks at the old entries. When
    there are `limit` young entries, all of them become old. From then on, each new entry takes the place of the oldest
    one: to forget 100,000 entries at once would stop all threads for a tenth of a second.

    Safe to use from several threads: at worst an entry is lost.

    Args:
        limit: the most entries, young and old.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = max(1, limit)
        self._old: dict[Hashable, T] = {}
        self._oldest_last: list[Hashable] = []
        """The old entries, also those that are young again."""

    def find(self, key: Hashable) -> T | None:
        """The value of a key, which counts as used; None if there is none."""
        found = self.get(key)
        return self.recall(key) if found is None else found

    def recall(self, key: Hashable) -> T | None:
        """As `find`, of a key that `get` has not found."""
        found = self._old.pop(key, None)
        if found is not None:
            self[key] = found
        return found

    def keep(self, key: Hashable, value: T) -> T:
        """Keep a value, instead of the one before; returns it."""
        known = self.pop(key, None) is not None or self._old.pop(key, None) is not None
        if not known and len(self) + len(self._old) >= self._limit:
            self._forget_oldest()
        self[key] = value
        return value

    def forget(self, key: Hashable) -> T | None:
        """Remove a key; returns its value, or None if there is none."""
        old = self._old.pop(key, None)
        return self.pop(key, old)

    def forget_all(self) -> None:
        """Remove everything."""
        self._old, self._oldest_last = {}, []
        self.clear()

    def _forget_oldest(self) -> None:
        if not self._old:
            self._old, self._oldest_last = dict(self), [*reversed(self)]
            self.clear()
        with suppress(IndexError):  # another thread may have forgotten the rest
            while self._old.pop(self._oldest_last.pop(), None) is None:
                pass  # that entry is young again
