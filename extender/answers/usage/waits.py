"""How long pods with devices wait for a node, by namespace: those that got one in the last day, and those that wait."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import add
from typing import Final, NamedTuple

from extender.answers.usage.amounts import MINUTE, MINUTES, OTHERS
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, Timeline, View
from extender.kube.api import ObjectKey

QUARTER: Final = 15
"""The minutes that are counted together."""

_QUARTERS: Final = MINUTES // QUARTER + 1
_BUCKETS: Final = 48
_BOUNDS: Final = tuple(float(f"{0.5 * 1.3**bucket:.4g}") for bucket in range(_BUCKETS))
"""Seconds: waits of up to half a second, and then of up to 1.3 times as much each: up to 31 hours."""

_ALL: Final = _QUARTERS * _BUCKETS

_COARSE: Final = 3
"""Buckets that metrics sum in one."""

COARSE_BOUNDS: Final = (*_BOUNDS[_COARSE - 1 : -1 : _COARSE], float("inf"))
"""The upper bounds of the buckets of metrics, in seconds."""


def _bucket(seconds: float) -> int:
    return min(_BUCKETS - 1, bisect_left(_BOUNDS, seconds))


class Counts(NamedTuple):
    """How many pods have waited how long.

    Attributes:
        counts: by bucket.
    """

    counts: tuple[int, ...]

    @property
    def pods(self) -> int:
        """The number of pods."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """The seconds within which this share of the pods had a node, 1.3 times too many or too few at most."""
        wanted, before = share * self.pods, 0
        for bucket, count in enumerate(self.counts):
            if count and before + count >= wanted:
                low = _BOUNDS[bucket - 1] if bucket else 0.0
                return low + (_BOUNDS[bucket] - low) * (wanted - before) / count
            before += count
        return None


class RecordedWaits(NamedTuple):
    """Pods that had got their nodes before this process began.

    Attributes:
        minute: in which they got them, since 1970.
        counts: by bucket of `COARSE_BOUNDS`.
    """

    namespace: str
    minute: int
    counts: Sequence[int]


class _Quarters:
    """The waits of one namespace over the last day.

    Attributes:
        ever: the pods since it began, by bucket of `COARSE_BOUNDS`, without what is known from elsewhere.
    """

    __slots__ = ("_counts", "_last", "ever", "total")

    def __init__(self, quarter: int) -> None:
        self._last = quarter
        self._counts = array("I", bytes(4 * _ALL))
        self.total = 0
        self.ever = [0] * len(COARSE_BOUNDS)

    def add(self, quarter: int, bucket: int) -> None:
        self.advance(quarter)
        self._counts[quarter % _QUARTERS * _BUCKETS + bucket] += 1
        self.total += 1
        self.ever[bucket // _COARSE] += 1

    def put(self, quarter: int, counts: Sequence[int]) -> None:
        """Add what is known from elsewhere, if the quarter is remembered: each pod in the middle of its buckets."""
        if self._last - _QUARTERS < quarter <= self._last:
            start = quarter % _QUARTERS * _BUCKETS + _COARSE // 2
            for coarse, count in enumerate(counts):
                self._counts[start + coarse * _COARSE] += count
            self.total += sum(counts)

    def advance(self, quarter: int) -> None:
        """Forget what is more than a day ago."""
        for each in range(max(self._last + 1, quarter - _QUARTERS + 1), quarter + 1):
            start = each % _QUARTERS * _BUCKETS
            self.total -= sum(self._counts[start : start + _BUCKETS])
            self._counts[start : start + _BUCKETS] = array("I", bytes(4 * _BUCKETS))
        self._last = max(self._last, quarter)

    def take(self, other: "_Quarters", quarter: int) -> None:
        self.advance(quarter)
        other.advance(quarter)
        self._counts = array("I", map(add, self._counts, other._counts))
        self.total += other.total

    def counts(self, first: int, last: int) -> Counts:
        kept = range(max(first, self._last - _QUARTERS + 1), min(last, self._last) + 1)
        rows = [self._counts[each % _QUARTERS * _BUCKETS : each % _QUARTERS * _BUCKETS + _BUCKETS] for each in kept]
        return Counts(tuple(map(sum, zip(*rows, strict=True))) if rows else (0,) * _BUCKETS)


class WaitCounts:
    """How long pods have waited, by namespace, over the last day. The smallest namespaces share one row.

    Args:
        most: namespaces with a row of their own.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: dict[str, _Quarters] = {}
        """Where there are too many, a new namespace takes the place of the one with the fewest pods."""
        self._others: _Quarters | None = None

    def expect(self, namespace: str, now: int) -> None:
        """Pods of a namespace wait: it gets a row if there is room, so that a counter is seen before it counts."""
        if namespace not in self._rows and len(self._rows) < self._most:
            self._rows[namespace] = _Quarters(now // MINUTE // QUARTER)

    def put(self, waits: Iterable[RecordedWaits], now: int) -> None:
        """Add what is known from elsewhere. Where there are too many namespaces, those with the most get rows."""
        of_namespace: dict[str, list[RecordedWaits]] = {}
        for each in waits:
            of_namespace.setdefault(each.namespace, []).append(each)
        total = {name: sum(sum(each.counts) for each in found) for name, found in of_namespace.items()}
        for name in sorted(of_namespace, key=lambda name: -total[name]):
            row = self._row_of_past(name, now // MINUTE // QUARTER)
            for each in of_namespace[name]:
                row.put(each.minute // QUARTER, each.counts)

    def _row_of_past(self, namespace: str, quarter: int) -> _Quarters:
        """The row of a namespace, or that of the others."""
        if namespace != OTHERS:
            self.expect(namespace, quarter * QUARTER * MINUTE)
        row = self._rows.get(namespace)
        if row is None:
            row = self._others = self._others or _Quarters(quarter)
        row.advance(quarter)
        return row

    def add(self, namespace: str, seconds: float, now: int) -> None:
        """A pod of a namespace has got its node now."""
        quarter = now // MINUTE // QUARTER
        if namespace not in self._rows:
            if len(self._rows) >= self._most:
                least = min(self._rows, key=lambda each: self._rows[each].total)
                self._others = self._others or _Quarters(quarter)
                self._others.take(self._rows.pop(least), quarter)
            self._rows[namespace] = _Quarters(quarter)
        self._rows[namespace].add(quarter, _bucket(seconds))

    def counts(self, first: int, last: int) -> Mapping[str, Counts]:
        """The counts of the quarters of an hour that the minutes from one to another touch."""
        found = {name: row.counts(first // QUARTER, last // QUARTER) for name, row in self._named().items()}
        return {name: counts for name, counts in found.items() if counts.pods}

    def ever(self) -> Mapping[str, Sequence[int]]:
        """The pods since each row began, by bucket of `COARSE_BOUNDS`. The numbers only grow, as counters do."""
        return {name: tuple(row.ever) for name, row in self._named().items()}

    def _named(self) -> Mapping[str, _Quarters]:
        return self._rows if self._others is None else {**self._rows, OTHERS: self._others}


class PodWaits(View[Mapping[ObjectKey, Pod]]):
    """Follows pods with devices, and tells of those that begin to wait and of those that get a node.

    Args:
        timeline: of the cluster.
        now: the time.
        waiting: hears of a namespace, and by how much the number of its waiting pods changes.
        placed: hears of a namespace, and for how many seconds a pod of it has waited.
    """

    topics = frozenset({Topic.POD})
    bound = "the pods that wait"

    def __init__(
        self,
        timeline: Timeline,
        now: Callable[[], datetime],
        waiting: Callable[[str, int], None],
        placed: Callable[[str, float], None],
    ) -> None:
        super().__init__(timeline)
        self._now = now
        self._waiting = waiting
        self._placed = placed
        self._pending: dict[ObjectKey, Pod] = {}
        self._fresh: dict[str, datetime] = {}
        """Pods that had a node when they were seen first, and when they were created: as long as they look new."""
        self._looked: datetime | None = None

    def is_near(self, most: int) -> bool:
        """Whether few pods have changed since the last look."""
        return self._known is not None and self._since(self._known.version).among(self.topics).is_within(most)

    def look(self, snapshot: Snapshot) -> None:
        """Look at the pods that have changed."""
        now = self._now()
        self.at(snapshot)
        self._looked = now.replace(microsecond=0)  # times of creation are whole seconds
        self._fresh = {uid: created for uid, created in self._fresh.items() if created >= self._looked}

    def build(self, snapshot: Snapshot) -> Mapping[ObjectKey, Pod]:
        """Look at all pods."""
        return self._read({**self._pending, **snapshot.pods}, snapshot)

    def apply(self, value: Mapping[ObjectKey, Pod], reach: Reach, snapshot: Snapshot) -> Mapping[ObjectKey, Pod]:
        """Look at those that have changed."""
        del value
        return self._read(reach.keys(Topic.POD) or (), snapshot)

    def _read(self, keys: Iterable[ObjectKey], snapshot: Snapshot) -> Mapping[ObjectKey, Pod]:
        for key in keys:
            before, after = self._pending.pop(key, None), snapshot.pods.get(key)
            waits = after is not None and after.is_pending and after.needs_devices
            if after is not None and waits:
                self._pending[key] = after
            if (before is not None) != waits:
                self._waiting(key.namespace, 1 if waits else -1)
            if after is not None and after.node_name and after.needs_devices and self._is_new(before, after):
                self._placed(key.namespace, max(0.0, (self._now() - _created(after)).total_seconds()))
        return self._pending

    def _is_new(self, before: Pod | None, after: Pod) -> bool:
        """Whether a pod with a node has got it since the last look."""
        if not after.created:
            return False
        if before is not None and before.uid == after.uid:
            return True
        created = _created(after)
        if self._looked is None or created < self._looked or after.uid in self._fresh:
            return False
        self._fresh[after.uid] = created
        return True


def _created(pod: Pod) -> datetime:
    return datetime.fromisoformat(pod.created)
