"""Turns: namespaces share the time of what serves all of them, and somebody with little room takes from a backlog."""

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, Generic, TypeVar

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

CREDIT_SECONDS: Final = 0.1
"""A namespace that has used less time lately is in credit: the order of its work counts among all namespaces."""

HALF_SECONDS: Final = 10.0
"""After this time, half of what a namespace has used counts no more."""

_NOTHING_SECONDS: Final = 0.001
"""Less than this counts as nothing."""

_MOST_HALVES: Final = 6.0
"""After so many times `HALF_SECONDS`, what was used is counted from a new time on: numbers stay small."""


def one_of_each(queues: Mapping[str, Iterable[H]]) -> Iterator[H]:
    """Items of namespaces, one of each namespace after the other, each item once.

    Args:
        queues: the items of each namespace in their order; an item may be in several queues.
    """
    seen, left = set[H](), deque(map(iter, queues.values()))
    while left:
        queue = left.popleft()
        item = next((each for each in queue if each not in seen), None)
        if item is not None:
            seen.add(item)
            left.append(queue)
            yield item


class Turns:
    """Which namespace goes next: of those over their credit, the one that has used the least time lately.

    Namespaces in credit go first, in the order of their work. So one namespace with much work, or with work that takes
    long, delays the others by its credit and one piece of its work.

    Args:
        clock: measures durations, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._used: dict[str, float] = {}
        """By namespace, in seconds of the time `_since`: what is used later weighs more. So the order never fades."""
        self._since = -math.inf
        self._weight = 1.0
        """How much a second counts that is used now."""

    def used(self, namespace: str) -> float:
        """The seconds that a namespace has used lately, at the latest look at the clock."""
        return self._used.get(namespace, 0.0) / self._weight

    def share(self, namespace: str) -> float:
        """The part of the time that a namespace has used lately, now."""
        self._renew()
        return self.used(namespace) * math.log(2) / HALF_SECONDS

    @contextmanager
    def of(self, namespace: str) -> Iterator[None]:
        """Within, a piece of work of a namespace is done."""
        began = self._clock()
        try:
            yield
        finally:
            self.spend(namespace, self._clock() - began)

    def spend(self, namespace: str, seconds: float) -> None:
        """Count time that a namespace has used until now."""
        self._renew()
        self._used[namespace] = self._used.get(namespace, 0.0) + seconds * self._weight

    def ordered(self, work: Iterable[T], namespace_of: Callable[[T], str]) -> Iterator[T]:
        """Work in fair turns. What was used counts anew before each piece.

        Args:
            work: sorted, the most important first. The order of one namespace's work stays.
            namespace_of: the namespace of a piece of work.
        """
        self._renew()
        queues: dict[str, deque[tuple[int, T]]] = {}
        for rank, each in enumerate(work):
            queues.setdefault(namespace_of(each), deque()).append((rank, each))
        heap = [(self._place(namespace), queue[0][0], namespace) for namespace, queue in queues.items()]
        heapify(heap)
        while heap:
            place, rank, namespace = heappop(heap)
            queue, now = queues[namespace], self._place(namespace)
            if now > place:  # it has used time since
                heappush(heap, (now, rank, namespace))
                continue
            yield queue.popleft()[1]
            if queue:
                heappush(heap, (self._place(namespace), queue[0][0], namespace))

    def _place(self, namespace: str) -> float:
        """The key by which namespaces are sorted."""
        return self._used.get(namespace, 0.0) if self.used(namespace) > CREDIT_SECONDS else 0.0

    def _renew(self) -> None:
        """Look at the clock. From time to time, count from now on, and forget who has used nothing lately."""
        now = self._clock()
        halves = (now - self._since) / HALF_SECONDS
        if halves <= _MOST_HALVES:
            self._weight = 2**halves
        else:
            fresh = {name: used * 0.5**halves for name, used in self._used.items()}
            self._used = {name: used for name, used in fresh.items() if used > _NOTHING_SECONDS}
            self._since, self._weight = now, 1.0


_CHECKED: Final = 2
"""For each item that is added, so many others are checked. So no more are kept than three times those that wait."""


@dataclass(slots=True)
class _Queue(Generic[H]):
    """The items of one namespace.

    Attributes:
        items: the oldest first.
        unchecked: those of which it is to be checked next whether they still wait.
    """

    items: OrderedDict[H, None] = field(default_factory=OrderedDict)
    unchecked: Iterator[H] = field(default_factory=lambda: iter(()))


class Backlog(Generic[H]):
    """Items of namespaces, the oldest first, each once.

    Items that wait no more are dropped also while an older one of their namespace is not taken.

    Args:
        still_waits: whether an item still waits.
    """

    def __init__(self, still_waits: Callable[[H], bool]) -> None:
        self._still_waits = still_waits
        self._queues: dict[str, _Queue[H]] = {}
        """By namespace; the namespace whose turn is next comes first. No queue is empty."""

    def __len__(self) -> int:
        return sum(len(queue.items) for queue in self._queues.values())

    def add(self, namespace: str, item: H) -> None:
        """Add an item that waits as the youngest one of its namespace, unless it is there."""
        queue = self._queues.setdefault(namespace, _Queue())
        self._check(queue)
        queue.items.setdefault(item)

    def offer(self, take: Callable[[H], bool], most: int) -> None:
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

    def _check(self, queue: _Queue[H]) -> None:
        """Drop the next items if they wait no more."""
        items = tuple(islice(queue.unchecked, _CHECKED))
        if not items:
            queue.unchecked = iter(tuple(queue.items))
        for item in items:
            if item in queue.items and not self._still_waits(item):
                del queue.items[item]
