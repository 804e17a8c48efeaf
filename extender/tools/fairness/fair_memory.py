"""A bounded memory that all namespaces share: no namespace loses an entry because of the entries of another."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


def _one(_value: object) -> int:
    return 1


class FairMemory(Generic[T]):
    """Entries by uid, each of a namespace.

    While there is room, a namespace may have any number of entries. Over the limit, the namespace with the most entries
    forgets its oldest one. So a namespace with fewer entries than ``limit`` divided by the number of namespaces forgets
    nothing.

    Args:
        limit: the highest number of entries; with ``weigh``, the most weight of all entries together. A single entry
            may be heavier.
        weigh: the weight of an entry. Without it, each entry weighs 1.
    """

    def __init__(self, limit: int, weigh: Callable[[T], int] = _one) -> None:
        self._limit = limit
        self._weigh = weigh
        self._entries: dict[str, tuple[str, T]] = {}
        self._namespaces: dict[str, OrderedDict[str, None]] = {}
        """The uids of each namespace, the oldest first. A plain dict would look for it behind all that were removed."""
        self._weights: dict[str, int] = {}
        """By namespace."""
        self._weight = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def get(self, uid: str) -> T | None:
        """The entry of a uid; None if there is none."""
        found = self._entries.get(uid)
        return None if found is None else found[1]

    def values(self) -> Sequence[T]:
        """All entries, the oldest first."""
        return [value for _, value in tuple(self._entries.values())]

    def items(self) -> Sequence[tuple[str, T]]:
        """All entries with their uids, the oldest first."""
        return [(uid, value) for uid, (_, value) in self._entries.items()]

    @property
    def namespaces(self) -> Sequence[str]:
        """The namespaces that have entries."""
        return list(self._namespaces)

    def of_namespace(self, namespace: str) -> Sequence[tuple[str, T]]:
        """The entries of a namespace with their uids, the oldest first."""
        return [(uid, self._entries[uid][1]) for uid in self._namespaces.get(namespace, ())]

    def oldest(self, namespace: str) -> tuple[str, T] | None:
        """The oldest entry of a namespace with its uid; None if the namespace has none."""
        uid = next(iter(self._namespaces.get(namespace, ())), None)
        return None if uid is None else (uid, self._entries[uid][1])

    def keep(self, namespace: str, uid: str, value: T) -> T:
        """Keep an entry as the youngest one, instead of the one before; returns it."""
        self.pop(uid)
        self._entries[uid] = (namespace, value)
        self._namespaces.setdefault(namespace, OrderedDict())[uid] = None
        self._add_weight(namespace, self._weigh(value))
        while self._weight > self._limit and len(self._entries) > 1:
            self.forget_oldest(max(self._weights, key=self._weights.__getitem__))
        return value

    def replace(self, uid: str, value: T) -> None:
        """Put another value in the place of an entry, which gets no younger."""
        namespace, before = self._entries[uid]
        self._entries[uid] = (namespace, value)
        self._add_weight(namespace, self._weigh(value) - self._weigh(before))

    def pop(self, uid: str) -> T | None:
        """Remove an entry on purpose; returns it, or None if there is none."""
        found = self._entries.pop(uid, None)
        if found is None:
            return None
        namespace, value = found
        own = self._namespaces[namespace]
        del own[uid]
        self._add_weight(namespace, -self._weigh(value))
        if not own:
            del self._namespaces[namespace], self._weights[namespace]
        return value

    def _add_weight(self, namespace: str, weight: int) -> None:
        self._weights[namespace] = self._weights.get(namespace, 0) + weight
        self._weight += weight

    def forget(self, uid: str) -> None:
        """Forget an entry for want of room."""
        self.pop(uid)

    def forget_oldest(self, namespace: str) -> None:
        """Forget the oldest entry of a namespace for want of room."""
        self.forget(next(iter(self._namespaces[namespace])))

    def has_room(self, namespace: str) -> bool:
        """Whether there is room for one more entry of the namespace, and no other entry of it is forgotten for that.

        The entry weighs 1. So there is room below the limit, and while another namespace has at least two more.
        """
        own = self._weights.get(namespace, 0)
        return self._weight < self._limit or any(weight > own + 1 for weight in self._weights.values())

    def make_room(self, namespace: str, may_go: Callable[[T], bool]) -> bool:
        """Make room for one more entry of a namespace, if need be in the place of its oldest one; whether there is any.

        A namespace without entries gets room in any case.

        Args:
            namespace: of the entry that is to be kept.
            may_go: whether the oldest entry may be forgotten.
        """
        oldest = None if self.has_room(namespace) else self.oldest(namespace)
        if oldest is None:
            return True
        uid, value = oldest
        if not may_go(value):
            return False
        self.forget(uid)
        return True


class ReportingMemory(FairMemory[T]):
    """A fair memory that reports of which namespaces it has forgotten something: it is to be found again."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._forgotten: set[str] = set()

    def forget(self, uid: str) -> None:
        """Forget an entry for want of room."""
        namespace, _ = self._entries[uid]
        super().forget(uid)
        self._forgotten.add(namespace)

    @property
    def forgotten(self) -> frozenset[str]:
        """The namespaces of which something was forgotten since `look_again`."""
        return frozenset(self._forgotten)

    def look_again(self) -> frozenset[str]:
        """The namespaces of which something was forgotten. From now on, they count as if nothing was."""
        found = frozenset(self._forgotten)
        self._forgotten.clear()
        return found

    def missed(self) -> frozenset[str]:
        """Like `look_again`, once there is room for one of these namespaces; until then, none."""
        return self.look_again() if any(map(self.has_room, self._forgotten)) else frozenset()
