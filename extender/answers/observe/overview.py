"""The state of a running service, for tables and metrics."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from allocator import Features
from extender.answers.observe.counts import ClaimCounts, PendingPods
from extender.answers.observe.device_history import DeviceHistory
from extender.answers.observe.device_states import DeviceStates
from extender.answers.observe.pool_sizes import PoolSizes
from extender.cluster.cluster_state import ClusterState
from extender.framework.decision_log import DecisionLog
from extender.framework.decisions.evaluate import Decider
from extender.kube.api import Api
from extender.kube.resources import RESOURCES
from extender.plugins.quota.limit_use import quota_use
from extender.tools.fairness.places import Places
from extender.tools.fairness.verb_priority import VerbPriority
from extender.tools.offload import Offload, in_thread

if TYPE_CHECKING:  # a cluster in memory needs no client of an API server, and the client is slow to import
    from extender.cluster.live import LiveCluster


@dataclass(frozen=True, slots=True)
class KindHealth:
    """How well one kind of object is known.

    Attributes:
        kind: its plural.
        problem: why the state of the kind is not reliable; empty if it is.
        objects: the number of objects in memory; only pods that may need devices are kept.
        unreadable: the number of objects that cannot be read and count as absent.
        revision: the revision up to which everything is known.
        age: seconds since the last message of its watch; None if it is not watched or not synced yet.
    """

    kind: str
    problem: str
    objects: int
    unreadable: int
    revision: int
    age: float | None


def _places() -> Places:
    """Two at a time, of one caller one. They are not slowed down by searches, so the clock is a plain one."""
    return Places(2, 1, time.monotonic)


@dataclass(frozen=True, slots=True)
class Overview:
    """A view of a service's cluster and decisions.

    Attributes:
        api: has what the state does not keep, for example pods without devices.
        devices: remembers their states.
        claims: counts them.
        pending: counts pending pods.
        history: knows who has held devices.
        sizes: finds pools and nodes with too many devices.
        decider: counts verdicts from memory and by search.
        now: the time of day.
        live: the live cluster behind the state; None for a cluster in memory.
        schedulers: names of the schedulers that call the extender; empty: not known.
        off_loop: where messages to all pages of the console are made.
        pages: places for making tables and pages of the console.
        selections: places for those with selectors on all devices, which may take seconds.
        verb_priority: knows when verbs run.
    """

    api: Api
    state: ClusterState
    features: Features
    decision_log: DecisionLog
    devices: DeviceStates
    claims: ClaimCounts
    pending: PendingPods
    history: DeviceHistory
    sizes: PoolSizes
    decider: Decider
    now: Callable[[], datetime]
    live: "LiveCluster | None" = None
    schedulers: Sequence[str] = ()
    off_loop: Offload = in_thread
    pages: Places = field(default_factory=_places)
    selections: Places = field(default_factory=_places)
    verb_priority: VerbPriority = field(default_factory=VerbPriority)

    def offload(self, caller: str, *, selects: bool = False) -> Offload:
        """Where a table or a page is made for a caller.

        Args:
            caller: whose place it takes.
            selects: whether it has selectors on all devices. They pause for verbs, and take no turn of a search.
        """
        return (self.selections if selects else self.pages).offload(in_thread, caller)

    def selecting_clock(self) -> Callable[[], float]:
        """The clock for the selectors of one page: whoever looks at it pauses while a verb runs."""
        clock, pause = self.decider.solver.clock, self.verb_priority.turn()

        def now() -> float:
            pause()
            return clock()

        return now

    def recount(self) -> None:
        """Count what has changed since the last time: after a list, that takes long, and a thread can do it."""
        snapshot = self.state.snapshot
        self.devices.count(snapshot)
        self.claims.count(snapshot)
        self.pending.count(snapshot)
        quota_use(snapshot, self.decider.solver)

    def kinds(self) -> tuple[KindHealth, ...]:
        """Every kind, by its plural."""
        ages = self.live.ages() if self.live else {}
        problems = [kind for kind, _ in self.state.snapshot.problems]
        found = (
            KindHealth(
                kind=resource.plural,
                problem=self.state.doubt_of(resource),
                objects=self.state.count(resource),
                unreadable=problems.count(resource.kind),
                revision=self.state.seen(resource),
                age=ages.get(resource.kind),
            )
            for resource in RESOURCES.values()
        )
        return tuple(sorted(found, key=lambda health: health.kind))
