"""A backlog: what all namespaces wait with, offered in turns of the namespaces to somebody with little room."""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_CHECKED: Final = 2
"""For each item that is added, so many others are checked. So no more are kept than three times those that wait."""


@dataclass(slots=True)
class _Queue(Generic[T]):
    """The items of one namespace.

    Attributes:
        items: the oldest first.
        unchecked: those of which it is to be checked next whether they still wait.
    """

    items: OrderedDict[T, None] = field(default_factory=OrderedDict)
    unchecked: Iterator[T] = field(default_factory=lambda: iter(()))


class Backlog(Generic[T]):
    """Items of namespaces, the oldest first, each once.

    Items that wait no more are dropped also while an older one of their namespace is not taken.

    Args:
        still_waits: whether an item still waits.
    """

    def __init__(self, still_waits: Callable[[T], bool]) -> None:
        self._still_waits = still_waits
        self._queues: dict[str, _Queue[T]] = {}
        """By namespace; the namespace whose turn is next comes first. No queue is empty."""

    def __len__(self) -> int:
        return sum(len(queue.items) for queue in self._queues.values())

    def add(self, namespace: str, item: T) -> None:
        """Add an item that waits as the youngest one of its namespace, unless it is there."""
        queue = self._queues.setdefault(namespace, _Queue())
        self._check(queue)
        queue.items.setdefault(item)

    def offer(self, take: Callable[[T], bool], most: int) -> None:
        """Offer items, one of each namespace after the other.

        Args:
            take: whether the item is taken. One that is not taken is offered again in the next call, and so are the
                items of its namespace after it.
            most: the highest number of items that are offered or dropped.
        """
        turns, refused = deque(self._queues), []
        for _ in range(most):
            if not turns:
                break
            namespace = turns.popleft()
            items = self._queues[namespace].items
            item = next(iter(items))
            if self._still_waits(item) and not take(item):
                refused.append(namespace)
                continue
            items.popitem(last=False)
            if items:
                turns.append(namespace)
        self._queues = {namespace: self._queues[namespace] for namespace in (*turns, *refused)}

    def _check(self, queue: _Queue[T]) -> None:
        """Drop the next items if they wait no more."""
        items = tuple(islice(queue.unchecked, _CHECKED))
        if not items:
            queue.unchecked = iter(tuple(queue.items))
        for item in items:
            if item in queue.items and not self._still_waits(item):
                del queue.items[item]
