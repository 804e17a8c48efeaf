"""The gated pods of one namespace: those that are new, held, or wait for their turn with others of their kind."""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, nlargest
from itertools import islice
from typing import Final, TypeAlias

from extender.cluster.objects.pods import GangKey, Pod
from extender.plugins.scheduling_gates.judging import HOPELESS, Prospect

_SPARE: Final = 16

_LONG_SECONDS: Final = 10.0
"""After this time, an answer is asked for again in any case: not all that a scheduler compares is known here."""

_AGAIN_SECONDS: Final = 1.0
"""The shortest time between two questions about a kind that no node took."""

Order: TypeAlias = tuple[int, str, str]
"""Like `Pod.order`."""


@dataclass(slots=True)
class Kind:
    """Pods of one namespace that get the same answer from every node; or one gang.

    Attributes:
        key: equal for all of them.
        prospect: of all of them, when it was asked last; None: it was not asked.
        asked: when that was, by the clock.
        is_old: something has changed since.
        refused: when a scheduler rejected one of them.
    """

    key: Hashable
    prospect: Prospect | None = None
    asked: float = -math.inf
    is_old: bool = False
    refused: float = -math.inf
    _orders: dict[str, Order] = field(default_factory=dict)
    """By the uid of each pod."""
    _heap: list[tuple[Order, str]] = field(default_factory=list)
    """The same, and pods that wait no more."""

    def __len__(self) -> int:
        return len(self._orders)

    def __iter__(self) -> Iterator[str]:
        return iter(self._orders)

    def add(self, pod: Pod) -> None:
        """Add a pod."""
        self._orders[pod.uid] = pod.order
        heappush(self._heap, (pod.order, pod.uid))
        if len(self._heap) > 2 * len(self._orders) + _SPARE:
            self._heap = [(order, uid) for uid, order in self._orders.items()]
            heapify(self._heap)

    def remove(self, uid: str) -> None:
        """Remove a pod, if it is there."""
        self._orders.pop(uid, None)

    def youngest(self, number: int) -> Sequence[str]:
        """The uids of the pods that were judged last; of a gang, of all."""
        return list(self) if isinstance(self.key, GangKey) else list(islice(reversed(self._orders), number))

    def is_due(self, now: float) -> bool:
        """Whether to ask again: at once, if there were nodes that took its pods; else not too often."""
        if self.prospect is None or now >= self.asked + _LONG_SECONDS:
            return True
        return self.is_old and not (self.prospect.is_hopeless and now < self.asked + _AGAIN_SECONDS)

    def answer(self, prospect: Prospect, now: float) -> None:
        """Keep an answer. For a while after a rejection, it takes a node that is known to mend it."""
        is_refused = prospect.takers is None and now < self.refused + _LONG_SECONDS
        self.prospect, self.asked, self.is_old = HOPELESS if is_refused else prospect, now, False

    def refuse(self, now: float, *, is_rare: bool) -> None:
        """A scheduler has rejected one of them, so it will reject others, whatever filter remembers.

        Args:
            now: the time.
            is_rare: few tries of the namespace fail. The reason may concern this pod or that moment alone, so a node
                that filter remembers counts again soon.
        """
        self.refused = now
        self.answer(HOPELESS, now)
        self.is_old = is_rare

    def first(self) -> tuple[Order, str]:
        """Order and uid of the first pod; there is one."""
        while self._orders.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0]


@dataclass(slots=True)
class GatedPods:
    """The gated pods of one namespace.

    Attributes:
        new: the uids of those that are not judged.
        held: the uids of those that are held.
        kinds: those that wait for their turn.
        extra: when the first of these is lifted also beyond the share; None: not known yet.
        behind: since when the first of these waits for rejected pods before it; None: it does not.
    """

    new: dict[str, None] = field(default_factory=dict)
    held: dict[str, None] = field(default_factory=dict)
    kinds: dict[Hashable, Kind] = field(default_factory=dict)
    extra: float | None = None
    behind: float | None = None
    _waiting: int = 0

    @property
    def judged(self) -> int:
        """How many are held or wait for their turn."""
        return len(self.held) + self._waiting

    def judged_again(self, number: int) -> Sequence[str]:
        """The uids of pods that make room for others that are not judged yet: about so many, of the largest group.

        These are the held ones that were judged first, or those of a kind that were judged last: the older ones of the
        kind are lifted before these in any case.
        """
        kinds = nlargest(number, reversed(self.kinds.values()), key=len)
        if not kinds or len(self.held) > len(kinds[0]):
            return list(islice(self.held, number))
        found: list[str] = []
        for kind in kinds:
            if len(found) < number:
                found += kind.youngest(number - len(found))
        return found

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not (self.new or self.held or self.kinds)

    def add(self, pod: Pod, kind: Hashable) -> Hashable:
        """A pod waits for its turn. Returns the kind as those before it have it: it is long, and pods are many."""
        found = self.kinds.setdefault(kind, Kind(kind))
        found.add(pod)
        self._waiting += 1
        return found.key

    def remove(self, uid: str, kind: Hashable) -> None:
        """A pod waits for its turn no more."""
        found = self.kinds.get(kind)
        if found is not None:
            found.remove(uid)
            self._waiting -= 1
            if not len(found):
                del self.kinds[kind]
