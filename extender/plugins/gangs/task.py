"""Gangs: keeps devices for the pods of a gang together, and gives them back together.

Each gang is planned on one snapshot, for all of its pods or for none. So two gangs never wait for each other's devices.
Plans begin in an order: by priority, gangs with bound members first, then the oldest. What is kept stands in the
conditions of the pods (`extender.plugins.gangs.gang`), and any process carries on from there: it plans the rest of a
gang with what is kept, or gives everything back. Only one process does so at a time: the one whose scheduler asks about
the members.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import inf
from operator import is_
from types import MappingProxyType
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client import Counter as CounterMetric

from extender.cluster.cluster_state import ClusterState
from extender.cluster.indexes import Stage
from extender.cluster.objects.pod_groups import PodGroup
from extender.cluster.objects.pods import GangKey, Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.pods import Nominator
from extender.cluster.writes.writer import Writer
from extender.framework.cycle import refreshed
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.handle import Handle
from extender.framework.queueing_hints import NO_HINT, queueing_hint
from extender.framework.task import UNTIL_NEWS, BackgroundTask, Found, Rejection
from extender.kube.api import ObjectKey
from extender.plugins.gangs.gang import GANG, Gang, gang_at, is_alone
from extender.plugins.gangs.in_part import GangsInPart, gauge_of_gangs_in_part
from extender.plugins.gangs.planner import GangPlans
from extender.plugins.gangs.rejected_members import RejectedMember, RejectedMembers
from extender.plugins.gangs.search import GangPlan, Shortfall
from extender.plugins.gangs.writes import GangWrites, at_most
from extender.tools.fairness import Turns
from extender.tools.metrics import WAITING_SECONDS
from extender.tools.offload import Offload

logger = structlog.get_logger()

KEPT_SECONDS: Final = 60.0
"""Devices are kept for a gang for this time after the plan, and after each pod that is bound."""

ASKING_SECONDS: Final = 1.0
"""The longest time from the first rejection of a member to the plan: kube-scheduler asks about the others meanwhile."""

PLANNING_SECONDS: Final = 0.5
"""The longest time that a turn waits for plans: other tasks wait meanwhile. A plan that takes longer goes on between
the turns."""

LONG_PLANS: Final = 4
"""The most plans that go on between the turns. They compute one at a time, 10 ms each
(`extender.tools.offload.Searches`). The limit is for memory: a plan for 1,024 pods on 1,024 nodes took 27 MB. While
there are as many, a plan that takes longer than a turn is stopped. A namespace without such a plan may have one more,
up to twice as many plans in all."""

LONGEST_PLAN_SECONDS: Final = 512.0
"""A plan is stopped after this time."""

IDLE_SECONDS: Final = 2 * KEPT_SECONDS
"""A process whose scheduler has asked about no member for this time leaves what is kept to another process."""

SEEN_SECONDS: Final = 10.0
"""If the watch does not show a plan within this time, another process has changed it. If it shows no PodGroup, or no
successor of a pod, within this time, the PodGroup or the pod is gone. What is kept for a part of a gang that can't be
completed is given back after this time: until then, another process may write the rest. A part that a quota refuses is
given back at once."""

SHOWN_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.005
"""A call of preempt waits this long until a plan of a gang is made and shown by the watch, and looks so often."""

FIRST_PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 300.0
"""After devices were given back, a gang waits this time, and twice as long each time: others may get the devices."""

AGAIN_SECONDS: Final = 2.0
"""A plan is made again after this time if its scheduler asks again. If a limit has stopped the plan, it is made again
after four times as long as it took, but not before this time."""

LOST: Final = "node {} is gone, or another claim or pod has a device that was kept for the pod"

SHOWN_NODES: Final = 16
"""Nodes in one line of the log. The conditions of the pods name all of them."""


class GangMetrics:
    """Counts plans of gangs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._planned = CounterMetric(
            "dra_extender_gangs_planned",
            "Plans: devices were kept for the pods of a group together.",
            registry=registry,
        )
        self._given_back = CounterMetric(
            "dra_extender_gangs_given_back",
            "Times that the kept devices of a group were given back together before the group was placed.",
            registry=registry,
        )
        self._seconds = Histogram(
            "dra_extender_gang_duration_seconds",
            "Time from the plan of a group until its size was reached by pods with a node.",
            buckets=WAITING_SECONDS,
            registry=registry,
        )

    def planned(self) -> None:
        """Devices were kept for a gang."""
        self._planned.inc()

    def placed(self, seconds: float) -> None:
        """Enough pods of a gang have a node, this time after the plan."""
        self._seconds.observe(seconds)

    def given_back(self) -> None:
        """The devices that were kept for a gang were given back."""
        self._given_back.inc()


