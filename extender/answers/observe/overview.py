"""The state of a running service, for tables and metrics, with the counts of claims and of pods that wait.

Its own tables tell what it knows of each kind, and what it has decided.
"""

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from allocator import Device, Features, Limits
from allocator.search import SearchBudget, TimedSelectors
from extender.answers.observe.device_history import DeviceHistory, HistoryKeeper
from extender.answers.observe.device_states import DeviceStates, StatesKeeper
from extender.answers.observe.pool_sizes import PoolSizes, SizesKeeper
from extender.answers.observe.problems import Known, Problems, ProblemsKeeper
from extender.answers.usage.usage import Usage, UsageKeeper
from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import POD_CLAIM_NAME, ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, Timeline, View
from extender.cluster.whole_pods import NOT_LISTED, ListedPods, WholePods
from extender.cluster.writes.events import Note
from extender.framework.asked import Asked
from extender.framework.decision_log import DecisionEntry, DecisionLog
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.verdict import PendingReason
from extender.framework.pod_and_claim_states import ClaimState, PodState, state_of_claim, state_of_pod
from extender.framework.task import BackgroundTask
from extender.kube.api import Api, ObjectKey
from extender.kube.resources import RESOURCES
from extender.planning.kube_scheduler import no_attempt
from extender.plugins.quota.limit_use import quota_use
from extender.plugins.requeue.unserved import ToldPods
from extender.tools.fairness import Places
from extender.tools.offload import Offload, in_thread
from extender.tools.table import Item, Row, TableView, matches
from extender.tools.verb_priority import VerbPriority

if TYPE_CHECKING:  # a cluster in memory needs no client of an API server, and the client is slow to import
    from extender.cluster.live import LiveCluster


_SELECTING: Final = Limits(steps=0, seconds=5.0)
"""The limits for the selectors of a page."""

_L = TypeVar("_L", bound=Hashable)
_T = TypeVar("_T")


class _Counted(View[Counter[_L]]):
    """Counts the objects of one kind by label. One thread counts at a time."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline)
        self._labels: dict[ObjectKey, _L] = {}

    @abstractmethod
    def keys(self, snapshot: Snapshot) -> Iterable[ObjectKey]:
        """The keys of all objects."""

    @abstractmethod
    def label(self, key: ObjectKey, snapshot: Snapshot) -> _L | None:
        """The label of an object; None if it does not count, or does not exist."""

    def build(self, snapshot: Snapshot) -> Counter[_L]:
        """Count all objects."""
        self._labels = {}
        return self.put(Counter(), self.keys(snapshot), snapshot)

    def apply(self, value: Counter[_L], reach: Reach, snapshot: Snapshot) -> Counter[_L]:
        """Count those that have changed."""
        return self.put(value, (key for _, key in reach.pairs()), snapshot)

    def put(self, counts: Counter[_L], keys: Iterable[ObjectKey], snapshot: Snapshot) -> Counter[_L]:
        """Count objects, whether they are counted already or not."""
        for key in keys:
            old, new = self._labels.pop(key, None), self.label(key, snapshot)
            if old is not None:
                counts[old] -= 1
            if new is not None:
                self._labels[key] = new
                counts[new] += 1
        return counts


class ClaimSource(Enum):
    """The source of a claim, in the words of kube-controller-manager's metric of claims."""

    CLAIM = "resource_claim"
    """A person or a program has made it."""
    TEMPLATE = "resource_claim_template"
    EXTENDED_RESOURCE = "extended_resource"
    """A special claim."""


_ClaimLabel: TypeAlias = tuple[ClaimState, ClaimSource]


class ClaimCounts(_Counted[_ClaimLabel]):
    """Counts claims by state, and by who made them."""

    topics = frozenset({Topic.CLAIM})
    bound = "the state and the source of each claim"

    def count(self, snapshot: Snapshot) -> Mapping[_ClaimLabel, int]:
        """The number of claims of each source and state."""
        counts = self.at(snapshot)
        return {label: counts[label] for label in product(ClaimState, ClaimSource)}

    def keys(self, snapshot: Snapshot) -> Iterable[ObjectKey]:
        """All claims."""
        return snapshot.claims

    def label(self, key: ObjectKey, snapshot: Snapshot) -> _ClaimLabel | None:
        """State and source of a claim."""
        claim = snapshot.claims.get(key)
        return None if claim is None else (state_of_claim(claim, snapshot), _source(claim))


