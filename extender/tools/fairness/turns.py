"""Turns: namespaces share the time of what serves all of them."""

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import Final, TypeVar

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
