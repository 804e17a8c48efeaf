"""The problems of a cluster: found in the background, remembered since when they are there, told by Events.

Features find the problems with their own objects. The finders here are for objects that no feature owns: slices,
classes, claims, pods, and kube-scheduler's settings.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from allocator import ClassMembers, DeviceClass, Limits, PoolId, SearchLimitError
from allocator.checks import DeviceState
from allocator.pools import Pool
from allocator.search import SearchBudget, TimedSelectors
from allocator.tools import printable
from extender.answers.observe.device_states import DeviceStates
from extender.answers.observe.scheduler_settings import SCHEDULER
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import users_of
from extender.cluster.double_allocations import double_allocation
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.events import Note
from extender.framework.asked import Asked
from extender.framework.decision_log import DecisionLog
from extender.framework.decisions.solver import Solver
from extender.framework.pod_and_claim_states import PodState, state_of_pod
from extender.framework.pods.claims import BLOCKED_FOR_LONG, Blocked, claims_of, stand_in
from extender.framework.problem import Find, Look, Problem
from extender.framework.task import BackgroundTask
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, CLASSES, PODS, SLICES
from extender.planning.kube_scheduler import not_marked
from extender.tools.fairness import FairMemory
from extender.tools.offload import Offload
from extender.tools.table import Row, TableView, duration, matches

MOST_PROBLEMS: Final = 1024
"""Problems that are remembered, in shares by namespace."""

_LONGEST_TEXT: Final = 512
"""The most characters of what is wrong, and of what to do: names and selectors are as long as their authors want."""

_SECONDS: Final = 10.0
"""Between two looks in the background, at least."""

_SHARE: Final = 20
"""The pause after a look, in times of the look's length: looks at a large cluster take a twentieth of a core."""

CELLS: Final = {"age": duration}
"""How the text shows columns that JSON has in another form."""

EVENT: Final = "DRAProblem"
"""The reason of the Event on a pod or a claim with a problem."""

CAUSES: Final = (
    "unreadable",
    "incomplete-pool",
    "driver-stopped",
    "invalid-pool",
    "gone-node",
    "unprepared",
    "unmatched-class",
    "resource-class",
    "missing",
    "selector",
    "engines-disagree",
    "tainted-in-use",
    "two-masters",
    "gang",
    "quota",
    "gate",
    "admission-check",
    "unmarked",
    "scheduler-settings",
)


@dataclass(frozen=True, slots=True)
class Known:
    """A problem, and since when it is known: by its object, else since the first look that has found it."""

    problem: Problem
    since: str

    @property
    def id(self) -> str:
        """An id that is the same at each look."""
        return _id(self.problem)


def _id(problem: Problem) -> str:
    return "\n".join((problem.cause, problem.kind, *problem.key, problem.text))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


class Problems:
    """Looks for problems.

    Args:
        finds: those of each feature.
        solver: evaluates selectors.
        decision_log: has what schedulers have asked.
        now: the time.
    """

    def __init__(
        self, finds: Sequence[Find], solver: Solver, decision_log: DecisionLog, now: Callable[[], datetime]
    ) -> None:
        self._finds = finds
        self._solver = solver
        self._decision_log = decision_log
        self._now = now
        self.known: tuple[Known, ...] = ()

    def look(self, snapshot: Snapshot, pause: Callable[[], None]) -> tuple[Known, ...]:
        """The problems of a snapshot, each with the time when it began; to be called in a thread."""
        now = self._now()
        look = Look(snapshot, self._solver, now, self._decision_log.entries, pause)
        before = {each.id: each.since for each in self.known}
        found = FairMemory[Known](MOST_PROBLEMS)
        for problem in (problem for find in self._finds for problem in find(look)):
            kept = replace(problem, text=_cut(problem.text), advice=_cut(problem.advice))
            since = problem.since or before.get(_id(kept)) or now.isoformat(timespec="seconds")
            found.keep(problem.key.namespace, _id(kept), Known(kept, since))
        self.known = tuple(found.values())
        return self.known

    def counts(self) -> Mapping[str, int]:
        """The number of problems that the latest look has found, by cause."""
        counted = Counter(each.problem.cause for each in self.known)
        return {cause: counted[cause] for cause in CAUSES}