def _source(claim: ClaimObject) -> ClaimSource:
    if claim.special_of:
        return ClaimSource.EXTENDED_RESOURCE
    return ClaimSource.TEMPLATE if POD_CLAIM_NAME in claim.claim.annotations else ClaimSource.CLAIM


class PendingPods(_Counted[PendingReason]):
    """Counts pending pods by what each waits for.

    Args:
        timeline: of the cluster.
        decision_log: has the latest answer about each pod. Only this object may take its changes.
        schedulers: names of the schedulers that call the extender; empty: not known.
    """

    topics = frozenset({Topic.POD})
    bound = "the reason of each pending pod"

    def __init__(self, timeline: Timeline, decision_log: DecisionLog, schedulers: Collection[str]) -> None:
        super().__init__(timeline)
        self._schedulers = schedulers
        self._decision_log = decision_log

    def count(self, snapshot: Snapshot) -> Mapping[PendingReason, int]:
        """The number of pods that wait, by reason."""
        answered = self._decision_log.changes()
        if answered is None:
            self._known = None  # any reason may be another one
        counts = self.put(self.at(snapshot), answered or (), snapshot)
        return {reason: counts[reason] for reason in PendingReason}

    def keys(self, snapshot: Snapshot) -> Iterable[ObjectKey]:
        """All pods."""
        return snapshot.pods

    def label(self, key: ObjectKey, snapshot: Snapshot) -> PendingReason | None:
        """Why a pod waits; None if it does not."""
        pod = snapshot.pods.get(key)
        if pod is None or state_of_pod(pod) is not PodState.PENDING:
            return None
        if pod.gates or no_attempt(pod, self._schedulers):
            return PendingReason.NO_ATTEMPT
        latest = self._decision_log.latest(pod.uid)
        return PendingReason.NOT_ASKED if latest is None else latest.waits_for


