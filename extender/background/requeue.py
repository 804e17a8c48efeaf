"""Whom to wake: pending pods that some node would take now, and no more of them than the devices suffice for."""

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from sys import intern
from typing import Final, TypeAlias

import structlog

from allocator import Allocation
from extender.background.queueing_hints import NO_HINT, QueueingHint, queueing_hint
from extender.background.task import BackgroundTask, Rejection
from extender.decisions.evaluate import Decider
from extender.decisions.offload import Offload, in_thread
from extender.decisions.signature import signature_of
from extender.decisions.solver import Solver
from extender.faults import Faults
from extender.kube.api import PODS, OutcomeUnknownError
from extender.kube.raw import revision
from extender.pods.case import NOTHING_TO_ALLOCATE, found_on, holding, refreshed
from extender.pods.claims import Blocked, claim_keys, claims_of
from extender.state.objects import NodeObject, Pod
from extender.state.snapshot import Snapshot
from extender.state.state import ClusterState
from extender.verbs.filter import Bounds, filter_nodes
from extender.writes.reservation import WriteRefusedError
from extender.writes.writer import Writer

MOST_PODS: Final = 1024
"""Rejected pods that are remembered; those rejected longest ago are forgotten first."""

MOST_AT_ONCE: Final = 10
"""Pods woken in one look."""

LOOK_SECONDS: Final = 0.5
"""How long one look may take; what it has not got to is for the next."""

ANSWER_SECONDS: Final = 15.0
"""How long others that wait must leave a woken pod what it was woken for: longer than the longest backoff, so that it
has been tried by then, or something else than devices keeps it from being tried."""

AGAIN_SECONDS: Final = 2.0
"""After which a pod is looked at again whose search was stopped; after each further time twice as long."""

LONGEST_SECONDS: Final = 300.0
"""Between two such looks: as long as kube-scheduler itself leaves a pod that it knows no hope for."""

_CHUNK: Final = 512
"""Nodes judged before asking whether one of them would do."""

logger = structlog.get_logger()


class _Attention(Enum):
    """When a rejected pod is to be looked at."""

    CHANGES = "when something changes that may help it"
    RELEASE = "also when a woken pod has not taken what it was woken for"
    NOW = "in any case"


@dataclass(slots=True)
class _Rejected:
    """A pod that filter left no node.

    Attributes:
        names: the nodes asked about, sorted; the others the scheduler had ruled out itself. None for all.
        again: when to look at it in any case, by the solver's clock.
        pause: seconds from a search that is stopped until that time.
    """

    pod: Pod
    names: tuple[str, ...] | None
    attention: _Attention = _Attention.CHANGES
    again: float = math.inf
    pause: float = AGAIN_SECONDS

    def refuse(self, attention: _Attention) -> None:
        """No node will do, as things stand."""
        self.attention, self.again, self.pause = attention, math.inf, AGAIN_SECONDS

    def postpone(self, now: float) -> None:
        """It is not known whether a node will do: the search was stopped, and would be at once again."""
        self.attention = _Attention.CHANGES
        self.again = now + self.pause
        self.pause = min(2 * self.pause, LONGEST_SECONDS)

    def targets(self, pod: Pod, news: QueueingHint, snapshot: Snapshot) -> Sequence[str]:
        """The nodes to look at."""
        is_open = self.attention is _Attention.NOW or news.everywhere
        if is_open or (news.claims and not news.claims.isdisjoint(claim_keys(pod))):
            return tuple(snapshot.nodes) if self.names is None else self.names
        return [name for name in news.nodes if self.names is None or _has(self.names, name)]


@dataclass(frozen=True, slots=True)
class _Woken:
    """What a pod that was woken may get, and until when it is left for it."""

    found: Allocation
    until: float


_Candidate: TypeAlias = tuple[_Rejected, Pod, Sequence[str]]
"""A rejected pod, as it is now, and nodes that may take it."""