def problems(
    find: Callable[[], Sequence[Known]], now: datetime, *, kind: str = "", namespace: str = "", names: bool = True
) -> TableView:
    """The problems, of one kind of objects, or of one namespace and of objects without one.

    Args:
        find: looks for them, when the first row is made.
        now: the time, for the ages.
        kind: empty for all.
        namespace: empty for all.
        names: whether names of objects of namespaces may be told.
    """
    columns = ("cause", "kind", "object", "age", "problem", "cost", "advice")

    def rows() -> Iterator[Row]:
        wanted = [each for each in find() if names or not each.problem.key.namespace]
        for each in sorted(wanted, key=lambda each: (each.problem.kind, each.problem.key, each.id)):
            problem = each.problem
            if matches(kind, problem.kind) and (not problem.key.namespace or matches(namespace, problem.key.namespace)):
                age = now - datetime.fromisoformat(each.since)
                item = {
                    "cause": problem.cause,
                    "kind": problem.kind,
                    "object": str(problem.key),
                    "since": each.since,
                    "age": max(0, int(age.total_seconds())),
                    "problem": problem.text,
                    "cost": problem.cost,
                    "advice": problem.advice,
                }
                yield Row((problem.kind, *problem.key, each.id), partial(dict, item))

    return TableView(columns, rows(), CELLS)


class ProblemsKeeper(BackgroundTask):
    """Looks for problems now and then, and tells pods and claims of theirs by an Event.

    Args:
        state: the cluster. While it is not known, there is nothing to look at.
        found: remembers them.
        pause: lets verbs go first.
        off_loop: where a look is taken.
        clock: seconds, from any point.
        tell: writes an Event on a pod.
        asked: knows whether a scheduler asks this process. Otherwise another replica writes the Events.
    """

    def __init__(
        self,
        state: ClusterState,
        found: Problems,
        pause: Callable[[], None],
        off_loop: Offload,
        clock: Callable[[], float],
        tell: Callable[[Pod, Note], None],
        asked: Asked,
    ) -> None:
        self._state = state
        self._found = found
        self._pause = pause
        self._off_loop = off_loop
        self._clock = clock
        self._tell = tell
        self._asked = asked
        self._next = clock()
        self._told: Collection[str] = frozenset()

    @property
    def idle_seconds(self) -> float:
        """Until the next look."""
        return self._next - self._clock()

    async def tick(self) -> None:
        """Look again, if it is time."""
        if self._state.not_ready or self._clock() < self._next:
            return
        snapshot, started = self._state.snapshot, self._clock()
        known = await self._off_loop(partial(self._found.look, snapshot, self._pause))
        ended = self._clock()
        self._next = ended + max(_SECONDS, _SHARE * (ended - started))
        if self._asked.schedulers:
            for each in known:
                if each.id not in self._told:
                    self._tell_of(each.problem, snapshot)
            self._told = frozenset(each.id for each in known)

    def _tell_of(self, problem: Problem, snapshot: Snapshot) -> None:
        text = printable(f"{problem.text}; {problem.advice}")
        pod, claim = snapshot.pods.get(problem.key), snapshot.claims.get(problem.key)
        if problem.kind == PODS.kind and pod is not None:
            self._tell(pod, Note(EVENT, text))
        elif problem.kind == CLAIMS.kind and claim is not None:
            self._tell(stand_in(claim.claim), Note(EVENT, text, of_claim=True))


_PATIENCE: Final = timedelta(minutes=5)
"""So long may a driver take to publish all slices of a pool, or to prepare devices."""

_LATELY: Final = timedelta(minutes=10)
"""So long is told what a scheduler has done."""

_ADVISED: Final = 64
"""Pods of one namespace whose advice is worked out in one look: it compares names with those of all its claims."""

_BURST: Final = timedelta(seconds=10)
_MOST_IN_BURST: Final = 20
"""How often one pod may be tried in this time: its backoff is 1 s at first, and is doubled each time."""

_FAILED_SELECTOR: Final = re.compile(r"(?:request|class) \S+: selector \d+: ")
"""In a reason of the allocator: which selector fails, and how."""

_ANY_SCHEDULER: Final = ObjectKey("", "kube-scheduler")

_SELECTING: Final = Limits(steps=0, seconds=0.5)
"""The limits for the selectors of all classes in one look."""


def unreadable(look: Look) -> Iterator[Problem]:
    """Objects that cannot be read, or that an API server would not take."""
    for (kind, key), problem in look.snapshot.problems.items():
        yield Problem("unreadable", kind, key, str(problem), "the object counts as absent", "correct the object")


def of_pools(look: Look) -> Iterator[Problem]:
    """Pools that cannot be used, those for nodes that do not exist, and those whose driver prepares nothing."""
    nodes = look.snapshot.nodes
    for pool in look.snapshot.inventory.pools.values():
        look.pause()
        gone = sorted(name for name in pool.local_nodes if name not in nodes)
        if gone:
            more = f" and {len(gone) - 1} more" if gone[1:] else ""
            text = f"its slices are for node {gone[0]}{more}, which does not exist"
            cost = f"no pod gets its {pool.size} device{'' if pool.size == 1 else 's'}"
            told = "delete the ResourceSlices, or register the node"
            yield Problem("gone-node", SLICES.kind, _key_of_pool(pool.id), text, cost, told, _first(pool))
        elif problem := pool.problem(look.solver.features):
            yield _unusable(pool, problem, look)
        elif pool.local_nodes and (since := _unprepared(pool, look)):
            driver = pool.id.driver
            text = f"a pod with its devices has not started for five minutes: driver {driver} may not run on the node"
            cost = "pods that get its devices may not start"
            told = f"kubectl describe pod: if the kubelet does not name a volume, start driver {driver} on the node"
            yield Problem("unprepared", SLICES.kind, _key_of_pool(pool.id), text, cost, told, since)


