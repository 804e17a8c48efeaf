"""Whom to wake: pending pods that some node would take now, and no more of them than the devices suffice for."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import structlog
from prometheus_client import Counter as CounterMetric

from allocator import Allocation
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import NOTHING_KEPT, Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.writer import Writer
from extender.framework.bind_errors import BindError, ResourceQuotaRefusesError
from extender.framework.cluster_with_kept import ClusterWithKept, WithKept, counting_kept_of
from extender.framework.cycle import holding, refreshed
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.handle import Handle
from extender.framework.held_devices import found_on
from extender.framework.queueing_hints import NO_HINT, QueueingHint, queueing_hint
from extender.framework.rejected_pods import (
    LOOK_SECONDS,
    MOST_AT_ONCE,
    POD_SECONDS,
    Attention,
    Candidate,
    RejectedPod,
    backoff,
)
from extender.framework.task import UNTIL_NEWS, BackgroundTask, Found, NodeLists, Rejection
from extender.kube.api import OutcomeUnknownError, WriteRefusedError
from extender.planning.planner import Planner, UndecidedError
from extender.planning.queue import likeness_of
from extender.plugins.requeue.over_quota import OverQuota
from extender.tools.fairness import ReportingMemory, Turns
from extender.tools.faults import Faults
from extender.tools.offload import Offload, in_thread


@dataclass(frozen=True, slots=True)
class Judged:
    """The pods that would fit, each after those before; those that would not; and those whose search was stopped."""

    fitting: list[tuple[RejectedPod, Keeping]] = field(default_factory=list)
    refused: list[RejectedPod] = field(default_factory=list)
    undecided: list[RejectedPod] = field(default_factory=list)


def judge_pods(candidates: Iterable[Candidate], snapshot: Snapshot, kept: ClusterWithKept, turns: Turns) -> Judged:
    """Judge pods, the first first, but in fair turns of their namespaces; those not got to in time are in no list."""
    decider = kept.of_cluster
    decider.follow(snapshot)
    until = decider.solver.clock() + LOOK_SECONDS
    with_kept = kept.at(snapshot, decider.solver.within(until)) if snapshot.kept.users else None
    judging = _Judging(snapshot, decider, with_kept, until)
    for each, pod, names in turns.ordered(candidates, lambda candidate: candidate[1].namespace):
        refuse = partial(judging.refuse, each)
        with turns.of(pod.namespace), decider.solver.faults.of(f"pod {pod}", refuse):
            judging.judge(each, pod, names)
        if judging.is_over or decider.solver.clock() > judging.until:
            break
    return judging.judged


@dataclass(slots=True)
class _Judging:
    """One look at pods.

    Attributes:
        snapshot: with what is kept for those before.
        with_kept: the cluster without those before, in which what is kept is held; None: not known.
        until: when it ends, by the solver's clock.
        given: those before, and what they would get.
        hopeless: kind of pods to nodes that will not do for it.
        too_hard: kinds of pods whose search was stopped.
        is_over: the rest is for the next look.
    """

    snapshot: Snapshot
    decider: Decider
    with_kept: WithKept | None
    until: float
    judged: Judged = field(default_factory=Judged)
    given: list[tuple[Pod, Allocation]] = field(default_factory=list)
    hopeless: dict[Hashable, set[str]] = field(default_factory=dict)
    too_hard: set[Hashable] = field(default_factory=set)
    is_over: bool = False

    def judge(self, rejected: RejectedPod, pod: Pod, names: Sequence[str]) -> None:
        """Judge the next pod."""
        # There is only ever less: where one pod found nothing, the next of its kind finds nothing.
        kind = likeness_of(pod, self.snapshot)
        if self.hopeless.get(kind, set()).issuperset(names):
            self.judged.refused.append(rejected)
            return
        if kind in self.too_hard:
            self.judged.undecided.append(rejected)
            return
        world, decider = self._world_of(pod)
        stopped, until = decider.stopped, min(self.until, decider.solver.clock() + POD_SECONDS)
        try:
            found = _devices_on_first_node(pod, names, world, decider, until)
        except UndecidedError:
            self.judged.undecided.append(rejected)
            self.too_hard.add(kind)
        except TimeoutError:
            if decider.stopped > stopped:
                # Not all of the look is remembered: another one at once would get no further.
                self.judged.undecided.append(rejected)
        else:
            self._note(rejected, pod, names, kind, found)

    def _world_of(self, pod: Pod) -> tuple[Snapshot, Decider]:
        """The cluster as the pod finds it, and who remembers verdicts on it.

        If possible, it is the one that most pods find: in the snapshot, what is kept for each pod is held anew.
        """
        now, own = self.with_kept, claim_keys(pod)
        if now is None or any(
            other.priority < pod.priority or not set(own).isdisjoint(claim_keys(other)) for other, _ in self.given
        ):
            return self.snapshot, self.decider
        world = now.beside(pod, self.decider.solver.within(self.until))
        if world is None:
            return self.snapshot, self.decider
        for _, found in self.given:
            world = holding(found, world)
        return counting_kept_of(self.snapshot, world), now.decider

    def refuse(self, rejected: RejectedPod, _fault: str) -> None:
        """A pod at which something failed is as one for which there is no node."""
        self.judged.refused.append(rejected)

    def _note(
        self, rejected: RejectedPod, pod: Pod, names: Sequence[str], kind: Hashable, found: "_Found | None"
    ) -> None:
        if found is None:
            self.judged.refused.append(rejected)
            self.hopeless.setdefault(kind, set()).update(names)
            return
        self.judged.fitting.append((rejected, found.keeping))
        self.is_over = len(self.judged.fitting) == MOST_AT_ONCE
        after = self.snapshot.with_woken(pod.uid, found.keeping) if found.keeping.devices else self.snapshot
        if found.allocation is not None and after is not self.snapshot:
            self.given.append((pod, found.allocation))
        self.snapshot = after


class _Found(NamedTuple):
    """The devices to keep for a woken pod, and their allocation; no devices if these are not soon found."""

    keeping: Keeping
    allocation: Allocation | None = None


def _devices_on_first_node(
    pod: Pod, names: Sequence[str], snapshot: Snapshot, decider: Decider, until: float
) -> _Found | None:
    """What the pod would get on the first of the nodes that takes it; a pod that needs nothing new, no devices.

    A node that kube-scheduler itself rejects does not count: to wake the pod for it would help no pod.

    Raises:
        TimeoutError: not all nodes were judged in time.
        UndecidedError: the search on one of them was stopped.
    """
    node = Planner(decider.solver, decider).first_taker(pod, names, snapshot, until)
    return None if node is None else _gets(pod, node, snapshot, decider.solver)


def _gets(pod: Pod, node: NodeObject, snapshot: Snapshot, solver: Solver) -> _Found:
    try:
        found = found_on(node, pod, snapshot, solver.within(solver.clock() + LOOK_SECONDS))
    except TimeoutError:
        return _Found(Keeping(node.name))
    if not isinstance(found, Allocation):
        return _Found(Keeping(node.name))
    devices = {each.device for result in found.results for each in result.results}
    return _Found(Keeping(node.name, tuple(sorted(devices))), found)


MOST_PODS: Final = 1024
"""Rejected pods that are remembered, in shares by namespace. A pod that is forgotten is found again after a change that
may help it (`extender.plugins.requeue.rescan`)."""


WAKE_SECONDS: Final = 0.2
"""How long a look waits for the writes that wake pods. A slow one, for example in admission, goes on beside the next
looks; at most `MOST_AT_ONCE` of one namespace do."""

ANSWER_SECONDS: Final = 15.0
"""What a pod was woken for is kept for it for this time: longer than the longest backoff, so that it has been tried by
then, or something else than devices keeps it from being tried."""


BINDING_SECONDS: Final = 5.0
"""The same, once filter has found a node for the pod: its bind comes soon, or something else keeps it from its node."""


logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Waking:
    """A pod of a namespace that is being woken."""

    namespace: str
    write: asyncio.Task[None]


class Requeue(BackgroundTask):
    """Remembers pods that filter left no node, and wakes each once when one of its nodes would take it.

    Args:
        state: the cluster.
        kept: what pods find beside what is kept for others. The clock of its solver counts.
        writer: writes to the cluster.
        count: counts pods that were woken.
        off_loop: where pods are judged.
    """

    def __init__(
        self,
        state: ClusterState,
        kept: ClusterWithKept,
        writer: Writer,
        count: Callable[[int], None],
        off_loop: Offload = in_thread,
    ) -> None:
        self._state = state
        self._count = count
        self._off_loop = off_loop
        self._writer = writer
        self._kept, self._decider = kept, kept.of_cluster
        self._seen = state.snapshot
        self._turns, self._plugins = Turns(self._decider.solver.clock), self._decider.solver.plugins
        self._rejected = ReportingMemory[RejectedPod](MOST_PODS)
        self._missed: frozenset[str] = frozenset()
        self._woken: dict[str, float] = {}
        self._waking: dict[str, _Waking] = {}
        self._names = NodeLists()
        self._over_quota = OverQuota(self._decider.solver.clock)
        self._anew: set[str] = set()
        """The uids of the pods for which something has changed, that no snapshot tells, since the last look began."""

    @property
    def unfinished(self) -> Sequence[asyncio.Task[None]]:
        """The writes that wake pods."""
        return [each.write for each in self._waking.values()]

    def on_rejected(self, rejection: Rejection) -> None:
        """Remember the pod with the nodes that it was asked about. A pod that waits for its gang is woken with it."""
        pod, names, snapshot = rejection.sent, rejection.names, rejection.snapshot
        before = self._rejected.pop(pod.uid)
        self._release(pod.uid)
        if not self._plugins.self_waking.isdisjoint(rejection.result.by):
            return
        own = None if len(names) >= len(snapshot.nodes) else self._names.shared(sorted(names))
        missed = snapshot.version < self._seen.version
        now, tries = self._decider.solver.clock(), 1 if before is None else before.tries + 1
        attention = Attention.NOW if missed else self._least
        rejected = RejectedPod(pod, own, attention, ready=now + backoff(tries), tries=tries, since=snapshot)
        self._rejected.keep(rejection.share, pod.uid, rejected)
        if rejection.result.is_undecided and not missed:
            rejected.postpone(now)

    def _is_woken_by_plugin(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether a plugin refuses a pod whose feature wakes its pods itself."""
        refused = self._plugins.pre_enqueue(pod, snapshot)
        return refused is not None and refused.by in self._plugins.self_waking

    def on_found(self, pod: Pod, snapshot: Snapshot) -> Found:
        """Remember the pod, if there is room in the share of its namespace or in the place of a pod that was judged."""
        if pod.uid in self._rejected or pod.uid in self._woken or self._is_woken_by_plugin(pod, snapshot):
            return Found.KNOWN
        if not self._rejected.make_room(pod.namespace, lambda oldest: oldest.was_judged):
            return Found.FULL
        self._rejected.keep(pod.namespace, pod.uid, RejectedPod(pod, None, Attention.NOW))
        return Found.KNOWN

    def missed(self) -> Collection[str]:
        """The namespaces of which pods were forgotten, once something has changed that may help them."""
        found, self._missed = self._missed, frozenset()
        return found

    def on_passed(self, pod: Pod) -> None:
        """The pod has a node, and is bound soon."""
        self.on_woken(pod)
        if pod.uid in self._woken:
            self._woken[pod.uid] = min(self._woken[pod.uid], self._decider.solver.clock() + BINDING_SECONDS)

    def make_way(self, uid: str) -> bool:
        """End what is kept for less or equally important pods, if this process has rejected the pod of this uid.

        Then another replica has passed it. No replica knows what others keep. Where a scheduler asks several, they
        would refuse each other's pods again and again, and none of these would get the devices.
        """
        if (rejected := self._rejected.get(uid)) is None:
            return False
        others = [(each, self._state.snapshot.pod(each)) for each in self._woken]
        over = [each for each, pod in others if pod is None or pod.priority <= rejected.pod.priority]
        for each in over:
            self._release(each)
        return bool(over)

    def on_bind_failed(self, uid: str, node: str, error: BindError) -> None:
        """Keep nothing for a pod whose claim a ResourceQuota refuses: others could use the devices."""
        if isinstance(error, ResourceQuotaRefusesError):
            if pod := self._state.snapshot.pod(uid):
                self._over_quota.note(pod)
            self._release(uid)

    @property
    def idle_seconds(self) -> float:
        """Until something changes, or the time of a pod comes whose search was stopped."""
        waiting = self._rejected.values()
        if self._woken or self._waking or any(each.attention is Attention.NOW for each in waiting):
            return 0.0
        return min((each.again for each in waiting), default=UNTIL_NEWS) - self._decider.solver.clock()

    async def tick(self) -> None:
        """Wake those that can be helped."""
        await self.look()

    def judge_anew(self, pod: Pod) -> None:
        """Something has changed that no snapshot tells: the pod may fit now."""
        rejected = self._rejected.get(pod.uid)
        if rejected is not None:
            rejected.attention = Attention.NOW
            self._anew.add(pod.uid)

    def on_woken(self, pod: Pod) -> None:
        """Forget the pod."""
        self._rejected.pop(pod.uid)

    async def look(self) -> int:
        """Wake those that can be helped by what has changed since the last look; returns how many were woken."""
        if self._state.not_ready:
            return 0
        self._drop_gone(self._state.snapshot)
        before, snapshot = self._seen, self._state.snapshot
        self._compare_new(snapshot)
        self._seen = snapshot
        if not self._rejected and not self._rejected.forgotten:
            return 0
        self._recall()
        news = queueing_hint(self._state.since(before.version), before, snapshot, self._plugins)
        if news != NO_HINT:
            self._missed |= self._rejected.look_again()
        if news == NO_HINT and all(each.attention is not Attention.NOW for each in self._rejected.values()):
            return 0
        candidates = self._candidates(news, snapshot)
        if not candidates:
            return 0
        for each, _, _ in candidates:
            each.attention = Attention.NOW
        judge = partial(judge_pods, candidates, snapshot, self._kept, self._turns)
        self._anew.clear()
        judged = await self._off_loop(judge)
        fitting = [(each, kept) for each, kept in judged.fitting if self._rejected.get(each.pod.uid) is each]
        for each, kept in fitting:
            self._keep(each.pod, kept)
        for each in judged.refused:
            if each.pod.uid not in self._anew:  # otherwise the next look knows more than this one
                each.refuse(self._least)
        for each in judged.undecided:
            each.postpone(self._decider.solver.clock())
        now = asyncio.get_running_loop().time
        until, woken = now() + WAKE_SECONDS, list[str]()
        for each, _ in fitting:
            await asyncio.wait((self._begin(each, woken),), timeout=max(0.0, until - now()))
        return len(woken)

    def _begin(self, rejected: RejectedPod, woken: list[str]) -> asyncio.Task[None]:
        """Begin to wake a pod. If its write takes long, it goes on beside the next looks."""
        pod = rejected.pod
        wake = asyncio.create_task(self._woke(rejected, woken))
        self._waking[pod.uid] = _Waking(pod.namespace, wake)
        wake.add_done_callback(lambda _: self._waking.pop(pod.uid))
        return wake

    async def _woke(self, rejected: RejectedPod, woken: list[str]) -> None:
        is_woken, uid = False, rejected.pod.uid
        with self._faults.of(f"pod {rejected.pod}"):
            is_woken = await self._wake(rejected)
        if is_woken:
            woken.append(uid)
            self._count(1)
        elif self._rejected.get(uid) is rejected:
            self._release(uid)

    async def _wake(self, rejected: RejectedPod) -> bool:
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
            rejected.postpone(self._decider.solver.clock())
            return False
        if self._rejected.get(pod.uid) is rejected:
            self._rejected.pop(pod.uid)
            self._woken[pod.uid] = self._decider.solver.clock() + ANSWER_SECONDS
        logger.info("pod woken", pod=str(pod))
        return True

    def _keep(self, pod: Pod, kept: Keeping) -> None:
        """Keep for a pod what it is woken for, also from filter. Nothing is written: the pod is asked about soon."""
        self._woken[pod.uid] = self._decider.solver.clock() + ANSWER_SECONDS
        if kept.devices and self._over_quota.take_turn(pod):
            self._state.keep_for(pod.uid, kept)

    def _candidates(self, news: QueueingHint, snapshot: Snapshot) -> Sequence[Candidate]:
        """Rejected pods that may be helped, in their order. Most of many that wait are not, at each look."""
        now, found = self._decider.solver.clock(), list[Candidate]()
        writes, every = Counter(each.namespace for each in self._waking.values()), tuple(snapshot.nodes)
        for each in self._rejected.values():
            if snapshot.pod(each.pod.uid) is None:
                each.attention = Attention.NOW  # once the watch shows the pod: perhaps a caller has made it up
                continue
            pod = refreshed(each.pod, snapshot)
            targets = each.targets(pod, news, every)
            if targets and each.pod.uid not in self._waking and writes[each.pod.namespace] < MOST_AT_ONCE:
                found.append((each, pod, targets))
        return sorted(found, key=lambda candidate: candidate[0].turn(now))

    @property
    def _least(self) -> Attention:
        """The time to look again at a pod for which there is no node: perhaps devices are kept for another pod."""
        return Attention.RELEASE if self._woken else Attention.CHANGES

    @property
    def _faults(self) -> Faults:
        return self._decider.solver.faults

    def _recall(self) -> None:
        """Pods whose search was stopped have their turn again."""
        now = self._decider.solver.clock()
        for each in self._rejected.values():
            if each.again <= now:
                each.attention = Attention.NOW

    def _compare_new(self, snapshot: Snapshot) -> None:
        """Find what may help the pods that were rejected since the last look.

        What was taken and became free again between two looks is no difference between them.
        """
        hints, every = dict[int, QueueingHint](), tuple(snapshot.nodes)
        for each in self._rejected.values():
            since, each.since = each.since, None
            if since is None or not self._seen.version < since.version < snapshot.version:
                continue
            if (hint := hints.get(since.version)) is None:
                reach = self._state.since(since.version)
                hint = hints[since.version] = queueing_hint(reach, since, snapshot, self._plugins)
            if hint != NO_HINT and each.targets(refreshed(each.pod, snapshot), hint, every):
                each.attention = Attention.NOW

    def _drop_gone(self, snapshot: Snapshot) -> None:
        """Forget pods that need not be woken any more, and devices that were kept for woken pods for long enough."""
        for each in self._rejected.values():
            if not self._state.still_waits(each.pod):
                self._rejected.pop(each.pod.uid)
        if self._over_quota and self._seen is not snapshot:
            self._over_quota.follow(self._state.since(self._seen.version), self._seen, snapshot)
        now = self._decider.solver.clock()
        for uid, until in list(self._woken.items()):
            pod = snapshot.pod(uid)
            if now >= until or pod is None or not pod.is_pending:
                self._release(uid)

    def _release(self, uid: str) -> None:
        """Release what was kept for a woken pod: others may have it."""
        if self._woken.pop(uid, None) is not None:
            self._state.keep_for(uid, NOTHING_KEPT)
            for each in self._rejected.values():
                if each.attention is Attention.RELEASE:
                    each.attention = Attention.NOW


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task that wakes pods and counts them, if there are schedulers that would try them."""
    text = "Rejected pods that were patched because they may fit now, so that their scheduler tries them again."
    woken = CounterMetric("dra_extender_woken_pods", text, registry=handle.registry)
    if not handle.has_schedulers:
        return []
    return [Requeue(handle.state, handle.kept, handle.writer, woken.inc, handle.in_background)]
