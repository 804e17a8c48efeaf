"""Gangs: keeps devices for the pods of a gang together, and gives them back together.

One gang after the other is planned on one snapshot: by priority, gangs with bound members first, then the oldest. So
two gangs never wait for each other's devices. What is kept stands in the conditions of the pods
(`extender.pods.gangs`), and any process carries on from there: it plans the rest of a gang with what is kept, or gives
everything back. Only one process does so at a time: the one whose scheduler asks about the members.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from extender.background.gang_watch import (
    AGAIN_SECONDS,
    ASKING_SECONDS,
    FIRST_PAUSE_SECONDS,
    IDLE_SECONDS,
    KEPT_SECONDS,
    LONGEST_PAUSE_SECONDS,
    PLANNING_SECONDS,
    SEEN_SECONDS,
    Asked,
    Settled,
    Watch,
)
from extender.background.gang_writes import GangWrites, at_most
from extender.background.queueing_hints import NO_HINT, queueing_hint
from extender.background.task import BackgroundTask, Rejection
from extender.decisions.evaluate import Decider
from extender.decisions.solver import Solver
from extender.gangs.planning import Plan, Planner, Shortfall, likely_nodes, shared_claims
from extender.observe.gang_metrics import GangMetrics
from extender.offload import Offload
from extender.pods.gangs import Gang, gang_at, is_alone
from extender.pods.kinds import kind_of
from extender.state.gang_annotations import GangKey
from extender.state.objects import Pod
from extender.state.pod_conditions import Keeping
from extender.state.snapshot import Snapshot
from extender.state.state import ClusterState
from extender.writes.nominations import Evictor
from extender.writes.writer import Writer

logger = structlog.get_logger()

LOST: Final = "node {} is gone, or another claim or pod has a device that was kept for the pod"

SHOWN_NODES: Final = 16
"""Nodes in one line of the log. The conditions of the pods name all of them."""


class Gangs(BackgroundTask):
    """Plans gangs of the cluster.

    Args:
        state: the cluster.
        decider: remembers where pods fit. Its solver has the clock and the faults.
        evictor: writes what is kept.
        writer: wakes pods.
        is_binding: whether a bind of the pod with this uid is running.
        metrics: counts plans.
        off_loop: runs plans in a thread.
    """

    def __init__(
        self,
        state: ClusterState,
        decider: Decider,
        evictor: Evictor,
        writer: Writer,
        is_binding: Callable[[str], bool],
        metrics: GangMetrics,
        off_loop: Offload,
    ) -> None:
        self._state = state
        self._decider = decider
        self._clock = decider.solver.clock
        self._writes = GangWrites(evictor, writer)
        self._is_binding = is_binding
        self._metrics = metrics
        self._off_loop = off_loop
        self._seen = state.snapshot
        self._watches: dict[GangKey, Watch] = {}
        self._asked: dict[str, Asked] = {}
        self._rejected: dict[str, Asked] = {}
        self._strays: dict[str, float] = {}
        self._settled = Settled()
        self._long: asyncio.Task[None] | None = None

    @property
    def unfinished(self) -> Sequence[asyncio.Task[None]]:
        """The plan that goes on between the turns."""
        return () if self._long is None or self._long.done() else (self._long,)

    def on_rejected(self, rejection: Rejection) -> None:
        """Remember the nodes of a member. The latest call counts for what it knows of the kept node."""
        pod = rejection.sent
        key = pod.gang_key
        if key is None or not rejection.result.awaits_gang:
            return
        self._watch(key).active = self._clock()
        before = self._asked.get(pod.uid)
        names = tuple(rejection.names)
        if before is not None:
            self._watch(key).asked_again(self._clock())
            names = names if len(names) > 1 else tuple(before.names)
        since = self._clock() if before is None else before.since
        was_ready = not rejection.result.is_blocked
        self._asked[pod.uid] = Asked(names, since, was_ready)
        self._rejected[pod.uid] = Asked(rejection.names, since, was_ready)

    def on_passed(self, pod: Pod) -> None:
        """The pod has its node."""
        if pod.gang_key is not None:
            self._rejected.pop(pod.uid, None)
            self._watch(pod.gang_key).active = self._clock()

    async def tick(self) -> None:
        """Look after each gang, the most important first."""
        snapshot = self._state.snapshot
        if self._state.not_ready or not snapshot.gangs.members:
            self._seen = snapshot
            return
        self._note_changes(snapshot)
        gangs = sorted(self._settled.others(snapshot), key=lambda gang: gang.order)
        self._forget(gangs)
        solver = self._decider.solver.within(self._clock() + PLANNING_SECONDS)
        hopeless: set[Hashable] = set()
        for gang in gangs:
            with self._decider.solver.faults.of(f"group {gang}"):
                await self._serve(gang, solver, hopeless)
        await self._end_strays(snapshot, {gang.key for gang in gangs})
        self._settled.note(gangs, snapshot)

    async def prepare(self, pod: Pod) -> None:
        """Plan the gang of a pod at once: all pods of a simulation are there."""
        key = pod.gang_key
        gang = None if key is None else gang_at(key, self._state.snapshot)
        if gang is None or gang.problem or len(gang.members) < gang.size or gang.has_enough:
            return
        watch = self._watch(gang.key)
        await self._plan(gang, watch, self._decider.solver, set())
        watch.writing = {}

    def _watch(self, key: GangKey) -> Watch:
        return self._watches.setdefault(key, Watch())

    def _note_changes(self, snapshot: Snapshot) -> None:
        """Note that something has changed that may help gangs."""
        before, self._seen = self._seen, snapshot
        if before is snapshot:
            return
        news = queueing_hint(self._state.changes_since(before.version), before, snapshot)
        if news != NO_HINT:
            for watch in self._watches.values():
                watch.is_due = True

    def _forget(self, gangs: Iterable[Gang]) -> None:
        """Forget gangs and pods that are gone."""
        pending = {pod.uid for gang in gangs for pod in (*gang.free, *gang.kept)}
        known = {gang.key for gang in gangs}
        self._watches = {key: watch for key, watch in self._watches.items() if key in known}
        for asked in (self._asked, self._rejected):
            for uid in [uid for uid in asked if uid not in pending and self._is_gone(uid)]:
                del asked[uid]

    def _is_gone(self, uid: str) -> bool:
        """Whether the pod is known not to be pending. A scheduler may ask about a pod before the watch shows it."""
        pod, asked = self._state.snapshot.pod(uid), self._asked.get(uid)
        return pod is not None or asked is None or self._clock() > asked.since + KEPT_SECONDS

    async def _serve(self, gang: Gang, solver: Solver, hopeless: set[Hashable]) -> None:
        watch, now = self._watch(gang.key), self._clock()
        self._note(gang, watch, now)
        if gang.is_placed:
            await self._finish(gang, watch, now)
        elif not self._acts(gang, watch, now):
            return
        elif gang.kept and now > watch.until:
            await self._give_back_late(gang, watch, now)
        elif gang.problem or len(gang.members) < gang.size:
            await self._give_back(gang, watch, gang.problem or "a pod of the group is gone")
        elif gang.has_enough:
            await self._look_after(gang)
        elif self._long is not None and not self._long.done():
            return
        elif self._may_plan(gang, watch, now) and watch.seconds > PLANNING_SECONDS:
            self._long = asyncio.create_task(self._planned_beside(gang, watch, now))
        elif self._may_plan(gang, watch, now) and not solver.is_late:
            await self._plan_and_tell(gang, watch, solver, hopeless)

    async def _planned_beside(self, gang: Gang, watch: Watch, now: float) -> None:
        """Plan a gang that takes long. Turns go on, but no other gang is planned: it might get the devices."""
        with self._decider.solver.faults.of(f"group {gang}"):
            await self._plan_and_tell(gang, watch, self._decider.solver.within(now + watch.seconds), set())

    async def _plan_and_tell(self, gang: Gang, watch: Watch, solver: Solver, hopeless: set[Hashable]) -> None:
        before = watch.shortfall
        plan = await self._plan(gang, watch, solver, hopeless)
        if plan:
            nodes = Counter(seat.keeping.node for seat in plan)
            few, more = dict(nodes.most_common(SHOWN_NODES)), max(0, len(nodes) - SHOWN_NODES)
            logger.info("group planned", group=str(gang), pods=len(plan), nodes=few, more_nodes=more)
        elif watch.shortfall is not None and watch.shortfall != before:
            lack = watch.shortfall
            logger.info("group waits", group=str(gang), pods=lack.wanted, fit=lack.placed, reason=lack.reason)

    def _note(self, gang: Gang, watch: Watch, now: float) -> None:
        """Note what has changed since the last look."""
        members = gang.size, frozenset(pod.uid for pod in gang.members)
        if members != watch.members:
            watch.members, watch.is_due = members, True
        if len(gang.bound) != watch.bound:
            watch.bound, watch.until, watch.is_due = len(gang.bound), now + KEPT_SECONDS, True
        if not (gang.kept or gang.is_placed or watch.writing):
            watch.begun = None
        if gang.kept and watch.begun is None:
            watch.begun, watch.until = now, now + KEPT_SECONDS
        if watch.writing and (self._is_shown(watch) or now > watch.written + SEEN_SECONDS):
            watch.writing = {}

    def _acts(self, gang: Gang, watch: Watch, now: float) -> bool:
        """Whether this process may write now. Two that look after one gang at once would mix two plans in it."""
        if watch.writing or watch.is_planning or any(self._is_binding(pod.uid) for pod in (*gang.kept, *gang.free)):
            return False
        return not gang.kept or now <= watch.active + IDLE_SECONDS or now > watch.until + KEPT_SECONDS

    def _is_shown(self, watch: Watch) -> bool:
        pods = ((self._state.snapshot.pod(uid), keeping) for uid, keeping in watch.writing.items())
        return all(pod is None or not pod.is_pending or pod.kept == keeping for pod, keeping in pods)

    async def _end_strays(self, snapshot: Snapshot, known: Collection[GangKey]) -> None:
        """Give back what is kept for pods whose gang is gone. Not at once: a PodGroup may be shown after its pods."""
        now, pods = self._clock(), (pod for name in snapshot.nominated for pod in snapshot.nominated_to(name))
        found = [pod for pod in pods if pod.kept.node and pod.gang_key not in known and not is_alone(pod, snapshot)]
        self._strays = {pod.uid: self._strays.get(pod.uid, now) for pod in found}
        over = [pod for pod in found if now > self._strays[pod.uid] + SEEN_SECONDS and not self._is_binding(pod.uid)]
        await self._end(over, "the group of the pod is gone")

    async def _finish(self, gang: Gang, watch: Watch, now: float) -> None:
        """The size is reached. What is kept for further pods is given back: each of them is on its own now."""
        if watch.begun is not None:
            self._metrics.placed(now - watch.begun)
            watch.begun, watch.pause = None, FIRST_PAUSE_SECONDS
        watch.shortfall = None
        if gang.kept and not any(self._is_binding(pod.uid) for pod in gang.kept):
            await self._end(gang.kept, "enough pods of the group have a node")

    # --- plan -----------------------------------------------------------------------------------------------

    def _may_plan(self, gang: Gang, watch: Watch, now: float) -> bool:
        """Whether a plan may be made. What is kept for a part of a gang is completed or given back at once."""
        if gang.kept:
            return now >= watch.again
        asked = [self._asked[pod.uid] for pod in gang.free if pod.uid in self._asked]
        if not (asked and watch.is_due) or now < watch.again:
            return False
        return len(asked) == len(gang.free) or now >= min(each.since for each in asked) + ASKING_SECONDS

    async def _plan(self, gang: Gang, watch: Watch, solver: Solver, hopeless: set[Hashable]) -> Plan:
        """Plan a gang, and keep what is planned; returns the plan, empty if there is none."""
        present = self._state.snapshot
        kind = self._kind(gang, present)
        if kind in hopeless:
            watch.is_due = False
            return ()
        planner = Planner(self._with_writes(present), self._decider, solver, self._names(present))
        began, watch.is_planning = self._clock(), True
        try:
            found = await self._off_loop(partial(self._planned, planner, gang, present))
        finally:
            watch.is_planning = False
        if not isinstance(found, Shortfall):
            if self._is_void(found, planner.snapshot):
                return ()
            await self._keep(watch, found)
            return found
        watch.shortfall, watch.is_due = found, not found.is_final
        if not found.is_final:
            watch.stopped(self._clock(), began, is_late=solver.is_late)
        elif kind is not None:
            hopeless.add(kind)
        if gang.kept:
            await self._give_back(gang, watch, f"the other pods of the group can't get devices: {found.reason}")
        return ()

    def _planned(self, planner: Planner, gang: Gang, present: Snapshot) -> Plan | Shortfall:
        self._decider.follow(present)
        return planner.plan(gang)

    def _is_void(self, plan: Plan, before: Snapshot) -> bool:
        """Whether a pod is gone, or something is kept for others, since a plan was begun. It is made again then."""
        now = self._with_writes(self._state.snapshot)
        pods = ((seat, now.pod(seat.pod.uid)) for seat in plan)
        if any(pod is None or not pod.is_pending or pod.kept.node for _, pod in pods):
            return True
        devices = (device for seat in plan for device in seat.keeping.devices)
        return any(now.kept.users.get(each) != before.kept.users.get(each) for each in devices)

    def _kind(self, gang: Gang, snapshot: Snapshot) -> Hashable | None:
        """Equal for gangs that get the same answer: after one finds no place, the next finds none. None: unlike any."""
        if gang.bound or gang.kept or shared_claims(gang.free):
            return None
        kinds = sorted(hash((kind_of(pod, snapshot), self._names_asked(pod))) for pod in gang.free)
        return gang.size, gang.topology, tuple(kinds)

    def _names_asked(self, pod: Pod) -> Sequence[str] | None:
        asked = self._asked.get(pod.uid)
        return None if asked is None else tuple(asked.names)

    def _names(self, snapshot: Snapshot) -> Callable[[Pod], Sequence[str]]:
        """The nodes of each pod: those that filter was asked about, or those that kube-scheduler would take."""
        likely = likely_nodes(snapshot)

        def names(pod: Pod) -> Sequence[str]:
            asked, may = self._names_asked(pod), likely(pod)
            if asked is None:
                return may
            known = set(may)
            return [name for name in asked if name in known]

        return names

    def _with_writes(self, snapshot: Snapshot) -> Snapshot:
        """The cluster in which the watch shows what was written for other gangs."""
        for watch in self._watches.values():
            for uid, keeping in watch.writing.items():
                pod = snapshot.pod(uid)
                if pod is not None and pod.is_pending:
                    snapshot = snapshot.with_pod(replace(pod, kept=keeping, nominated_node=keeping.node))
        return snapshot

    async def _keep(self, watch: Watch, plan: Plan) -> None:
        """Write what is kept for each pod. What could not be written is planned again, or all is given back."""
        watch.writing = {seat.pod.uid: seat.keeping for seat in plan}
        watch.written, watch.shortfall = self._clock(), None
        for seat in plan:
            self._rejected.pop(seat.pod.uid, None)

        async def keep(pod: Pod, keeping: Keeping) -> None:
            if not await self._writes.keep(pod, keeping):
                watch.writing.pop(pod.uid, None)
                watch.again = self._clock() + AGAIN_SECONDS

        await at_most([partial(keep, seat.pod, seat.keeping) for seat in plan])
        if watch.begun is None:
            watch.begun = self._clock()
        watch.active = self._clock()
        watch.until = watch.active + KEPT_SECONDS
        self._metrics.planned()

    # --- look after what is kept ------------------------------------------------------------------------------

    async def _give_back_late(self, gang: Gang, watch: Watch, now: float) -> None:
        watch.again, watch.pause = now + watch.pause, min(2 * watch.pause, LONGEST_PAUSE_SECONDS)
        await self._give_back(gang, watch, f"not all pods of the group were bound within {KEPT_SECONDS:.0f} s")

    async def _look_after(self, gang: Gang) -> None:
        """End what a member can't use; wake members that were asked too early."""
        if gang.lost:
            await self._writes.end(gang.lost, lambda pod: LOST.format(pod.kept.node))
            return
        rejected = [(pod, self._rejected.pop(pod.uid)) for pod in gang.kept if pod.uid in self._rejected]
        await at_most([partial(self._answer, *each) for each in rejected])

    async def _answer(self, pod: Pod, rejected: Asked) -> None:
        """Wake a member whose gang is ready now, or end what is kept for it on a node that its scheduler rejects."""
        if not rejected.was_ready:
            await self._writes.wake(pod)
        elif pod.kept.node in rejected.names:
            await self._end([pod], f"the pod can't get devices on node {pod.kept.node} any more")
        elif not await self._writes.nominate_again(pod):
            await self._end([pod], f"the scheduler of the pod does not take node {pod.kept.node} any more")

    async def _give_back(self, gang: Gang, watch: Watch, why: str) -> None:
        """Give back all that is kept for members without a node."""
        if not gang.kept:
            return
        watch.begun, watch.is_due = None, True
        await self._end(gang.kept, why)
        self._metrics.given_back()
        logger.info("devices of group given back", group=str(gang), pods=len(gang.kept), reason=why)

    async def _end(self, pods: Collection[Pod], why: str) -> None:
        await self._writes.end(pods, lambda _: why)