def _unprepared(pool: Pool, look: Look) -> str:
    """Since when the kubelet of a node waits for the driver of a pool; empty: it does not, or not for long.

    The kubelet notes the start of a pod, has its devices prepared, and makes its sandbox then. So a driver works as
    long as pods that came later than the first one that waits have a sandbox.
    """
    waiting, latest = "", ""
    for uid in look.snapshot.holders.get(pool.id, ()):
        claim = look.snapshot.claim(uid)
        for pod in users_of(claim.claim, look.snapshot) if claim is not None else ():
            if not pod.started or pod.node_name not in pool.local_nodes or pod.is_finished or pod.deleting:
                continue
            if pod.has_started:
                latest = max(latest, pod.started)
            elif not waiting or pod.started < waiting:
                waiting = pod.started
    return waiting if latest <= waiting and look.is_older(waiting, _PATIENCE) else ""


def _unusable(pool: Pool, problem: str, look: Look) -> Problem:
    newest = pool.newest
    devices = sum(len(each.devices) for each in newest)
    cost = f"no pod gets its {devices} device{'' if devices == 1 else 's'}"
    if len(newest) >= newest[0].slice_count:
        told = "correct what the driver publishes"
        return Problem("invalid-pool", SLICES.kind, _key_of_pool(pool.id), problem, cost, told, _first(pool))
    latest = max((each.created for each in newest), default="")
    if look.is_older(latest, _PATIENCE):
        text = f"{problem}, and its driver has published nothing more since"
        told = "look at the driver's log, and restart the driver"
        return Problem("driver-stopped", SLICES.kind, _key_of_pool(pool.id), text, cost, told, latest)
    told = "wait until the driver has published all slices"
    return Problem("incomplete-pool", SLICES.kind, _key_of_pool(pool.id), problem, cost, told, latest)


def _key_of_pool(pool: PoolId) -> ObjectKey:
    return ObjectKey("", f"{pool.driver}/{pool.pool}")


def _first(pool: Pool) -> str:
    return min((each.created for each in pool.slices), default="")


