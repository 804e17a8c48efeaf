"""The gated pods of one namespace: what is known of each without a search, and which is next in the turn of them all.

Without a search, it is known whether a try is in vain, and whether some node would take the pod. Pods are new, held, or
wait for their turn with others of their kind.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush, nlargest
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from immutables import Map

from allocator import AllocatorError, Reason
from allocator.reason import Cause
from extender.cluster.objects.pod_conditions import REQUESTS
from extender.cluster.objects.pods import GangKey, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import CLAIMS, tried_in_vain
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.filter import FilterResult, Known, ask
from extender.framework.plugin import Refusal, Refused
from extender.planning.kube_scheduler import contradiction, rejection
from extender.planning.queue import likeness_of, likeness_of_resources
from extender.plugins.scheduling_gates.shares import FEW, Account, Shares

_CONTRADICTION: Final = Cause("group-contradicts", "{detail}")

_OF_A_NODE: Final = 8
"""Pods of one kind that are lifted for each node that takes one: how many it takes together is not known."""

_ANYWHERE: Final = "-"
"""In a fork, the lifted pods of a namespace are nominated to a node of this name, so that quotas count them."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """The prospect of a pod: what filter would say of it, as far as filter remembers.

    Attributes:
        takers: nodes that take it; None: not known.
    """

    takers: int | None = None

    @property
    def is_hopeless(self) -> bool:
        """No node takes it now."""
        return self.takers == 0

    @property
    def most(self) -> float:
        """How many pods of this kind may be lifted and not be bound at a time."""
        return max(FEW, _OF_A_NODE * (self.takers or 0))


NOT_KNOWN: Final = Prospect()
HOPELESS: Final = Prospect(0)
NEEDS_NOTHING: Final = Prospect(2**31)
WHOLE: Final = Prospect(2**31)
"""Of a gang: where its pods find nodes is not known, and all of them are lifted together."""


def held_by(pod: Pod, snapshot: Snapshot, solver: Solver) -> Refused | None:
    """Who refuses a gated pod so that a try changes nothing, and why; None if nobody does.

    Raises:
        TimeoutError: selectors of a plugin's rules took too long.
    """
    if pod.gang_key is not None and (why := contradiction(pod.gang_key, snapshot)):
        return Refused(CLAIMS, Refusal(Reason(_CONTRADICTION, detail=why)))
    return tried_in_vain(pod, snapshot, solver)


def with_lifted(pods: Iterable[Pod], snapshot: Snapshot) -> Snapshot:
    """The cluster in which quotas count what pods ask for that are lifted, or that have a node and no claims yet."""
    for pod in pods:
        if pod.node_name or not pod.nominated_node:
            snapshot = snapshot.with_pod(replace(pod, node_name="", nominated_node=_ANYWHERE))
    return snapshot


def tried_alike(pod: Pod, snapshot: Snapshot) -> Hashable:
    """Equal for pods that their scheduler finds the same nodes for; None: it may look at what is not known here."""
    if pod.gang_key is not None or not {REQUESTS}.issuperset(pod.unmodeled):
        return None
    return likeness_of(pod, snapshot), pod.cpu, likeness_of_resources(pod)


def prospect_of(pod: Pod, snapshot: Snapshot, decider: Decider) -> Prospect:
    """What filter remembers of a pod. What is kept for nominated pods is left out. Searches nothing.

    Nodes of which filter knows nothing yet count as none if others take the pod: one that changes all the time is never
    known.
    """
    if not decider.follow_at_once(snapshot):
        return NOT_KNOWN
    world = snapshot._replace(nominated=Map())
    try:
        question = ask(pod, tuple(snapshot.nodes), world, decider.solver, decider)
        if isinstance(question, FilterResult):
            return NEEDS_NOTHING if question.passed else NOT_KNOWN
        found = question.at_hand()
        if isinstance(found, Known):
            left = [name for name in found.names if name not in found.missing]
            found = question.at_once(question.lookup(left))
            if found is not None and not found.passed:
                return NOT_KNOWN
    except (AllocatorError, TimeoutError):
        return NOT_KNOWN
    if found is None or found.failed or found.is_undecided:
        return NOT_KNOWN
    nodes = (snapshot.nodes[name] for name in found.passed)
    return Prospect(sum(not rejection(pod.requirements, node) for node in nodes))


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
