"""The one bounded memory: it keeps what was used lately."""

from collections.abc import Callable, Hashable
from itertools import starmap
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def _one(_key: Hashable, _value: object) -> int:
    return 1


class Recent(dict[Hashable, T], Generic[T]):
    """A bounded dict that forgets the entries that were not used lately.

    The dict itself has the young entries, so `get` is as fast as a dict's; `find` also looks at the old entries. When
    there are `limit` young entries, all of them become old. From then on, each new entry takes the place of the oldest
    one: to forget 100,000 entries at once would stop all threads for a tenth of a second.

    Safe to use from several threads: at worst an entry is lost.

    Args:
        limit: the most entries, young and old; with ``weigh``, the most weight of all entries together. A single entry
            may be heavier.
        weigh: the weight of an entry, by its key and its value. Without it, each entry weighs 1.
    """

    def __init__(self, limit: int, weigh: Callable[[Any, T], int] = _one) -> None:
        super().__init__()
        self._limit = limit
        self._weigh = weigh
        self._weight = 0
        self._old: dict[Hashable, T] = {}
        self._oldest_last: list[Hashable] = []
        """The old entries, also those that are young again."""

    def find(self, key: Hashable) -> T | None:
        """The value of a key, which counts as used; None if there is none."""
        found = self.get(key)
        return self.recall(key) if found is None and self._old else found

    def recall(self, key: Hashable) -> T | None:
        """Like `find`, for a key that `get` has not found."""
        found = self._old.pop(key, None)
        if found is not None:
            self[key] = found
        return found

    def keep(self, key: Hashable, value: T) -> T:
        """Keep a value, instead of the one before; returns it."""
        if key in self or (self._old and key in self._old):
            self.forget(key)
        weight = self._weigh(key, value)
        while self._weight + weight > self._limit and (self._old or self):
            self._forget_oldest()
        self._weight += weight
        self[key] = value
        return value

    def forget(self, key: Hashable) -> T | None:
        """Remove a key; returns its value, or None if there is none."""
        old = self._old.pop(key, None)
        found = self.pop(key, old)
        if found is not None:
            self._weight -= self._weigh(key, found)
        return found

    def forget_all(self) -> None:
        """Remove everything."""
        self._old, self._oldest_last, self._weight = {}, [], 0
        self.clear()

    def _forget_oldest(self) -> None:
        if not self._old:
            self._old, self._oldest_last = dict(self), [*reversed(list(self))]
            self.clear()
            # Other threads that ran meanwhile may have left the sum a little wrong.
            self._weight = sum(starmap(self._weigh, [*self._old.items()]))
        try:
            while (found := self._old.pop(oldest := self._oldest_last.pop(), None)) is None:
                pass  # that entry is young again
            self._weight -= self._weigh(oldest, found)
        except IndexError:  # another thread has put entries aside at the same time: it has forgotten the unlisted ones
            self._old = {}
            self._weight = sum(starmap(self._weigh, [*self.items()]))