class Requeue(BackgroundTask):
    """Remembers pods that filter left no node, and wakes each once when one of its nodes would take it.

    Args:
        state: the cluster.
        decider: remembers what was decided; its solver's clock counts.
        writer: writes to the cluster.
        count: counts pods that were woken.
        off_loop: where pods are judged.
    """

    def __init__(
        self,
        state: ClusterState,
        decider: Decider,
        writer: Writer,
        count: Callable[[int], None],
        off_loop: Offload = in_thread,
    ) -> None:
        self._state = state
        self._count = count
        self._off_loop = off_loop
        self._writer = writer
        self._decider = decider
        self._seen = state.snapshot
        self._rejected: dict[str, _Rejected] = {}
        self._woken: dict[str, _Woken] = {}
        self._schedulers: set[str] = set()

    def on_rejected(self, rejection: Rejection) -> None:
        """Remember the pod with the nodes that it was asked about."""
        undecided = rejection.result.undecided
        self.rejected(rejection.sent, rejection.names, rejection.snapshot, undecided=undecided)

    def on_passed(self, pod: Pod) -> None:
        """The pod has a node."""
        self.forget(pod)

    async def tick(self) -> None:
        """Wake those that can be helped."""
        self._count(await self.look())

    def rejected(self, pod: Pod, names: Sequence[str], snapshot: Snapshot, *, undecided: bool = False) -> None:
        """Filter has left a pod none of these nodes of a snapshot; undecided: since a search was stopped."""
        self._meet(pod.scheduler_name, snapshot)
        self.forget(pod)
        self._release(self._woken.pop(pod.uid, None))
        # Names come anew with each request: those of many pods are to be in memory once.
        own = None if len(names) >= len(snapshot.nodes) else tuple(sorted(map(intern, names)))
        missed = snapshot.version < self._seen.version
        rejected = self._rejected[pod.uid] = _Rejected(pod, own, _Attention.NOW if missed else _Attention.CHANGES)
        if undecided and not missed:
            rejected.postpone(self._decider.solver.clock())
        while len(self._rejected) > MOST_PODS:
            del self._rejected[next(iter(self._rejected))]

    def forget(self, pod: Pod) -> None:
        """Filter has found a node for a pod, or it has been woken by other means."""
        self._rejected.pop(pod.uid, None)

    async def look(self) -> int:
        """Wake those that can be helped by what has changed since the last look; returns how many were woken."""
        if self._state.not_ready:
            return 0
        before, snapshot = self._seen, self._state.snapshot
        changes = self._state.changes_since(before.version)
        self._seen = snapshot
        self._drop_gone(snapshot)
        if not self._rejected:
            return 0
        self._recall()
        news = queueing_hint(changes, before, snapshot)
        if news == NO_HINT and all(each.attention is not _Attention.NOW for each in self._rejected.values()):
            return 0
        candidates = list(self._candidates(news, snapshot))
        if not candidates:
            return 0
        for each, _, _ in candidates:
            each.attention = _Attention.NOW
        held = [woken.found for woken in self._woken.values()]
        judge = partial(_judge, candidates, snapshot, held, self._decider)
        judged = await self._off_loop(judge)
        attention = _Attention.RELEASE if held or judged.fitting else _Attention.CHANGES
        for each in judged.refused:
            each.refuse(attention)
        for each in judged.undecided:
            each.postpone(self._decider.solver.clock())
        woken = 0
        for each, found in judged.fitting:
            with self._faults.of(f"pod {each.pod}"):
                woken += await self._wake(each, found)
        return woken

    async def _wake(self, rejected: _Rejected, found: Allocation) -> bool:
        """Wake a pod, unless filter has been asked about it meanwhile."""
        pod = rejected.pod
        if self._rejected.get(pod.uid) is not rejected:
            return False
        try:
            await self._writer.wake(pod)
        except OutcomeUnknownError as error:
            logger.info("pod not woken", pod=str(pod), error=str(error))
            return False
        except WriteRefusedError as error:
            logger.info("pod not woken", pod=str(pod), error=str(error))
            self._rejected.pop(pod.uid, None)
            return False
        if self._rejected.get(pod.uid) is rejected:
            del self._rejected[pod.uid]
            self._woken[pod.uid] = _Woken(found, self._decider.solver.clock() + ANSWER_SECONDS)
        logger.info("pod woken", pod=str(pod))
        return True

    def _candidates(self, news: QueueingHint, snapshot: Snapshot) -> Iterator[_Candidate]:
        """Rejected pods that may be helped: the most important first, then who has waited longest."""
        for each in sorted(self._rejected.values(), key=lambda rejected: -rejected.pod.priority):
            pod = refreshed(each.pod, snapshot)
            targets = each.targets(pod, news, snapshot)
            if targets:
                yield each, pod, targets

    @property
    def _faults(self) -> Faults:
        return self._decider.solver.faults

    def _meet(self, scheduler: str, snapshot: Snapshot) -> None:
        """Of a scheduler that was not heard of before, any pending pod may have been rejected before we started."""
        if scheduler in self._schedulers:
            return
        self._schedulers.add(scheduler)
        for pod in snapshot.pods.values():
            if pod.scheduler_name == scheduler and _is_pending(pod) and len(self._rejected) < MOST_PODS:
                self._rejected.setdefault(pod.uid, _Rejected(pod, None))

    def _recall(self) -> None:
        """Those whose search was stopped have their turn again."""
        now = self._decider.solver.clock()
        for each in self._rejected.values():
            if each.again <= now:
                each.attention = _Attention.NOW

    def _drop_gone(self, snapshot: Snapshot) -> None:
        """Forget pods that need not be woken any more, and what was left for woken pods for long enough."""
        known = self._state.seen(PODS)
        for uid, each in list(self._rejected.items()):
            pod = snapshot.pod(uid)
            is_gone = revision(each.pod.resource_version) <= known if pod is None else not _is_pending(pod)
            if is_gone:
                del self._rejected[uid]
        now = self._decider.solver.clock()
        for uid, woken in list(self._woken.items()):
            pod = snapshot.pod(uid)
            if now >= woken.until or pod is None or not _is_pending(pod):
                self._release(self._woken.pop(uid))

    def _release(self, woken: _Woken | None) -> None:
        """What was left for a woken pod may be had by others."""
        if woken is not None:
            for each in self._rejected.values():
                if each.attention is _Attention.RELEASE:
                    each.attention = _Attention.NOW