@dataclass(slots=True)
class Watch:
    """The knowledge of this process about one gang.

    Attributes:
        members: the size, and the claims that were made for each pod by its uid, at the last look.
        changed: when a look has found other members than the look before.
        is_due: something has changed that may help.
        again: no plan is made before, by the solver's clock.
        pause: from devices that are given back to the next plan.
        is_planning: a plan is being made.
        overdue: the end of the first turn in which a plan was to be made, and time did not suffice; infinite: none.
        is_overtaken: others have got devices of the latest plan while it was made.
        writing: what was written for pods, until the watch shows it.
        written: when that was.
        begun: when devices were kept first; None while nothing is kept.
        bound: how many members had a node at the last look.
        until: when devices are given back.
        kept: the uids of the members for which something was kept at the last look.
        kept_since: when that has changed last.
        active: when this process was last asked about a member, or has last written a plan.
        shortfall: why there was no plan.
        is_slow: a call of preempt has waited for the latest plan in vain; the next ones do not wait for that plan.
        making_room: until when the scheduler of a member makes room on the kept node by evictions, by the pod's uid.
    """

    members: tuple[int, Mapping[str, Mapping[str, str | None]]] = (0, MappingProxyType({}))
    changed: float = 0.0
    is_due: bool = True
    again: float = 0.0
    pause: float = FIRST_PAUSE_SECONDS
    is_planning: bool = False
    is_slow: bool = False
    overdue: float = inf
    is_overtaken: bool = False
    writing: dict[str, Keeping] = field(default_factory=dict)
    written: float = 0.0
    begun: float | None = None
    bound: int = 0
    until: float = 0.0
    kept: frozenset[str] = frozenset()
    kept_since: float = 0.0
    active: float = -inf
    shortfall: Shortfall | None = None
    making_room: dict[str, float] = field(default_factory=dict)

    def asked_again(self, now: float) -> None:
        """A scheduler tries a member again: something may have changed that is not known here, such as free CPU."""
        if not self.is_due:
            self.is_due, self.again = True, max(self.again, now + AGAIN_SECONDS)


class _Settled:
    """Gangs of which all members have a node: nothing is to be done for them until something of them changes.

    A change of a pod or PodGroup makes new values in the snapshot, so a comparison by identity finds it. The timeline
    does not tell of pods without devices, which count, too.
    """

    def __init__(self) -> None:
        self._known: dict[GangKey, tuple[object, ...]] = {}

    def has_all(self, snapshot: Snapshot) -> bool:
        """Whether all gangs that have members are settled."""
        return all(self._is_same(key, snapshot) for key in snapshot.gangs.members)

    def others(self, snapshot: Snapshot) -> list[Gang]:
        """The other gangs that have members."""
        keys = [key for key in snapshot.gangs.members if not self._is_same(key, snapshot)]
        return [gang for key in keys if (gang := gang_at(key, snapshot)) is not None]

    def note(self, gangs: Iterable[Gang], snapshot: Snapshot) -> None:
        """Remember which gangs are settled, and forget those that are gone. The gangs were served in this snapshot."""
        self._known = {key: basis for key, basis in self._known.items() if self._is_same(key, snapshot)}
        for gang in gangs:
            if gang.is_placed and not (gang.free or gang.kept):
                self._known[gang.key] = _basis(gang.key, snapshot)

    def _is_same(self, key: GangKey, snapshot: Snapshot) -> bool:
        return key in self._known and all(map(is_, self._known[key], _basis(key, snapshot)))


def _basis(key: GangKey, snapshot: Snapshot) -> tuple[object, ...]:
    """What a gang is made of."""
    group = snapshot.objects(PodGroup).get(ObjectKey(key.namespace, key.name)) if key.is_pod_group else None
    return snapshot.gangs.members.get(key), snapshot.gangs.companions.get(key), group


