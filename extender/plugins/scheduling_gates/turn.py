"""The turn of one namespace in one look: which of its pods is next, and whether there is room for it."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from extender.plugins.scheduling_gates.gated_pods import GatedPods, Order
from extender.plugins.scheduling_gates.judging import Prospect
from extender.plugins.scheduling_gates.shares import Account, Shares


class Head(NamedTuple):
    """The first pod of a kind. No two of them have the same uid, so kinds are not compared."""

    order: Order
    uid: str
    kind: Hashable


class Next(NamedTuple):
    """The next pod of a namespace.

    Attributes:
        is_hopeless: no node takes it.
        is_trial: it is not known whether a node takes it.
    """

    head: Head
    is_hopeless: bool = False
    is_trial: bool = False


@dataclass(slots=True)
class Turn:
    """The pods of one namespace that may be lifted in one look.

    Attributes:
        name: of the namespace.
        pods: of the namespace.
        account: what the namespace has lifted.
        out: by namespace and kind, how many pods are lifted and not bound.
        ask: what filter remembers of the pod of a uid; None: there is no time to ask.
        clock: measures durations, in seconds.
    """

    name: str
    pods: GatedPods
    account: Account
    out: Counter[tuple[str, Hashable]]
    ask: Callable[[str], Prospect | None]
    clock: Callable[[], float]
    _unasked: list[Head] = field(init=False)
    _good: list[Head] = field(default_factory=list)
    _hopeless: list[Head] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._unasked = [Head(*each.first(), kind) for kind, each in self.pods.kinds.items()]
        heapify(self._unasked)

    def first(self) -> Head | None:
        """The first pod, whether a node takes it or not; None: there is none. To be asked before all others."""
        return self._unasked[0] if self._unasked else None

    def next(self, shares: Shares) -> Next | None:
        """The next pod; None: there is none, or no room for it. Pods that find a node come before all others."""
        if not shares.has_room(self.account, is_hopeless=False):
            return None
        self._sort(shares)
        if self._good:
            return Next(self._good[0], is_trial=self._is_unknown(self._good[0]))
        if self._hopeless and shares.has_room(self.account, is_hopeless=True):
            return Next(self._hopeless[0], is_hopeless=True)
        return None

    def _is_unknown(self, head: Head) -> bool:
        prospect = self.pods.kinds[head.kind].prospect
        return prospect is None or prospect.takers is None

    def _sort(self, shares: Shares) -> None:
        """Ask about kinds until it is known which of those that find a node is first.

        While too many tries of the namespace fail, or may fail, a pod counts as hopeless unless a node is known that
        takes it.
        """
        while self._unasked and not (self._good and self._good[0] < self._unasked[0]):
            head = heappop(self._unasked)
            kind, now = self.pods.kinds[head.kind], self.clock()
            if kind.is_due(now) and (answer := self.ask(head.uid)) is not None:
                kind.answer(answer, now)
            if kind.prospect is None:
                continue
            if kind.prospect.is_hopeless or (kind.prospect.takers is None and not shares.may_try(self.account)):
                heappush(self._hopeless, head)
            elif self.out[self.name, head.kind] < kind.prospect.most:
                heappush(self._good, head)

    def taken(self, next_one: Next, number: int, shares: Shares) -> None:
        """Count pods that are lifted, once they wait no more: those of the next pod's gang, or this pod alone."""
        head = next_one.head
        shares.lift(self.account, number, is_hopeless=next_one.is_hopeless, is_trial=next_one.is_trial)
        self.out[self.name, head.kind] += number
        self.pass_over(next_one)
        if (kind := self.pods.kinds.get(head.kind)) is not None:
            heappush(self._unasked, Head(*kind.first(), head.kind))

    def pass_over(self, next_one: Next) -> None:
        """Leave a pod and others of its kind for a later look."""
        for heap in (self._unasked, self._good, self._hopeless):
            if heap and heap[0] == next_one.head:
                heappop(heap)
