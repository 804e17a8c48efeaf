"""The usage of a cluster's devices over the last day, as far as this process saw it, and its metrics.

The usage is kept up with each change.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial
from threading import Lock
from typing import Final, NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from extender.answers.usage.amounts import MINUTE, Amounts, Minutes, Named, Sums
from extender.answers.usage.holdings import UNIT, Holding, Holdings
from extender.answers.usage.waits import COARSE_BOUNDS, Counts, PodWaits, RecordedWaits, WaitCounts
from extender.cluster.cluster_state import ClusterState
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Timeline
from extender.framework.task import BackgroundTask
from extender.tools.metrics import Values, counter, histogram
from extender.tools.offload import Offload

MOST_NAMESPACES: Final = 256
MOST_WAITING: Final = 128
MOST_NAMES: Final = 64
MOST_DRIVERS: Final = 16
"""Rows: of namespaces with devices, of those with waiting pods, of classes and models, and of drivers. The smallest are
summed."""

_FEW: Final = 200
"""Claims, pods and devices that are looked at on the event loop: half a millisecond."""


class By(Enum):
    """The property by which usage is summed."""

    NAMESPACE = "namespace"
    CLASS = "class"
    MODEL = "model"
    DRIVER = "driver"


_MOST: Final = {
    By.NAMESPACE: MOST_NAMESPACES,
    By.CLASS: MOST_NAMES,
    By.MODEL: MOST_NAMES,
    By.DRIVER: MOST_DRIVERS,
}


def _rows() -> dict[By, Amounts]:
    return {by: Amounts(_MOST[by]) for by in By}


@dataclass(frozen=True, slots=True)
class UsageOfDay:
    """The usage of the last day, as it was at one moment.

    Attributes:
        now: in milliseconds since 1970.
        since: when this process began to watch, in milliseconds since 1970; None: it has not yet.
        past: whether the time before is known: `RECORDED`, or why Prometheus has not told it, or empty: nobody was
            asked.
        observed: for how long the cluster was watched in each minute, in milliseconds: by this process, or before it by
            others, as Prometheus has it.
        judged: likewise, for how long it was known what is in pieces.
        held: the devices that claims held, in parts of `UNIT` times milliseconds.
        published: the devices that there were, likewise: by model, and by driver.
        waiting: the pods that waited, times milliseconds.
        in_pieces: the devices that were free, but in pieces; as `held`, by driver.
        waits: how long pods had waited that got a node, between two minutes.
    """

    now: int
    since: int | None
    past: str
    observed: Sums
    judged: Sums
    held: Mapping[Named, Sums]
    published: Mapping[Named, Sums]
    waiting: Mapping[Named, Sums]
    in_pieces: Mapping[Named, Sums]
    waits: Callable[[int, int], Mapping[str, Counts]]


STEP: Final = 5
"""The minutes of which Prometheus has a mean."""

RECORDED: Final = "recorded"
"""The past is known from Prometheus."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A mean of `STEP` minutes.

    Attributes:
        by: what the name is of.
        minute: the first minute, since 1970.
        amount: the mean, in `UNIT`.
    """

    by: By
    name: Named
    minute: int
    amount: int

    def minutes(self, before: int) -> range:
        """Those of its minutes that were before another one."""
        return range(self.minute, min(self.minute + STEP, before))


class Past(NamedTuple):
    """What is known of the time before this process began, each value a mean of some minutes.

    Attributes:
        held: the devices that claims held.
        published: the devices that there were.
        waiting: the pods that waited, by namespace.
        in_pieces: the devices that were free, but in pieces, by driver.
        observed: the part of the time in which the cluster was watched.
        judged: the part in which it was known what is in pieces.
        placed: pods that got their nodes.
    """

    held: Sequence[Recorded] = ()
    published: Sequence[Recorded] = ()
    waiting: Sequence[Recorded] = ()
    in_pieces: Sequence[Recorded] = ()
    observed: Sequence[Recorded] = ()
    judged: Sequence[Recorded] = ()
    placed: Sequence[RecordedWaits] = ()


class UsageCounters(NamedTuple):
    """Sums since this process began, in parts of `UNIT` times milliseconds.

    Attributes:
        held: the devices that claims held.
        published: the devices that there were, by model and by driver.
        waiting: the pods that waited, in milliseconds.
        in_pieces: the devices that were free, but in pieces, by driver.
        observed: for how many milliseconds this process watched.
        judged: for how many it was known what is in pieces.
        placed: how many pods got their nodes, by namespace, and by bucket of `COARSE_BOUNDS`.
    """

    held: Mapping[By, Mapping[Named, int]]
    published: Mapping[By, Mapping[Named, int]]
    waiting: Mapping[Named, int]
    in_pieces: Mapping[Named, int]
    observed: int
    judged: int
    placed: Mapping[str, Sequence[int]]


@dataclass(slots=True)
class _Known:
    """All that is remembered."""

    observed: Minutes
    judged: Minutes
    held: dict[By, Amounts] = field(default_factory=_rows)
    published: dict[By, Amounts] = field(
        default_factory=lambda: {by: Amounts(_MOST[by]) for by in (By.MODEL, By.DRIVER)}
    )
    waiting: Amounts = field(default_factory=lambda: Amounts(MOST_WAITING))
    in_pieces: Amounts = field(default_factory=lambda: Amounts(MOST_DRIVERS))
    waits: WaitCounts = field(default_factory=lambda: WaitCounts(MOST_WAITING))

    def all(self) -> tuple[Amounts, ...]:
        return (*self.held.values(), *self.published.values(), self.waiting, self.in_pieces)


class Usage:
    """Follows a cluster: each change counts from the moment at which it is seen.

    Args:
        timeline: of the cluster.
        now: the time.
        pause: lets others go on, between claims and between pools.
    """

    def __init__(
        self, timeline: Timeline, now: Callable[[], datetime], pause: Callable[[], object] = lambda: None
    ) -> None:
        self._clock = now
        self._lock = Lock()  # people read in threads, while the event loop looks
        self._now = self._milliseconds()
        self._since: int | None = None
        self._known = _Known(Minutes(self._now), Minutes(self._now))
        self._holdings = Holdings(timeline, self._holds, self._publishes, pause)
        self._pods = PodWaits(timeline, now, self._waits, self._was_placed)
        self._pieces: Mapping[str, int] = {}
        self._past = ""

    def is_near(self, snapshot: Snapshot) -> bool:
        """Whether little has changed since the last look, so that the next one takes no time to speak of."""
        return self._pods.is_near(_FEW) and self._holdings.is_near(snapshot, _FEW)

    def look(self, snapshot: Snapshot) -> None:
        """Take in what has changed since the last look."""
        with self._lock:
            now = max(self._now, self._milliseconds())
            if now // MINUTE > self._now // MINUTE:
                for each in self._known.all():
                    each.advance(now)
            self._now = now
        self._holdings.at(snapshot)  # takes long at first, so each change has the lock alone
        with self._lock:
            if self._since is None:
                self._since = self._now
                self._known.observed.change(1, self._now)
            self._pods.look(snapshot)

    @property
    def since(self) -> int | None:
        """When this process began to watch, in milliseconds since 1970; None: it has not yet."""
        return self._since

    def was(self, past: Past) -> None:
        """What was known before this process began to watch."""
        with self._lock:
            now = self._now = max(self._now, self._milliseconds())
            before, known = (self._since or now) // MINUTE, self._known
            for amounts, unit, found in (
                (known.held, 1, past.held),
                (known.published, 1, past.published),
                ({By.NAMESPACE: known.waiting}, UNIT, past.waiting),
                ({By.DRIVER: known.in_pieces}, 1, past.in_pieces),
            ):
                for each in (each for each in found if each.by in amounts):
                    for minute in each.minutes(before):
                        amounts[each.by].put(each.name, minute, each.amount * MINUTE // unit, now)
            for of_time, parts in ((known.observed, past.observed), (known.judged, past.judged)):
                for each in parts:
                    for minute in each.minutes(before):
                        of_time.put(minute, min(UNIT, each.amount) * MINUTE // UNIT)
            known.waits.put((each for each in past.placed if each.minute < before), now)
            self._past = RECORDED

    def past_is_unknown(self, why: str) -> None:
        """Prometheus was asked about the past, and has not told it."""
        self._past = f"Prometheus was not read: {why}"

    def found_in_pieces(self, devices: Mapping[str, int] | None) -> None:
        """From now on, so many devices of each driver are free, but in pieces; None: it is not known how many are."""
        with self._lock:
            now = self._now = max(self._now, self._milliseconds())
            after = devices or {}
            for driver in {**self._pieces, **after}:
                by = (after.get(driver, 0) - self._pieces.get(driver, 0)) * UNIT
                if by:
                    self._known.in_pieces.change(Named(driver, driver), by, now)
            self._pieces = dict(after)
            self._known.judged.change((devices is not None) - self._known.judged.level, now)

    def day(self, by: By) -> UsageOfDay:
        """The usage of the last day, up to now."""
        with self._lock:
            now = self._now = max(self._now, self._milliseconds())
            known = self._known
            published = known.published[By.MODEL if by is By.MODEL else By.DRIVER]
            return UsageOfDay(
                now,
                self._since,
                self._past,
                known.observed.sums(now),
                known.judged.sums(now),
                known.held[by].sums(now),
                published.sums(now),
                known.waiting.sums(now),
                known.in_pieces.sums(now),
                self._waits_between,
            )

    def levels(self) -> Mapping[str, Mapping[Named, int]]:
        """What there is now: ``waiting`` pods, ``published`` devices, and the devices that are held, by each `By`."""
        with self._lock:
            held = {by.value: amounts.levels() for by, amounts in self._known.held.items()}
            return {
                **held,
                "published": self._known.published[By.MODEL].levels(),
                "waiting": self._known.waiting.levels(),
            }

    def counters(self) -> "UsageCounters":
        """Sums that only grow."""
        with self._lock:
            now = self._now = max(self._now, self._milliseconds())
            for each in (self._known.observed, self._known.judged):
                each.advance(now)
            return UsageCounters(
                {by: amounts.ever(now) for by, amounts in self._known.held.items()},
                {by: amounts.ever(now) for by, amounts in self._known.published.items()},
                self._known.waiting.ever(now),
                self._known.in_pieces.ever(now),
                self._known.observed.ever,
                self._known.judged.ever,
                self._known.waits.ever(),
            )

    def _waits_between(self, first: int, last: int) -> Mapping[str, Counts]:
        with self._lock:
            return self._known.waits.counts(first, last)

    def _milliseconds(self) -> int:
        return int(self._clock().timestamp() * 1000)

    def _holds(self, holding: Holding, change: int) -> None:
        names = {
            By.NAMESPACE: holding.namespace,
            By.CLASS: holding.device_class,
            By.MODEL: holding.model,
            By.DRIVER: holding.driver,
        }
        with self._lock:
            for by, name in names.items():
                self._known.held[by].change(Named(name, holding.driver), change, self._now)

    def _publishes(self, model: str, driver: str, change: int) -> None:
        with self._lock:
            self._known.published[By.MODEL].change(Named(model, driver), change, self._now)
            self._known.published[By.DRIVER].change(Named(driver, driver), change, self._now)

    def _waits(self, namespace: str, change: int) -> None:
        self._known.waiting.change(Named(namespace, ""), change, self._now)
        if change > 0:
            self._known.waits.expect(namespace, self._now)

    def _was_placed(self, namespace: str, seconds: float) -> None:
        self._known.waits.add(namespace, seconds, self._now)


class UsageKeeper(BackgroundTask):
    """Keeps the usage up with the cluster.

    Args:
        state: the cluster. While it is not known, it counts as it was known last.
        usage: is told of it.
        off_loop: where much is looked at: all of it first, and what has changed in lists.
    """

    def __init__(self, state: ClusterState, usage: Usage, off_loop: Offload) -> None:
        self._state = state
        self._usage = usage
        self._off_loop = off_loop

    async def tick(self) -> None:
        """Look at what has changed."""
        if self._state.not_ready:
            return
        snapshot = self._state.snapshot
        if self._usage.is_near(snapshot):
            self._usage.look(snapshot)
        else:
            await self._off_loop(partial(self._usage.look, snapshot))


HELD: Final = "usage_device_seconds"
PUBLISHED: Final = "usage_published_device_seconds"
WAITING: Final = "usage_waiting_pod_seconds"
PLACED: Final = "usage_pod_wait_seconds"
IN_PIECES: Final = "usage_device_in_pieces_seconds"
OBSERVED: Final = "usage_known_seconds"
JUDGED: Final = "usage_in_pieces_known_seconds"
LABELS: Final = ("by", "name", "driver")
NAME: Final = LABELS[1]
"""The label of a namespace: Prometheus puts one of its own in the place of ``namespace``."""


class UsageMetrics(Collector):
    """The metrics of usage, worked out at each scrape."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        found = self._usage.counters()
        text = "Seconds for which claims held devices, times the devices, by namespace, class, model or driver."
        yield counter(HELD, text, LABELS, _values(found.held))
        text = "Seconds for which devices were published, times the devices, by model or driver."
        yield counter(PUBLISHED, text, LABELS, _values(found.published))
        text = "Seconds for which pods with devices waited for a node, times the pods, by namespace."
        yield counter(WAITING, text, (NAME,), (((of.name,), each / 1000) for of, each in found.waiting.items()))
        text = "Seconds from creation to node of pods with devices, by namespace."
        yield histogram(PLACED, text, (NAME,), COARSE_BOUNDS, (((name,), each) for name, each in found.placed.items()))
        text = "Seconds for which devices were free, but in pieces, times the devices."
        pieces = (((of.driver,), amount / UNIT / 1000) for of, amount in found.in_pieces.items())
        yield counter(IN_PIECES, text, ("driver",), pieces)
        text = "Seconds for which this replica knew the usage of the cluster."
        yield counter(OBSERVED, text, (), [((), found.observed / 1000)])
        text = "Seconds for which this replica knew which devices are in pieces."
        yield counter(JUDGED, text, (), [((), found.judged / 1000)])


def _values(sums: Mapping[By, Mapping[Named, int]]) -> Values:
    return (((by.value, *name), amount / UNIT / 1000) for by, found in sums.items() for name, amount in found.items())