class Gangs(BackgroundTask):
    """Plans gangs of the cluster.

    Args:
        state: the cluster.
        decider: remembers where pods fit. Its solver has the clock and the faults.
        nominator: writes what is kept.
        writer: wakes pods.
        is_binding: whether a bind of the pod with this uid is running.
        metrics: counts plans.
        off_loop: runs plans in a thread.
    """

    def __init__(
        self,
        state: ClusterState,
        decider: Decider,
        nominator: Nominator,
        writer: Writer,
        is_binding: Callable[[str], bool],
        metrics: GangMetrics,
        off_loop: Offload,
    ) -> None:
        self._state = state
        self._solver = decider.solver
        self._clock = decider.solver.clock
        self._writes = GangWrites(nominator, writer)
        self._is_binding = is_binding
        self._metrics = metrics
        self._seen = state.snapshot
        self._hopeless: tuple[Snapshot | None, set[Hashable]] = None, set()
        """The cluster of the last plans, and the kinds of gangs (`GangPlans.kind`) that find no place in it."""

        self._watches: dict[GangKey, Watch] = {}
        self._rejected = RejectedMembers(self._clock, KEPT_SECONDS)
        self._plans = GangPlans(state, decider, self._rejected, self._written, off_loop)
        self._strays: dict[str, float] = {}
        self._settled = _Settled()
        self._turns = Turns(self._clock)
        self._long: dict[asyncio.Task[None], Gang] = {}

    @property
    def unfinished(self) -> Sequence[asyncio.Task[None]]:
        """The plans that go on between the turns."""
        return tuple(self._long)

    def on_rejected(self, rejection: Rejection) -> None:
        """Remember the nodes of a member. The latest call counts for what it knows of the kept node."""
        key = rejection.sent.gang_key
        if key is None:
            return
        if (watch := self._shown(key)) is not None:
            watch.active = self._clock()
        if GANG in rejection.result.by and self._rejected.note(rejection) and watch is not None:
            watch.asked_again(self._clock())

    def on_passed(self, pod: Pod) -> None:
        """The pod has its node."""
        if pod.gang_key is not None:
            self._rejected.answered(pod)
            if (watch := self._shown(pod.gang_key)) is not None:
                watch.active = self._clock()

    def on_found(self, pod: Pod, snapshot: Snapshot) -> Found:
        """Have a member's scheduler ask about the member: a plan needs the nodes that the scheduler takes."""
        is_member = pod.gang_key is not None and not is_alone(pod, snapshot)
        return Found.ASK if is_member and self._rejected.names(pod) is None else Found.KNOWN

    def judge_anew(self, pod: Pod) -> None:
        """Something has changed that no snapshot tells: the gang of a pod may fit now."""
        if pod.gang_key is not None and pod.gang_key in self._watches:
            self._watches[pod.gang_key].is_due = True
            self._hopeless = None, set()

    async def before_preempt(self, pod: Pod, nodes: Collection[str]) -> None:
        """The scheduler of a member would evict others. The gang is planned at once if it is complete.

        Later is too late: if all nodes lack CPU, no write wakes the scheduler, and filter is never asked.
        """
        snapshot = self._state.snapshot
        if pod.gang_key is None or is_alone(pod, snapshot):
            return
        if not pod.kept.node:
            self._rejected.note_evictions(pod, nodes, snapshot)
        watch, now = self._shown(pod.gang_key), self._clock()
        if watch is None:
            return
        watch.active = now
        if not pod.kept.node:
            await self._plan_at_once(pod.gang_key, watch)
        snapshot = self._state.snapshot
        if snapshot.pod(pod.uid) is not None and refreshed(pod, snapshot).kept.node in nodes:
            self._rejected.answered(pod)
            watch.making_room[pod.uid] = now + KEPT_SECONDS
        else:
            watch.making_room.pop(pod.uid, None)

    async def _plan_at_once(self, key: GangKey, watch: Watch) -> None:
        """Plan a gang that is complete, unless a turn does so; wait until the watch shows the plan."""
        await self._plan_shown(watch)
        snapshot, now = self._state.snapshot, self._clock()
        gang = gang_at(key, snapshot)
        if gang is None or gang.problem or len(gang.members) < gang.size or gang.has_enough:
            return
        self._note_changes(snapshot)
        self._note(gang, watch, now)
        if watch.is_due and now >= watch.again and self._acts(gang, watch, now):
            await self._plan(gang, watch, self._solver.within(now + PLANNING_SECONDS), set())
            await self._plan_shown(watch)
        else:
            watch.asked_again(now)

    async def _plan_shown(self, watch: Watch) -> None:
        """Wait until the last plan of a gang is made, and shown by the watch; for `SHOWN_SECONDS` at most.

        Only one call waits in vain for a plan: its scheduler tries no other pod meanwhile.
        """
        for _ in range(0 if watch.is_slow else round(SHOWN_SECONDS / POLL_SECONDS)):
            if self._has_shown(watch):
                return
            await asyncio.sleep(POLL_SECONDS)
        watch.is_slow = not self._has_shown(watch)

    def _has_shown(self, watch: Watch) -> bool:
        return not watch.is_planning and self._is_shown(watch)

    @property
    def idle_seconds(self) -> float:
        """Until something changes, if all pods of all gangs have a node."""
        is_idle = not (self._strays or self._long) and self._settled.has_all(self._state.snapshot)
        return UNTIL_NEWS if is_idle else 0.0

    async def tick(self) -> None:
        """Look after each gang, the most important first; then plan those that lack something."""
        if self._state.not_ready:
            return
        snapshot = self._state.snapshot
        self._note_changes(snapshot)
        gangs = sorted(self._settled.others(snapshot), key=lambda gang: gang.order)
        await self._forget(gangs, snapshot)
        due = []
        for gang in gangs:
            with self._solver.faults.of(f"group {gang}"):
                if await self._serve(gang):
                    due.append(gang)
        await self._plan_due(due)
        await self._end_strays(snapshot, {gang.key for gang in gangs})
        self._settled.note(gangs, snapshot)

    async def prepare(self, pod: Pod) -> None:
        """Plan the gang of a pod at once: all pods of a simulation are there."""
        key = pod.gang_key
        gang = None if key is None else gang_at(key, self._state.snapshot)
        if gang is None or gang.problem or len(gang.members) < gang.size or gang.has_enough:
            return
        watch = self._watch(gang.key)
        await self._plan(gang, watch, self._solver, set())
        watch.writing = {}

    def _watch(self, key: GangKey) -> Watch:
        return self._watches.setdefault(key, Watch())

    def _shown(self, key: GangKey) -> Watch | None:
        """What is known of a gang that a caller names; None if the watch shows no pod of it."""
        return self._watch(key) if key in self._state.snapshot.gangs.members else None

    def _written(self) -> Iterable[tuple[str, Keeping]]:
        """What was written for pods, until the watch shows it."""
        return (each for watch in self._watches.values() for each in watch.writing.items())

    def _note_changes(self, snapshot: Snapshot) -> None:
        """Note that something has changed that may help gangs."""
        before, self._seen = self._seen, snapshot
        if before is snapshot or not self._watches:
            return
        news = queueing_hint(self._state.since(before.version), before, snapshot, self._solver.plugins)
        if news != NO_HINT:
            for watch in self._watches.values():
                watch.is_due = True

    async def _forget(self, gangs: Iterable[Gang], snapshot: Snapshot) -> None:
        """Forget gangs and pods that are gone. Wake pods that need not wait for a gang any more."""
        known = {gang.key for gang in gangs}
        self._watches = {key: watch for key, watch in self._watches.items() if key in known or watch.is_planning}
        left = self._rejected.forget({pod.uid for gang in gangs for pod in (*gang.free, *gang.kept)}, snapshot)
        alone = [pod for pod in left if pod.is_pending and is_alone(pod, snapshot)]
        await at_most([partial(self._writes.wake, pod) for pod in alone])

    async def _serve(self, gang: Gang) -> bool:
        """Look after what is kept for a gang; returns whether the gang is to be planned."""
        watch, now = self._watch(gang.key), self._clock()
        self._note(gang, watch, now)
        if gang.is_placed:
            await self._finish(gang, watch, now)
        elif not self._acts(gang, watch, now):
            return False
        elif gang.kept and now > watch.until:
            await self._give_back_late(gang, watch, now)
        elif gang.problem or len(gang.members) < gang.size:
            await self._give_back(gang, watch, gang.problem or "a pod of the group is gone")
        elif why := self._plans.refused_now(gang.kept):
            await self._give_back(gang, watch, why)
        elif gang.has_enough:
            await self._look_after(gang)
        else:
            return self._may_plan(gang, watch, now)
        return False

    def _note(self, gang: Gang, watch: Watch, now: float) -> None:
        """Note what has changed since the last look."""
        members = gang.size, {pod.uid: pod.claim_statuses for pod in gang.members}
        if members != watch.members:
            if members[1].keys().isdisjoint(watch.members[1]):  # other pods have got the name of the group since
                watch.again, watch.pause = 0.0, FIRST_PAUSE_SECONDS
            watch.members, watch.changed, watch.is_due = members, now, True
        if len(gang.bound) != watch.bound:
            watch.bound, watch.until, watch.is_due = len(gang.bound), now + KEPT_SECONDS, True
        kept = frozenset(pod.uid for pod in gang.kept)
        if kept != watch.kept:
            watch.kept, watch.kept_since = kept, now
        if not (gang.kept or gang.is_placed or watch.writing):
            watch.begun = None
        if gang.kept and watch.begun is None:
            watch.begun, watch.until = now, now + KEPT_SECONDS
        if watch.writing and (self._is_shown(watch) or now > watch.written + SEEN_SECONDS):
            watch.writing = {}
        watch.making_room = {uid: until for uid, until in watch.making_room.items() if until > now}

    def _acts(self, gang: Gang, watch: Watch, now: float) -> bool:
        """Whether this process may write now. Two that look after one gang at once would mix two plans in it.

        For a gang that lacks a pod, nobody has a plan, unless the watch is late.
        """
        if watch.writing or watch.is_planning or any(self._is_binding(pod.uid) for pod in (*gang.kept, *gang.free)):
            return False
        if len(gang.members) < gang.size and now > watch.changed + SEEN_SECONDS:
            return True
        return not gang.kept or now <= watch.active + IDLE_SECONDS or now > watch.until + KEPT_SECONDS

    def _is_shown(self, watch: Watch) -> bool:
        pods = ((self._state.snapshot.pod(uid), keeping) for uid, keeping in watch.writing.items())
        return all(pod is None or not pod.is_pending or pod.kept == keeping for pod, keeping in pods)

    async def _end_strays(self, snapshot: Snapshot, known: Collection[GangKey]) -> None:
        """Give back what is kept for pods whose gang is gone. Not at once: a PodGroup may be shown after its pods."""
        now, numbers = self._clock(), snapshot.gangs.numbers.items()
        keys = [key for key, parts in numbers if key not in known and any(part.stage is Stage.KEPT for part in parts)]
        pods = (snapshot.pod(uid) for key in keys for uid in snapshot.gangs.members[key])
        found = [pod for pod in pods if pod is not None and pod.is_pending and pod.kept.node]
        found = [pod for pod in found if not is_alone(pod, snapshot)]
        self._strays = {pod.uid: self._strays.get(pod.uid, now) for pod in found}
        over = [pod for pod in found if now > self._strays[pod.uid] + SEEN_SECONDS and not self._is_binding(pod.uid)]
        await self._end(over, "the group of the pod is gone")

    async def _finish(self, gang: Gang, watch: Watch, now: float) -> None:
        """The size is reached. Each further pod is on its own now: it is woken, or gives back what is kept for it."""
        if watch.begun is not None:
            self._metrics.placed(now - watch.begun)
            watch.begun, watch.pause = None, FIRST_PAUSE_SECONDS
        watch.shortfall = None
        further = [pod for pod, _ in self._rejected.unanswered(gang.free)]
        await at_most([partial(self._writes.wake, pod) for pod in further])
        if gang.kept and not any(self._is_binding(pod.uid) for pod in gang.kept):
            await self._end(gang.kept, "enough pods of the group have a node")

    # --- plan -----------------------------------------------------------------------------------------------

    def _may_plan(self, gang: Gang, watch: Watch, now: float) -> bool:
        """Whether a plan may be made. What is kept for a part of a gang is completed or given back at once."""
        if gang.kept:
            return now >= watch.again
        asked = self._rejected.since(gang.free)
        if not (asked and watch.is_due) or now < watch.again:
            return False
        return len(asked) == len(gang.free) or now >= min(asked) + ASKING_SECONDS

    async def _plan_due(self, gangs: Iterable[Gang]) -> None:
        """Plan gangs until the turn is over, in fair turns of their namespaces.

        Of one namespace, or of namespaces in credit, those go first that earlier turns did not get to.
        """
        hopeless, now = self._hopeless_here(), self._clock()
        until = now + PLANNING_SECONDS
        due = sorted(gangs, key=lambda each: self._watch(each.key).overdue)
        for gang in self._turns.ordered(due, lambda each: each.key.namespace):
            watch = self._watch(gang.key)
            watch.overdue = min(watch.overdue, until) if now >= until else inf
            if now >= until or self._waits_for_overtaken(gang):
                continue
            own = sum(each.key.namespace == gang.key.namespace for each in self._long.values())
            is_brief = len(self._long) >= (LONG_PLANS if own else 2 * LONG_PLANS)
            seconds = PLANNING_SECONDS if is_brief else LONGEST_PLAN_SECONDS
            plan = asyncio.create_task(self._planned(gang, watch, self._solver.within(now + seconds), hopeless))
            self._long[plan] = gang
            plan.add_done_callback(self._long.pop)
            with self._turns.of(gang.key.namespace):
                await asyncio.wait([plan], timeout=None if is_brief else until - now)
            now = self._clock()

    def _hopeless_here(self) -> set[Hashable]:
        """The kinds of gangs that find no place in this very cluster: they are not looked for again until it changes.

        What is written for gangs, and not shown yet, is no part of the snapshot.
        """
        snapshot = None if any(watch.writing for watch in self._watches.values()) else self._state.snapshot
        if snapshot is None or self._hopeless[0] is not snapshot:
            self._hopeless = snapshot, set()
        return self._hopeless[1]

    def _waits_for_overtaken(self, gang: Gang) -> bool:
        """Whether a more important gang is planned that others have overtaken before: it gets its devices first."""
        return any(each.order < gang.order and self._watch(each.key).is_overtaken for each in self._long.values())

    async def _planned(self, gang: Gang, watch: Watch, solver: Solver, hopeless: set[Hashable]) -> None:
        """Plan a gang, and log what comes of it."""
        with self._solver.faults.of(f"group {gang}"):
            before = watch.shortfall
            plan = await self._plan(gang, watch, solver, hopeless)
            if plan:
                nodes = Counter(seat.keeping.node for seat in plan)
                few, more = dict(nodes.most_common(SHOWN_NODES)), max(0, len(nodes) - SHOWN_NODES)
                logger.info("group planned", group=str(gang), pods=len(plan), nodes=few, more_nodes=more)
            elif watch.shortfall is not None and watch.shortfall != before:
                lack = watch.shortfall
                logger.info("group waits", group=str(gang), pods=lack.wanted, fit=lack.placed, reason=lack.reason)

    async def _plan(self, gang: Gang, watch: Watch, solver: Solver, hopeless: set[Hashable]) -> GangPlan:
        """Plan a gang, and keep what is planned; returns the plan, empty if there is none."""
        if watch.is_planning or watch.writing:
            return ()  # a call of preempt has begun meanwhile to plan it
        watch.is_due = False  # what changes from here on may help
        kind = self._plans.kind(gang)
        if kind in hopeless:
            return ()
        began, watch.is_planning = self._clock(), True
        try:
            found = await self._plans.made(gang, solver)
        finally:
            watch.is_planning = False
        watch.is_overtaken = found is None
        if not isinstance(found, Shortfall):
            watch.is_due = True
            if found is not None:
                await self._keep(gang.key, watch, found)
            return found or ()
        watch.shortfall = replace(found, next=None)  # a fork is not to outlive its plan
        if not found.is_final:
            watch.is_due, watch.again = True, self._clock() + max(AGAIN_SECONDS, 4 * (self._clock() - began))
        elif kind is not None:
            hopeless.add(kind)
        if gang.kept and self._clock() <= watch.kept_since + SEEN_SECONDS:
            watch.again = max(watch.again, self._clock() + AGAIN_SECONDS)  # perhaps another process writes the rest
        elif gang.kept:
            await self._give_back(gang, watch, f"the other pods of the group can't get devices: {found.reason}")
        return ()

    async def _keep(self, key: GangKey, watch: Watch, plan: GangPlan) -> None:
        """Write what is kept for each pod. What could not be written is planned again, or all is given back."""
        watch.writing, watch.making_room = {seat.pod.uid: seat.keeping for seat in plan}, {}
        watch.written, watch.shortfall = self._clock(), None
        self._state.assume_kept(seat.pod for seat in plan)
        for seat in plan:
            self._rejected.answered(seat.pod)

        async def keep(pod: Pod, keeping: Keeping) -> None:
            before = None
            try:
                before = await self._writes.keep(pod, keeping, partial(self._refused, key))
            finally:
                if before is None:
                    self._state.forget_kept(pod)
                    self._rejected.not_answered(pod)
                    watch.writing.pop(pod.uid, None)
                    watch.again = self._clock() + AGAIN_SECONDS
            if before is not None:
                self._state.settle_kept(before)

        await at_most([partial(keep, seat.pod, seat.keeping) for seat in plan])
        if watch.begun is None:
            watch.begun = self._clock()
        watch.active = self._clock()
        watch.until = watch.active + KEPT_SECONDS
        self._metrics.planned()

    def _refused(self, key: GangKey) -> str:
        """Why a plugin refuses by now what is shown to be kept for a gang; empty: it does not.

        One member stands for all, since what is kept for a gang is refused for all members or for none. This is asked
        before each write: to look at all members each time would take a gang's size to the square.
        """
        snapshot = self._state.snapshot
        members = (snapshot.pod(uid) for uid in snapshot.gangs.members.get(key, ()))
        kept = (pod for pod in members if pod is not None and pod.is_pending and pod.kept.node)
        return self._plans.refused_now(tuple(islice(kept, 1)))

    # --- look after what is kept ------------------------------------------------------------------------------

    async def _give_back_late(self, gang: Gang, watch: Watch, now: float) -> None:
        watch.again, watch.pause = now + watch.pause, min(2 * watch.pause, LONGEST_PAUSE_SECONDS)
        await self._give_back(gang, watch, f"not all pods of the group were bound within {KEPT_SECONDS:.0f} s")

    async def _look_after(self, gang: Gang) -> None:
        """End what members can't use; wake members that were asked too early."""
        if gang.lost:
            await self._writes.end(gang.lost, lambda pod: LOST.format(pod.kept.node))
            return
        making, now = self._watch(gang.key).making_room, self._clock()
        pods = [pod for pod in gang.kept if making.get(pod.uid, 0.0) <= now]
        await at_most([partial(self._answer, *each) for each in self._rejected.unanswered(pods)])

    async def _answer(self, pod: Pod, rejected: RejectedMember) -> None:
        """Wake a member whose gang is ready now, or end what is kept for it on a node that its scheduler rejects.

        A search that a limit has stopped says nothing about the node: it is made again, as long as devices are kept.
        """
        if not rejected.was_ready or rejected.is_undecided:
            await self._writes.wake(pod)
        elif pod.kept.node in rejected.latest:
            await self._end([pod], f"the pod can't get devices on node {pod.kept.node} any more")
        elif not await self._writes.nominate_again(pod):
            await self._end([pod], f"the scheduler of the pod does not take node {pod.kept.node} any more")

    async def _give_back(self, gang: Gang, watch: Watch, why: str) -> None:
        """Give back all that is kept for members without a node."""
        if not gang.kept:
            return
        watch.begun, watch.is_due = None, True
        await self._writes.end(gang.kept, lambda _: why, lambda: self._has_grown(gang))
        self._metrics.given_back()
        logger.info("devices of group given back", group=str(gang), pods=len(gang.kept), reason=why)

    def _has_grown(self, gang: Gang) -> bool:
        """Whether another pod of a gang has got a node since: it needs the others."""
        now = gang_at(gang.key, self._state.snapshot)
        return now is not None and len(now.bound) > len(gang.bound)

    async def _end(self, pods: Collection[Pod], why: str) -> None:
        await self._writes.end(pods, lambda _: why)


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background tasks of gangs."""
    state, writer, binder, metrics = handle.state, handle.writer, handle.binder, GangMetrics(handle.registry)
    nominator = Nominator(handle.api, handle.now)
    return [
        Gangs(state, handle.decider, nominator, writer, binder.is_binding, metrics, handle.in_background),
        GangsInPart(state, handle.tell, gauge_of_gangs_in_part(handle.registry).set, handle.asked, handle.clock),
    ]
