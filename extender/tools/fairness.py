"""Fairness: what serves all namespaces has shares and turns for each of them.

`Turns` share time, a `Backlog` is offered to somebody with little room, and of a `FairMemory` no namespace loses an
entry because of the entries of another. Some works for people go on at a time in `Places`, in fair turns of their
callers; verbs go before all of them (`extender.tools.verb_priority`).

kube-scheduler filters one pod at a time. So the pods of all tenants wait while filter waits for one of them. Without a
bound, what is slow but always in time would stop the scheduling of pods that do not need it: a `WaitingBudget` is this
bound for one thing that is slow, such as the answers of a controller.
"""

import asyncio
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import attrgetter
from types import TracebackType
from typing import Final, Generic, TypeVar

from extender.tools.offload import Offload, to_the_end

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


WAITING_SECONDS: Final = 15.0
"""The longest wait for a place. The longest work has 10 s, and who has used nothing comes next after it."""

MOST_WAITING: Final = 16
"""Works of one caller that wait for a place. Others are refused: the caller would wait for minutes."""


class CrowdedError(Exception):
    """There is no place in time: others have them all, or the caller waits with too many works."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A work that waits for a place."""

    caller: str
    turn: asyncio.Future[None]


class Places:
    """A few places for works, with shares by caller.

    Threads share one interpreter: with 64 of them, the event loop would get a 64th of the time. Of the callers that
    wait, the one that has used the least time lately comes next (`Turns`). No caller waits without an end. The places
    belong to the event loop.

    Args:
        most: works at a time.
        of_caller: works of one caller at a time. Less than ``most``, so that somebody else finds a place at once.
        clock: measures durations, in seconds.
    """

    def __init__(self, most: int, of_caller: int, clock: Callable[[], float]) -> None:
        self._free = most
        self._of_caller = of_caller
        self._clock = clock
        self._turns = Turns(clock)
        self._working: Counter[str] = Counter()
        self._waiting: list[_Waiter] = []
        """In the order of arrival."""

    @property
    def waiting(self) -> int:
        """The number of works that wait for a place."""
        return len(self._waiting)

    async def take(self, caller: str) -> "Place":
        """A place for one work of a caller, which has to be left.

        Raises:
            CrowdedError: there is none in time.
        """
        if sum(each.caller == caller for each in self._waiting) >= MOST_WAITING:
            raise CrowdedError(f"{MOST_WAITING} other requests of yours wait for their turn; try again")
        waiter = _Waiter(caller, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._serve()
        try:
            async with asyncio.timeout(WAITING_SECONDS):
                await waiter.turn
        except BaseException as error:
            self._give_up(waiter)
            if isinstance(error, TimeoutError):
                raise CrowdedError("the requests of others take long; try again") from None
            raise
        return Place(self._leave, caller, self._clock())

    def offload(self, off_loop: Offload, caller: str) -> Offload:
        """A way to have works of a caller done, each in a place.

        The place of a caller that is cancelled is free once its work has ended.
        """

        async def run(work: Callable[[], T]) -> T:
            with await self.take(caller):
                return await to_the_end(off_loop(work))

        return run

    def _serve(self) -> None:
        while self._free and (waiter := self._next()):
            self._waiting.remove(waiter)
            self._working[waiter.caller] += 1
            self._free -= 1
            waiter.turn.set_result(None)

    def _next(self) -> _Waiter | None:
        may = [each for each in self._waiting if not each.turn.done() and self._working[each.caller] < self._of_caller]
        return next(self._turns.ordered(may, attrgetter("caller")), None)

    def _give_up(self, waiter: _Waiter) -> None:
        """End waiting. A place that was found in the same moment is left."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        else:
            self._leave(waiter.caller, self._clock())

    def _leave(self, caller: str, since: float) -> None:
        self._turns.spend(caller, self._clock() - since)
        self._working[caller] -= 1
        if not self._working[caller]:
            del self._working[caller]
        self._free += 1
        self._serve()


class Place(AbstractContextManager["Place"]):
    """A place that a work has; it is left at the end of the context.

    Args:
        leave: is told the caller, and since when it has had the place.
    """

    def __init__(self, leave: Callable[[str, float], None], caller: str, since: float) -> None:
        self._leave = leave
        self._caller = caller
        self._since = since

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Leave the place, once."""
        self._leave(self._caller, self._since)


SAVED_SECONDS: Final = 10.0
"""What is not spent is saved for this long. With a share of 0.1, one second of waiting is saved."""

QUICK_SECONDS: Final = 0.01
"""So much of each wait is free: an ordinary pod takes kube-scheduler about as long."""

_IDLE_SECONDS: Final = 10.0
"""A namespace that has not asked for this long leaves its part to the others."""

_MOST_NAMESPACES: Final = 1024


@dataclass(slots=True)
class _Part:
    """The seconds that one namespace has spent, as of a time; and when the namespace has asked last."""

    spent: float
    at: float


class WaitingBudget:
    """Seconds that schedulers may wait for one thing, with equal parts for the namespaces that ask.

    Args:
        share: of each second that may be waited, from 0 to 1. With 0, nobody waits.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._most = share * SAVED_SECONDS
        self._total = _Part(0.0, 0.0)
        self._parts: dict[str, _Part] = {}

    def left(self, namespace: str, now: float) -> float:
        """Return how long filter may wait now for a pod of a namespace, in seconds.

        The namespace counts as one that asks. So if all asked in the last seconds, each has an equal part.
        """
        if not self._share:
            return 0.0
        self._forget_idle(now)
        part = self._parts.pop(namespace, _Part(0.0, now))
        self._parts[namespace] = part  # the last one of the dictionary has asked last
        number = len(self._parts)
        self._restore(part, now, self._share / number)
        self._restore(self._total, now, self._share)
        left = min(self._most / number - part.spent, self._most - self._total.spent)
        return max(0.0, left) + QUICK_SECONDS

    def spend(self, namespace: str, seconds: float) -> None:
        """Count a wait of a namespace that `left` was asked about."""
        costs = max(0.0, seconds - QUICK_SECONDS)
        for part in (self._total, self._parts.get(namespace)):
            if part is not None:
                part.spent += costs

    def _restore(self, part: _Part, now: float, rate: float) -> None:
        part.spent = max(0.0, part.spent - rate * max(0.0, now - part.at))
        part.at = now

    def _forget_idle(self, now: float) -> None:
        while self._parts:
            namespace, oldest = next(iter(self._parts.items()))
            if now <= oldest.at + _IDLE_SECONDS and len(self._parts) < _MOST_NAMESPACES:
                return
            del self._parts[namespace]
