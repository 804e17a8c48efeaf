"""A backlog: what all namespaces wait with, offered in turns of the namespaces to somebody with little room."""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Backlog(Generic[T]):
    """Items of namespaces, the oldest first, each once."""

    def __init__(self) -> None:
        self._items: dict[str, OrderedDict[T, None]] = {}
        """By namespace; the namespace whose turn is next comes first."""

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, namespace: str, item: T) -> None:
        """Add an item as the youngest one of its namespace, unless it is there."""
        self._items.setdefault(namespace, OrderedDict()).setdefault(item)

    def offer(self, take: Callable[[T], bool], most: int) -> None:
        """Offer items, one of each namespace after the other.

        Args:
            take: whether the item is taken. One that is not taken is offered again in the next call, and so are the
                items of its namespace after it.
            most: the highest number of items that are offered.
        """
        turns, refused = deque(self._items), []
        for _ in range(most):
            if not turns:
                break
            namespace = turns.popleft()
            items = self._items[namespace]
            if not take(next(iter(items))):
                refused.append(namespace)
                continue
            items.popitem(last=False)
            if items:
                turns.append(namespace)
        self._items = {namespace: self._items[namespace] for namespace in (*turns, *refused)}