@dataclass(frozen=True, slots=True)
class KindHealth:
    """The state of what is known of one kind of object.

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


class Unasked(Protocol):
    """Judges pods of a cluster that no scheduler follows."""

    def reasons(self, snapshot: Snapshot, seconds: float = ...) -> Callable[[Pod], str]:
        """What tells why a pending pod waits; for so many seconds, pods are judged that were not yet."""


def _places() -> Places:
    """Two at a time, of one caller one. They are not slowed down by searches, so the clock is a plain one."""
    return Places(2, 1, time.monotonic)


class PageSelectors:
    """The selectors of one page. Their time begins with the first of them, in the thread that makes the page.

    The request comes on the event loop, which must never pause, and waits for its place. Neither takes of the time.
    """

    def __init__(self, begin: Callable[[], TimedSelectors]) -> None:
        self._begin = begin

    @cached_property
    def _timed(self) -> TimedSelectors:
        return self._begin()

    def matches(self, expression: str, device: Device) -> bool:
        """Like `TimedSelectors.matches`."""
        return self._timed.matches(expression, device)


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
        usage: knows the usage of the last day.
        decider: counts verdicts from memory and by search.
        problems: of the cluster.
        now: the time of day.
        live: the live cluster behind the state; None for a cluster in memory.
        schedulers: names of the schedulers that call the extender; empty: not known.
        off_loop: where messages to all pages of the console are made.
        pages: places for making tables and pages of the console.
        selections: places for those with selectors on all devices, which may take seconds.
        verb_priority: knows when verbs run.
        told: what pods that fit nowhere were told.
        whole_pods: lists all pods for answers; None: the state has them, or nobody has.
        unasked: judges pods where no scheduler follows the cluster; None: schedulers ask about them.
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
    usage: Usage
    decider: Decider
    problems: Problems
    now: Callable[[], datetime]
    live: "LiveCluster | None" = None
    schedulers: Sequence[str] = ()
    off_loop: Offload = in_thread
    pages: Places = field(default_factory=_places)
    selections: Places = field(default_factory=_places)
    verb_priority: VerbPriority = field(default_factory=VerbPriority)
    told: ToldPods = field(default_factory=ToldPods)
    whole_pods: WholePods | None = None
    unasked: Unasked | None = None

    async def listed_pods(self) -> ListedPods:
        """All pods, for one answer; verbs go first."""
        return NOT_LISTED if self.whole_pods is None else await self.whole_pods.listed(self.verb_priority.turn())

    def offload(self, caller: str, *, selects: bool = False) -> Offload:
        """The way to make a table or a page for a caller, off the event loop.

        Args:
            caller: whose place it takes.
            selects: whether it has selectors on all devices. They pause for verbs, and take no turn of a search.
        """
        offload = (self.selections if selects else self.pages).offload(in_thread, caller)

        async def run(work: Callable[[], _T]) -> _T:
            with self.verb_priority.reader():
                return await offload(work)

        return run

    def selectors(self) -> PageSelectors:
        """For the devices of one page. They pause while a verb runs."""
        solver, pause = self.decider.solver, self.verb_priority.turn()

        def now() -> float:
            pause()
            return solver.clock()

        return PageSelectors(lambda: TimedSelectors(solver.selectors, SearchBudget(_SELECTING, now)))

    def recount(self) -> None:
        """Count what has changed since the last time: after a list, that takes long, and a thread can do it."""
        snapshot = self.state.snapshot
        self.devices.count(snapshot)
        self.claims.count(snapshot)
        self.pending.count(snapshot)
        quota_use(snapshot, self.decider.solver)

    def found_problems(self) -> Sequence[Known]:
        """The problems of the newest snapshot; to be called in a thread."""
        return self.problems.look(self.state.snapshot, self.verb_priority.turn())

    def keepers(
        self, tell: Callable[[Pod, Note], None], asked: Asked, in_background: Offload
    ) -> Sequence[BackgroundTask]:
        """The background tasks that keep it up. They wait for no search, so the clock is a plain one.

        Args:
            tell: writes an Event on a pod.
            asked: whether a scheduler asks this process.
            in_background: runs their long looks, one after the other. Nobody waits for these looks.
        """
        return [
            HistoryKeeper(self.state, self.history, in_background),
            StatesKeeper(self.state, self.devices, time.monotonic, self.off_loop),
            SizesKeeper(self.state, self.sizes, in_background),
            UsageKeeper(self.state, self.usage, in_background),
            ProblemsKeeper(self.state, self.problems, self.give_way, in_background, time.monotonic, tell, asked),
        ]

    def give_way(self) -> None:
        """Let verbs go first, and other background work, in work in the background: it does so at the clock."""
        self.decider.solver.clock()

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


def kinds(found: Iterable[KindHealth]) -> TableView:
    """A row for each kind of object."""
    columns = ("kind", "objects", "unreadable", "revision", "age", "ready", "problem")
    return TableView(columns, (Row((health.kind,), partial(_kind, health)) for health in found))


def _kind(health: KindHealth) -> Item:
    return {
        "kind": health.kind,
        "objects": health.objects,
        "unreadable": health.unreadable,
        "revision": health.revision,
        "age": None if health.age is None else round(health.age, 1),
        "ready": not health.problem,
        "problem": health.problem,
    }


def decisions(entries: Iterable[DecisionEntry], *, namespace: str = "", pod: str = "", verb: str = "") -> TableView:
    """The latest decisions, the newest first."""
    columns = ("time", "id", "verb", "namespace", "pod", "node", "passed", "rejected", "milliseconds", "error")

    def rows() -> Iterator[Row]:
        for entry in entries:
            wanted = matches(namespace, entry.pod.namespace) and matches(pod, entry.pod.name)
            if wanted and matches(verb, entry.verb):
                yield Row((f"{2**63 - entry.number:020}",), partial(decision_item, entry))

    return TableView(columns, rows())


def decision_item(entry: DecisionEntry) -> Item:
    """The row of a decision."""
    return {
        "time": entry.at.isoformat(timespec="milliseconds"),
        "id": entry.id,
        "verb": entry.verb,
        "namespace": entry.pod.namespace,
        "pod": entry.pod.name,
        "node": entry.node,
        "passed": entry.passed,
        "rejected": dict(entry.rejected),
        "milliseconds": round(entry.seconds * 1000, 1),
        "error": entry.error,
    }