class UnmatchedClasses:
    """Classes whose selectors match no device, remembered until a class or a pool changes."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[DeviceClass, object, bool]] = {}

    def __call__(self, look: Look) -> Iterator[Problem]:
        """One for each such class. Classes that were never judged come first, for the time may not suffice for all."""
        pools, classes = look.snapshot.inventory.pools, look.snapshot.classes

        def clock() -> float:
            look.pause()
            return look.solver.clock()

        selectors = TimedSelectors(look.solver.selectors, SearchBudget(_SELECTING, clock))
        known = {name: each for name, each in self._known.items() if classes.get(name) is each[0]}
        try:
            for name in sorted(classes, key=known.__contains__) if pools else ():
                each = classes[name]
                if each.group is None and each.selectors and (name not in known or known[name][1] is not pools):
                    members = ClassMembers(each, selectors)
                    devices = (d for pool in pools.values() for origin in pool.newest for d in origin.devices)
                    known[name] = (each, pools, not any(map(members.has, devices)))
        except SearchLimitError:
            pass
        self._known = known
        for name, (each, _, is_unmatched) in known.items():
            if is_unmatched:
                text, cost = "its selectors match no device", "pods that ask for the class wait"
                told = f"compare the selectors with kubectl dra devices -o wide; class {name} may await a driver"
                yield Problem("unmatched-class", CLASSES.kind, ObjectKey("", name), text, cost, told, each.created)


class OfPods:
    """Pods that wait for a claim, a template or a class that does not exist or cannot be used.

    Args:
        advise: what to do about the claims of a pod; empty if that is not known.
    """

    def __init__(self, advise: Callable[[Pod, Snapshot], str]) -> None:
        self._advise = advise

    def __call__(self, look: Look) -> Iterator[Problem]:
        """One for each such pod."""
        advised: Counter[str] = Counter()
        for pod in look.snapshot.pods.values():
            look.pause()
            if state_of_pod(pod) is not PodState.PENDING:
                continue
            found = claims_of(pod, look.snapshot)
            if isinstance(found, Blocked) and found.reason.cause in BLOCKED_FOR_LONG:
                advised[pod.namespace] += 1
                told = self._advise(pod, look.snapshot) if advised[pod.namespace] <= _ADVISED else ""
                told = told or f"kubectl dra explain {pod.name} -n {pod.namespace}"
                cost = "the pod fits on no node"
                yield Problem("missing", PODS.kind, pod.key, found.reason.in_words(), cost, told, pod.created)


def of_selectors(look: Look) -> Iterator[Problem]:
    """Pods that wait because a selector of their claims fails, by the latest decision about each."""
    known: set[ObjectKey] = set()
    for each in look.decisions:
        look.pause()
        pod = look.snapshot.pods.get(each.pod)
        if each.verb != "filter" or each.pod in known or pod is None or state_of_pod(pod) is not PodState.PENDING:
            continue
        known.add(each.pod)
        failed = next((text for text in each.rejected if _FAILED_SELECTOR.search(text)), "")
        if failed:
            cost, told = "the pod fits on no node", f"kubectl dra explain {pod.name} -n {pod.namespace}"
            yield Problem("selector", PODS.kind, pod.key, failed, cost, told, pod.created)


class OfClaims:
    """Claims that hold tainted devices, and those whose devices others hold, too.

    Args:
        states: of the devices.
    """

    def __init__(self, states: DeviceStates) -> None:
        self._states = states

    def __call__(self, look: Look) -> Iterator[Problem]:
        """One for each such claim."""
        yield from self._tainted(look)
        for uid in look.snapshot.claim_keys:
            look.pause()
            text, claim = double_allocation(look.snapshot, uid), look.snapshot.claim(uid)
            if text and claim is not None:
                cost = "two pods may use one device"
                told = "delete the pod of one of the claims; stop the second allocator: no other scheduler may allocate"
                yield Problem("two-masters", CLAIMS.kind, claim.key, text, cost, told)

    def _tainted(self, look: Look) -> Iterator[Problem]:
        snapshot, states_of = look.snapshot, self._states.at(look.snapshot)
        for pool_id in snapshot.holders:
            look.pause()
            if pool_id not in snapshot.inventory.pools:
                continue
            of_pool = states_of(pool_id)
            tainted = {
                device.id: of_pool.hindrance(origin, device, DeviceState.ALLOCATED).text
                for origin, device, _ in of_pool
                if of_pool.is_tainted(device)
            }
            devices = {device.id: device for _, device, _ in of_pool if device.id in tainted}
            for uid in snapshot.holders[pool_id] if tainted else ():
                claim = snapshot.claim(uid)
                for result in (each for found in snapshot.held_by(uid) for each in found.results):
                    device = devices.get(result.device)
                    if claim and device and not result.admin_access and of_pool.is_tainted(device, result.tolerations):
                        text = f"holds {result.device}: {tainted[result.device]}"
                        told = "drain the pod if the device shall be mended; else remove the taint"
                        cost = "the pod uses a device that its driver or an administrator has marked"
                        yield Problem("tainted-in-use", CLAIMS.kind, claim.key, text, cost, told)


class OfSchedulers:
    """Settings of kube-scheduler that cost time, by what it asks.

    Args:
        asked: what schedulers have asked of this process.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def __call__(self, look: Look) -> Iterator[Problem]:
        """One for each such setting."""
        if self._asked.seconds_since_early < _LATELY.total_seconds():
            text = "pods are tried before their claims are made: the plugin DynamicResources is not at preEnqueue"
            told = "enable it there (config/scheduler.yaml); dra-extender config check --scheduler FILE"
            cost = "such a pod may begin with a backoff of 1 s or more"
            yield Problem("scheduler-settings", SCHEDULER, _ANY_SCHEDULER, text, cost, told)
        tried = (each for each in look.decisions if each.verb == "filter" and look.now - each.at < _BURST)
        most = max(Counter(each.pod for each in tried if not each.passed).values(), default=0)
        if most > _MOST_IN_BURST:
            text = "a rejected pod is tried again and again within seconds: rejected pods have no backoff"
            told = "turn the gate SchedulerPopFromBackoffQ off (config/scheduler.yaml)"
            cost = "these tries find nothing, and other pods wait meanwhile"
            yield Problem("scheduler-settings", SCHEDULER, _ANY_SCHEDULER, text, cost, told)


_UNMARKED_COST: Final = "the pod may start without devices, or come to a node that has none left"
_UNMARKED_ADVICE: Final = "apply the policies of deploy/only-scheduler, and make the pod again"


def unmarked(look: Look) -> Iterator[Problem]:
    """One for each pod with devices that came past the policies that mark such pods, and has not started."""
    for pod in look.snapshot.pods.values():
        look.pause()
        is_over = pod.has_started or pod.is_finished or pod.deleting
        if not is_over and (why := not_marked(pod)):
            yield Problem("unmarked", PODS.kind, pod.key, why, _UNMARKED_COST, _UNMARKED_ADVICE, pod.created)
