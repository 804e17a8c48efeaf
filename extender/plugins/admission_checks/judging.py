"""Judges jobs one after the other: whether all pods of a job find devices beside the devices promised to others."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from allocator import ClassMembers, InvalidObjectError, Limits, SearchLimitError
from allocator.search import SearchBudget, TimedSelectors
from allocator.tools import printable
from extender.cluster.objects.extended_resources import MARKER
from extender.cluster.objects.kueue import PodSet, Workload
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.bound_pods import is_pinned, lacks_some
from extender.framework.cycle import policy_of
from extender.framework.decisions.solver import No, Solver
from extender.framework.filter import FilterResult
from extender.framework.pods.claims import Blocked, claims_of
from extender.framework.pods.extended_resources import request_nouns
from extender.framework.ranking import score_nodes
from extender.planning.kube_scheduler import SchedulerChecks
from extender.planning.planner import LateError, Planner, Queued, as_planned
from extender.planning.queue import waiting_pods
from extender.plugins.admission_checks.jobs import JOB_LABEL, Job, StandIn, copies, label_of, stand_in

PLAN_SECONDS: Final = 10.0
"""The longest time for the pods of one job, and for the pods still to come of all jobs that devices are kept for."""

CAME_SECONDS: Final = 5.0
"""The longest time for the pods that have come of jobs that devices are kept for."""

WAITING_SECONDS: Final = 1.0
"""The longest time for other pods that wait. Each job waits for them, and any user may have very many."""

CLASS_SECONDS: Final = 1.0
"""The longest time for the selectors of one class. If the time is up, any driver may have devices of the class."""

_PODS_AT_ONCE: Final = 512
"""The pods that have plain turns at a time: more than one claim may be reserved for."""

_MOST_REASONS: Final = 3
_LONGEST: Final = 1000
"""The most characters of a reason, which has names that users choose."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether there are devices for a job.

    Attributes:
        pods: how many of its pods need devices.
        reason: why there are none for all of them; empty if there are.
        labeled: the places of the pod sets that need devices.
    """

    pods: int
    reason: str = ""
    labeled: tuple[int, ...] = ()


NOT_DECIDED: Final = Verdict(0, "an unexpected error, see the log of dra-extender")


_UNKNOWN: Final = (
    "not judged: devices of the same kind, or of the same quota, are left to other jobs, and there was no time to find "
    "out which"
)


@dataclass(frozen=True, slots=True)
class Stakes:
    """Tells what pods may take: devices of drivers, resources of device plugins and of nodes, and quotas.

    Pods whose stakes have nothing in common take nothing from each other. Selectors of requests and devices in use are
    ignored, so the stakes of a pod may have too much, and never too little. All partitions of a device have one driver.

    Attributes:
        snapshot: the cluster.
        solver: evaluates the selectors of classes.
    """

    snapshot: Snapshot
    solver: Solver
    _known: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    """The drivers of each class."""

    def of(self, pod: Pod) -> frozenset[tuple[str, str]]:
        """Return what a pod without devices may take."""
        namespace = pod.namespace
        found = {("namespace", namespace)}  # DeviceQuotas, and claims that several pods name
        quotas = (each for each in self.snapshot.device_quotas.values() if each.namespace == namespace)
        found |= {("cohort", each.cohort) for each in quotas if each.cohort}
        found |= {("resource", own.resource) for each in pod.containers for own in each.requests}
        if self.snapshot.inventory.taking:
            found.add(("resource", "of nodes"))
        drivers = {driver for name in self._classes(pod) for driver in self._drivers(name)}
        return frozenset(found | {("driver", each) for each in drivers}) - {("resource", MARKER)}

    def _classes(self, pod: Pod) -> set[str]:
        planned, fork = as_planned(pod, self.snapshot)
        claims = claims_of(planned, fork)
        if isinstance(claims, Blocked):
            return set()
        requests = [request for spec in claims.open_specs for request in spec.requests]
        found = {way.device_class for request in requests for way in request.alternatives}
        members = {name for group in claims.special.groups.values() for name, _ in group.members}
        return {*found, *claims.special.classes.values(), *members}

    def _drivers(self, name: str) -> frozenset[str]:
        if name not in self._known:
            self._known[name] = self._searched(name)
        return self._known[name]

    def _searched(self, name: str) -> frozenset[str]:
        device_class, pools = self.snapshot.classes.get(name), self.snapshot.inventory.pools
        if device_class is None:
            return frozenset()
        budget = SearchBudget(Limits(seconds=CLASS_SECONDS), self.solver.clock)
        members = ClassMembers(device_class, TimedSelectors(self.solver.selectors, budget))
        found: set[str] = set()
        try:
            for identity, pool in pools.items():
                devices = (device for each in pool.newest for device in each.devices)
                if identity.driver not in found and any(map(members.has, devices)):
                    found.add(identity.driver)
        except SearchLimitError:
            return frozenset(each.driver for each in pools)
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class Placed:
    """The cluster after equal pods had their turn.

    Attributes:
        fork: the cluster with the pods that got a node.
        number: how many pods got a node.
        refusal: filter's answer for the first pod that got none; None: all pods got a node, or the time was up.
    """

    fork: Snapshot
    number: int
    refusal: FilterResult | None = None


def place_equal(pod: Pod, number: int, fork: Snapshot, names: Sequence[str], planner: Planner) -> Placed:
    """Put equal pods on a fork. After each pod, only its node is asked again.

    A node that refuses one pod refuses the others as well: the fork only gets fuller. This does not hold for a claim
    that all of the pods use, so such pods have plain turns.

    Args:
        pod: a stand-in; its copies are placed.
        number: how many copies are placed.
        fork: the cluster.
        names: the nodes.
        planner: has the time limit, and remembers the cluster that the fork comes from.
    """
    if any(each.claim_name is not None for each in pod.claims):
        return _by_turns((Queued(each, pod.uid) for each in copies(pod, number)), fork, names, planner)
    left = deque[str]()
    placed = 0
    try:
        for each in copies(pod, number):
            planner.solver.look()
            found = _next(each, left, fork, names, planner)
            if isinstance(found, FilterResult):
                return Placed(fork, placed, found)
            fork, placed = found, placed + 1
    except TimeoutError:
        pass
    return Placed(fork, placed)


def _next(
    pod: Pod, left: deque[str], fork: Snapshot, names: Sequence[str], planner: Planner
) -> Snapshot | FilterResult:
    """Return the fork with the pod on the next node that takes it, or filter's answer about all nodes.

    ``left`` has the nodes that may take the pod, the best first. Nodes that do not take it are dropped.
    """
    planned, there = as_planned(pod, fork)
    found = _on_first(planned, left, there, planner)
    if found is not None:
        return found
    result = planner.takers(pod, names, fork)
    left.extend(_best_first(pod, result, planner))
    found = _on_first(planned, left, there, planner)
    return result if found is None else found


def _on_first(pod: Pod, left: deque[str], fork: Snapshot, planner: Planner) -> Snapshot | None:
    while left:
        name = left[0]
        if not SchedulerChecks(fork, [name]).rejections(pod) and planner.filter(pod, [name], fork).passed:
            found = planner.place(pod, name, fork)
            if not isinstance(found, No):
                return found
        left.popleft()
    return None


def _best_first(pod: Pod, result: FilterResult, planner: Planner) -> Sequence[str]:
    policy = policy_of(pod, planner.solver.policy) or planner.solver.policy
    scores = dict(zip(result.passed, score_nodes(result.passed, result.merits, policy), strict=True))
    return sorted(result.passed, key=lambda name: -scores[name])


def _by_turns(queue: Iterator[Queued], fork: Snapshot, names: Sequence[str], planner: Planner) -> Placed:
    """Give pods plain turns, some at a time: a plan goes through all of its pods, even after one got no node."""
    placed = 0
    while some := tuple(islice(queue, _PODS_AT_ONCE)):
        try:
            end = planner.long_turns(some, fork, names)
        except LateError as late:
            return Placed(late.so_far.snapshot, placed + len(late.so_far.nodes))
        fork, placed = end.snapshot, placed + len(end.nodes)
        if end.refusals:
            return Placed(fork, placed, next(iter(end.refusals.values())))
    return Placed(fork, placed)


@dataclass(slots=True)
class Round:
    """Judges jobs on one snapshot. Each job that fits has its devices in the fork that the next one finds.

    Attributes:
        fork: the cluster with all pods that have found devices.
        solver: the allocator.
        names: of the nodes.
    """

    fork: Snapshot
    solver: Solver
    names: Sequence[str] = field(init=False)
    _snapshot: Snapshot = field(init=False)
    _planner: Planner = field(init=False)
    _stakes: Stakes = field(init=False)
    _refused: dict[Hashable, Verdict] = field(default_factory=dict, init=False)
    """The verdicts on refused jobs, by what each asks for: the fork only gets fuller, so a like job is refused, too."""

    _cut_off: set[tuple[str, str]] = field(default_factory=set, init=False)
    """The stakes of pods that come before all jobs, and for which there was no time."""

    def __post_init__(self) -> None:
        self._snapshot, self.names = self.fork, sorted(self.fork.nodes)
        self._planner = Planner.remembering(self.solver)
        self._planner.decider.follow(self.fork)
        self._stakes = Stakes(self._snapshot, self.solver)

    def begin(self, kept: Iterable[Job], schedulers: Collection[str]) -> None:
        """Give devices to the pods that come before all jobs.

        First come the pods of jobs that devices are kept for: the pods still to come, then the pods that are there.
        Other pods that wait are next. Each of the three has a time of its own. A pod of a gang waits for others, and
        takes nothing alone. If the time is up before all kept jobs have their devices, it is unknown which devices
        they take, so the stakes of their pods must not be promised to others.
        """
        workloads = [job.workload for job in kept]
        labels = {(each.namespace, label_of(each, place)) for each in workloads for place in range(len(each.pod_sets))}
        planner, late = self._planner.by(self._limited(PLAN_SECONDS)), list[Pod]()
        for like, number in _least_first(self._missing(workloads)):
            placed = place_equal(like.pod, number, self.fork, like.names(self.fork, self.names), planner)
            self.fork = placed.fork
            if placed.refusal is None and placed.number < number:
                late.append(like.pod)
        if workloads:
            late += self._let(self._limited(CAME_SECONDS), schedulers, lambda pod: _origin(pod) in labels)
        self._let(self._limited(WAITING_SECONDS), schedulers, lambda pod: pod.gang is None)
        self._cut_off.update(each for pod in late for each in self._stakes.of(pod))

    def _limited(self, seconds: float) -> Solver:
        return self.solver.within(self.solver.clock() + seconds)

    def _let(self, solver: Solver, schedulers: Collection[str], wanted: Callable[[Pod], bool]) -> Iterable[Pod]:
        """Give devices to pods that wait. Return the pods that may have had no turn, because the time was up."""
        try:
            fork, queue = waiting_pods(self.fork, solver, schedulers, wanted)
        except TimeoutError:
            return [pod for pod in self.fork.pods.values() if pod.is_pending and pod.needs_devices and wanted(pod)]
        if not queue:
            return ()
        try:
            self.fork = Planner.remembering(solver).long_turns(queue, fork, self.names).snapshot
        except LateError as late:
            self.fork = late.so_far.snapshot
            return [each.pod for each in queue if each.pod.uid not in late.so_far.nodes]
        return ()

    def _missing(self, workloads: Iterable[Workload]) -> Iterator[tuple[StandIn, int]]:
        """Yield stand-ins for the pods that have not come yet, each with the number of these pods.

        A pod with a node by its author counts as come once it has its claims: it has no turn among pods that wait.
        """
        there = (pod for pod in self._snapshot.pods.values() if not pod.deleting and JOB_LABEL in pod.labels)
        arrived = Counter(_origin(pod) for pod in there if not (is_pinned(pod) and lacks_some(pod, self._snapshot)))
        for workload in workloads:
            for place, each in enumerate(workload.pod_sets):
                with self.solver.faults.of(f"workload {workload}"), suppress(InvalidObjectError):
                    like = stand_in(workload, place, self._snapshot)
                    left = each.count - arrived[workload.namespace, label_of(workload, place)]
                    if like.pod.needs_devices and left > 0 and not like.hindrance(self.fork, self.solver.features):
                        yield like, left

    def judge(self, workload: Workload) -> Verdict:
        """Return whether there are devices for all pods of a job. If there are, the fork has the pods from then on."""
        kind = workload.namespace, workload.pod_priority, workload.pod_sets, workload.checks and _updates(workload)
        if kind in self._refused:
            return self._refused[kind]
        try:
            sets = [(stand_in(workload, place, self._snapshot), each) for place, each in enumerate(workload.pod_sets)]
        except InvalidObjectError as error:
            return Verdict(0, _cut(f"the template of its pods cannot be read: {error}"))
        asking = [_Asking(place, each, like) for place, (like, each) in enumerate(sets) if like.pod.needs_devices]
        if self._cut_off and any(not self._cut_off.isdisjoint(self._stakes.of(each.like.pod)) for each in asking):
            return Verdict(sum(each.pod_set.count for each in asking), _UNKNOWN)
        verdict = self._judged(asking)
        if verdict.reason:
            self._refused[kind] = verdict
        return verdict

    def _judged(self, asking: Sequence["_Asking"]) -> Verdict:
        number, places = sum(each.pod_set.count for each in asking), tuple(each.place for each in asking)
        planner, fork, got, reasons = self._planner.by(self._limited(PLAN_SECONDS)), self.fork, 0, list[str]()
        for each in asking:
            hindrance = each.like.hindrance(fork, self.solver.features)
            if hindrance:
                reasons.append(f"pod set {each.pod_set.name}: {hindrance}")
                continue
            names = each.like.names(fork, self.names)
            placed = place_equal(each.like.pod, each.pod_set.count, fork, names, planner)
            fork, got = placed.fork, got + placed.number
            if placed.refusal is not None:
                reasons.append(f"pod set {each.pod_set.name}: {_reasons(placed.refusal, each.like.pod, fork, names)}")
            elif placed.number < each.pod_set.count:
                reasons.append(f"pod set {each.pod_set.name}: the time was up before the others")
        if not reasons:
            self.fork = fork
            return Verdict(number, labeled=places)
        return Verdict(number, _cut(f"{got} of {_pods(number)} would get them; {'; '.join(reasons)}"), places)


def _updates(workload: Workload) -> tuple[object, ...]:
    return tuple(tuple(sorted((each.updates or {}).items())) for each in workload.checks)


def _origin(pod: Pod) -> tuple[str, str]:
    """Return the namespace and the label of a pod: anybody may write the label of a job of another namespace."""
    return pod.namespace, pod.labels.get(JOB_LABEL, "")


def _least_first(asked: Iterable[tuple[StandIn, int]]) -> Sequence[tuple[StandIn, int]]:
    """Return the pods and numbers, namespaces with few pods first: they get their turns before the time is up."""
    pods, totals = list(asked), Counter[str]()
    for like, number in pods:
        totals[like.pod.namespace] += number
    return sorted(pods, key=lambda each: (totals[each[0].pod.namespace], each[0].pod.namespace, each[1]))


class _Asking(NamedTuple):
    """A pod set whose pods need devices, with the stand-in for each."""

    place: int
    pod_set: PodSet
    like: StandIn


def _reasons(refusal: FilterResult, pod: Pod, snapshot: Snapshot, names: Iterable[str]) -> str:
    noun = request_nouns(pod)
    if refusal.is_blocked:
        return ", ".join(sorted(refusal.unresolvable.counts(noun)))
    rejected = SchedulerChecks(snapshot, names).rejections(pod)
    against = {**rejected, **refusal.unresolvable.in_words(noun), **refusal.failed.in_words(noun)}
    counts = sorted(Counter(against.values()).items(), key=lambda each: (-each[1], each[0]))
    words = [f"{nodes} {reason}" for reason, nodes in counts[:_MOST_REASONS]] or ["there are no nodes"]
    return ", ".join(words)


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"


def _cut(text: str) -> str:
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