class _UndecidedError(Exception):
    """A search was stopped, and no other node will do."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """Who would get what, each after those before; who nothing; and of whom that is not known."""

    fitting: list[tuple[_Rejected, Allocation]] = field(default_factory=list)
    refused: list[_Rejected] = field(default_factory=list)
    undecided: list[_Rejected] = field(default_factory=list)


def _judge(
    candidates: Iterable[_Candidate], snapshot: Snapshot, held: Iterable[Allocation], decider: Decider
) -> _Judged:
    """Judge pods, the first first; those not got to in time are in no list."""
    decider.follow(snapshot)
    for allocation in held:
        snapshot = holding(allocation, snapshot)
    judging = _Judging(snapshot, decider, decider.solver.clock() + LOOK_SECONDS, decider.stopped)
    for each, pod, names in candidates:
        refuse = partial(judging.refuse, each)
        with decider.solver.faults.of(f"pod {pod}", refuse):
            judging.judge(each, pod, names)
        if judging.is_over:
            break
    return judging.judged


@dataclass(slots=True)
class _Judging:
    """One look at pods.

    Attributes:
        snapshot: with what those before will hold.
        until: when it ends, by the solver's clock.
        stopped: searches that had been stopped before.
        hopeless: kind of pods to nodes that will not do for it.
        too_hard: kinds of pods whose search was stopped.
        is_over: the rest is for the next look.
    """

    snapshot: Snapshot
    decider: Decider
    until: float
    stopped: int
    judged: _Judged = field(default_factory=_Judged)
    hopeless: dict[Hashable, set[str]] = field(default_factory=dict)
    too_hard: set[Hashable] = field(default_factory=set)
    is_over: bool = False

    def judge(self, rejected: _Rejected, pod: Pod, names: Sequence[str]) -> None:
        """Judge the next pod."""
        # There is only ever less: where one pod found nothing, the next of its kind finds nothing.
        kind = _kind(pod, self.snapshot)
        if self.hopeless.get(kind, set()).issuperset(names):
            self.judged.refused.append(rejected)
            return
        if kind in self.too_hard:
            self.judged.undecided.append(rejected)
            return
        try:
            found = _found(pod, names, self.snapshot, self.decider, self.until)
        except _UndecidedError:
            self.judged.undecided.append(rejected)
            self.too_hard.add(kind)
        except TimeoutError:
            if self.decider.stopped > self.stopped:
                # Not all of the look is remembered: another one at once would get no further.
                self.judged.undecided.append(rejected)
            self.is_over = True
        else:
            self._note(rejected, names, kind, found)

    def refuse(self, rejected: _Rejected, _fault: str) -> None:
        """A pod at which something failed is as one for which there is no node."""
        self.judged.refused.append(rejected)

    def _note(self, rejected: _Rejected, names: Sequence[str], kind: Hashable, found: Allocation | None) -> None:
        if found is None:
            self.judged.refused.append(rejected)
            self.hopeless.setdefault(kind, set()).update(names)
            return
        self.judged.fitting.append((rejected, found))
        self.snapshot = holding(found, self.snapshot)
        self.is_over = len(self.judged.fitting) == MOST_AT_ONCE


def _kind(pod: Pod, snapshot: Snapshot) -> Hashable:
    """The same for pods that get the same answer from every node."""
    claims = claims_of(pod, snapshot)
    if isinstance(claims, Blocked) or claims.allocated or claims.special.is_needed or pod.nominated_node:
        return pod.uid
    return pod.priority, signature_of([each.claim for each in claims.pending], snapshot.classes)


def _found(pod: Pod, names: Sequence[str], snapshot: Snapshot, decider: Decider, until: float) -> Allocation | None:
    """What the pod would get on the first of the nodes that filter lets pass; a pod that needs nothing new, nothing.

    Raises:
        TimeoutError: not all nodes were judged in time.
        _UndecidedError: the search on one of them was stopped.
    """
    solver, bounds, undecided = decider.solver, Bounds(until), False
    for start in range(0, len(names), _CHUNK):
        result = filter_nodes(pod, names[start : start + _CHUNK], snapshot, solver, decider=decider, bounds=bounds)
        if result.passed:
            return _gets(pod, snapshot.nodes[result.passed[0]], snapshot, solver)
        undecided = undecided or result.undecided
    if undecided:
        raise _UndecidedError
    return None


def _gets(pod: Pod, node: NodeObject, snapshot: Snapshot, solver: Solver) -> Allocation:
    """What is left for a woken pod; nothing, where that is not soon found out."""
    try:
        found = found_on(node, pod, snapshot, solver.within(solver.clock() + LOOK_SECONDS))
    except TimeoutError:
        return NOTHING_TO_ALLOCATE
    return found if isinstance(found, Allocation) else NOTHING_TO_ALLOCATE


def _is_pending(pod: Pod) -> bool:
    return not (pod.node_name or pod.deleting or pod.is_finished)


def _has(names: Sequence[str], name: str) -> bool:
    """Whether a sorted list has a name."""
    index = bisect_left(names, name)
    return index < len(names) and names[index] == name
