"""Preemptor: evicts pods of lower priority for a pod that fits nowhere for want of devices.

A preemption has four steps. A step begins when the snapshot shows what the step before has written:

1. The node and the victims are chosen.
2. The pod is nominated, so that its devices are kept from pods of equal or lower priority. The nomination names the
   devices and the victims.
3. The choice is checked on the newest snapshot, and the victims that are still needed are evicted. If the pod fits
   without evictions meanwhile, the nomination ends, and no pod is evicted.
4. The nomination ends in time (`extender.plugins.preemption.nominations`).

A process that starts knows only the nomination, and nothing else of earlier steps. When the pod is rejected again, the
process carries on with the victims that the nomination names. So two processes never choose different victims for one
pod.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import structlog
from prometheus_client import CollectorRegistry, Counter

from allocator import AllocatorError
from allocator.tools import Recent
from extender.cluster.binding_conditions import unmet
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.events import Note
from extender.cluster.writes.pods import Evictor, Nominator, preempted_by
from extender.framework.bind_errors import BindError
from extender.framework.cycle import admitted
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.handle import Handle
from extender.framework.plugin import Plugins, Refused
from extender.framework.queueing_hints import queueing_hint
from extender.framework.task import UNTIL_NEWS, BackgroundTask, Found, NodeLists, Rejection
from extender.kube.api import OutcomeUnknownError, WriteRefusedError
from extender.planning.planner import Planner, UndecidedError
from extender.plugins.preemption.choice import (
    Fruitless,
    Preemption,
    begun,
    carried_out,
    choose,
    still_needed,
    without_rivals,
)
from extender.plugins.preemption.eviction_limits import LOOKING_SECONDS, EvictionCaps, EvictionLimits, EvictionRefusal
from extender.plugins.preemption.nominations import KeptOfBound, Nominations, OutcomeMetrics
from extender.plugins.preemption.scheduler_evictions import SchedulerEvictions
from extender.tools.fairness import ReportingMemory, Turns
from extender.tools.offload import Of, Offload

_MOST: Final = 10_000


class HeldUp:
    """Remembers namespaces whose pods may not evict others yet because of what pods hold, as when a quota is used up.

    When their quota has room, requeue wakes those that fit. Others need evictions, so their scheduler has to ask again.

    Args:
        state: the cluster.
        plugins: those that may have refused the pods.
    """

    def __init__(self, state: ClusterState, plugins: Plugins) -> None:
        self._state = state
        self._plugins = plugins
        self._seen = state.snapshot
        self._namespaces: Recent[str] = Recent(_MOST)
        """Those of pods that were refused before the last look."""
        self._new: Recent[tuple[str, Snapshot]] = Recent(_MOST)
        """Namespaces of pods that were refused since the last look, with the snapshots, by namespace and version."""

    def note(self, namespace: str, snapshot: Snapshot) -> None:
        """A pod of a namespace was refused in a snapshot."""
        self._new.keep((namespace, snapshot.version), (namespace, snapshot))

    def relieved(self) -> set[str]:
        """The namespaces in which pods may be refused no more; they are forgotten.

        What was taken and became free again between two looks is no difference between them, so a pod that was refused
        in between is compared with the snapshot of its refusal.
        """
        before, now = self._seen, self._state.snapshot
        self._seen = now
        found = self._helped(before, now, self._namespaces.values()) if before is not now else set()
        refused: dict[int, tuple[Snapshot, set[str]]] = {}
        for namespace, snapshot in self._new.values():
            refused.setdefault(snapshot.version, (snapshot, set()))[1].add(namespace)
            self._namespaces.keep(namespace, namespace)
        self._new.forget_all()
        for snapshot, namespaces in refused.values():
            found |= self._helped(snapshot, now, namespaces)
        for namespace in found:
            self._namespaces.forget(namespace)
        return found

    def _helped(self, before: Snapshot, now: Snapshot, namespaces: Iterable[str]) -> set[str]:
        """Those of some namespaces that the changes between two snapshots may help."""
        known = set(namespaces)
        if not known:
            return known
        news = queueing_hint(self._state.since(before.version), before, now, self._plugins)
        return known if news.everywhere else known & news.namespaces


logger = structlog.get_logger()

PATIENCE_SECONDS: Final = 0.5
"""Time from filter's first answer to the choice: kube-scheduler may say meanwhile that it evicts pods itself."""

_CHOOSING_SECONDS: Final = 0.5
"""The longest time of all choices in one turn, and of one check of a choice: the turns of other tasks wait."""

_MOST_ASKED: Final = 1024
"""Pods that wait for a choice, in shares by namespace. Once there is room, pods that were forgotten are asked about."""

_LOWEST_SECONDS: Final = 10.0
"""For this time, it is remembered which priority is the lowest that a pod with a node has."""

_ADMITTING_SECONDS: Final = 0.02
"""How long a look takes at most whether a pod is refused on all nodes. Usually it takes less than a millisecond."""

_EVICTING_SECONDS: Final = 0.2
"""How long a turn waits for evictions. Slow ones go on beside the turns."""

_SEEN_SECONDS: Final = 10.0
"""If the watch does not show a nomination within this time, another process has ended it."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pod for which filter has left no node.

    Attributes:
        names: the nodes that filter was asked about.
        due: when victims are chosen for the pod, in seconds of the clock.
    """

    pod: Pod
    names: Sequence[str]
    due: float


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A preemption that is nominated, and none of whose victims are evicted yet.

    Attributes:
        names: the nodes that filter was asked about.
    """

    found: Preemption
    names: Sequence[str]


class PreemptionMetrics:
    """Counts preemptions and their victims.

    Attributes:
        outcomes: counts what the victims were good for.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._preemptions = Counter(
            "dra_extender_preemptions", "Preemptions: pods for which others were evicted.", registry=registry
        )
        self._victims = Counter(
            "dra_extender_preemption_victims",
            "Pods evicted so that a pod of higher priority gets their devices.",
            registry=registry,
        )
        self._refused = Counter(
            "dra_extender_evictions_refused",
            "Preemptions that were put off: a cap of evictions, or evictions in vain before.",
            ["by"],
            registry=registry,
        )
        self.outcomes = OutcomeMetrics(registry)

    def preempted(self) -> None:
        """The first victim of a preemption was evicted."""
        self._preemptions.inc()

    def evicted(self, victims: int) -> None:
        """Note how many pods were evicted for another pod."""
        self._victims.inc(victims)

    def refused(self, by: str) -> None:
        """A pod may not evict others now. ``by``: what keeps it from that (`RefusedBy`)."""
        self._refused.labels(by).inc()


class PreemptionWrites(NamedTuple):
    """Writes nominations, and evicts pods.

    Attributes:
        nominator: writes nominations.
        evictor: evicts pods.
        give_back: takes claims from a pod that is not bound yet, in the background, with the reason for the pod.
    """

    nominator: Nominator
    evictor: Evictor
    give_back: Callable[[Pod, Sequence[ClaimObject], str], None]


class Preemptor(BackgroundTask):
    """Preempts for one pod after the other, the pod with the highest priority first.

    Args:
        state: the cluster.
        decider: remembers where pods fit. Its solver decides which pods are evicted, and has the faults, which get
            unexpected errors.
        writes: nominates and evicts pods.
        is_binding: whether a bind of the pod with this uid is running.
        metrics: counts preemptions and victims.
        limits: says who may evict now.
        off_loop: runs the choice of victims in a thread.
    """

    def __init__(
        self,
        state: ClusterState,
        decider: Decider,
        writes: PreemptionWrites,
        is_binding: Callable[[str], bool],
        metrics: PreemptionMetrics,
        limits: EvictionLimits,
        off_loop: Offload,
    ) -> None:
        self._state = state
        self._decider = decider
        self._solver = solver = decider.solver
        self._writes = writes
        self._is_binding = is_binding
        self._metrics = metrics
        self._limits = limits
        self._faults = solver.faults
        self._off_loop = off_loop
        self._fruitless = Fruitless(state, solver.clock)
        self._held_up = HeldUp(state, solver.plugins)
        self._asked = ReportingMemory[_Asked](_MOST_ASKED)
        self._choosing: set[str] = set()
        self._names = NodeLists()
        self._turns = Turns(solver.clock)
        self._lowest = (-math.inf, math.inf)
        """Until when it is remembered, and the lowest priority of a pod with a node."""
        self._chosen: dict[str, _Chosen] = {}
        self._evicting: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, Preemption] = {}
        self._nominations = Nominations(
            state, solver, writes.nominator, is_binding, metrics.outcomes, limits, self._planned
        )

    def on_rejected(self, rejection: Rejection) -> None:
        """Remember the pod. The latest call counts: a scheduler asks about a nominated node before all others.

        Victims are chosen half a second after the first call: as other pods come and go, a scheduler asks all the time.
        """
        snapshot, plugins = rejection.snapshot, self._solver.plugins
        pod = snapshot.with_rank(rejection.sent)
        may_preempt = not (snapshot.never_preempts(pod) or plugins.keeper(pod, snapshot))
        helps = plugins.counting.isdisjoint(rejection.result.by)
        if may_preempt and not helps:
            self._held_up.note(rejection.share, snapshot)
        if may_preempt and helps and not rejection.result.failed:
            known = self._asked.get(pod.uid)
            due = self._solver.clock() + PATIENCE_SECONDS if known is None else known.due
            self._asked.keep(rejection.share, pod.uid, _Asked(pod, self._names.shared(rejection.names), due))

    def on_found(self, pod: Pod, snapshot: Snapshot) -> Found:
        """Have the pod's scheduler ask, if a pod may be evicted for it: the choice needs the nodes that it takes.

        A pod that is refused on all nodes for something else than devices, such as its quota, only waits its turn.
        """
        if snapshot.never_preempts(pod) or self._solver.plugins.keeper(pod, snapshot):
            return Found.KNOWN
        if pod.uid in self._asked or pod.uid in self._chosen:
            return Found.KNOWN
        if not pod.kept.node and pod.priority <= self._lowest_priority(snapshot):
            return Found.KNOWN
        if not self._asked.has_room(pod.namespace):
            return Found.FULL
        if pod.kept.node:
            return Found.ASK
        if self._fruitless.wait(pod, tuple(snapshot.nodes), snapshot):
            return Found.KNOWN
        if self._is_refused(pod, snapshot):
            self._held_up.note(pod.namespace, snapshot)
            return Found.KNOWN
        return Found.ASK

    def _is_refused(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether filter would leave the pod no node, wherever devices are free; False if that is not soon known."""
        solver = self._solver.within(self._solver.clock() + _ADMITTING_SECONDS)
        if solver.plugins.are_slow(pod, snapshot, solver):
            return False
        with suppress(TimeoutError):
            return isinstance(admitted(pod, snapshot, solver), Refused)
        return False

    def missed(self) -> Collection[str]:
        """The namespaces of which pods were forgotten, once there is room, or whose pods may evict others by now."""
        return {*self._asked.missed(), *self._held_up.relieved()}

    def on_passed(self, pod: Pod) -> None:
        """The pod has a node. No more pods are evicted for it."""
        self._asked.pop(pod.uid)
        self._waiting.pop(pod.uid, None)
        self._drop_choice(pod.uid)

    def _drop_choice(self, uid: str) -> None:
        """The victims that were chosen for the pod of this uid are not evicted, and count for no cap."""
        if self._chosen.pop(uid, None) is not None:
            self._limits.drop_plan(uid)

    def on_victims(self, pod: Pod) -> None:
        """The pod's scheduler makes room itself. A choice of victims that is being made is void."""
        self._asked.pop(pod.uid)
        self._choosing.discard(pod.uid)

    def on_bind_failed(self, uid: str, node: str, error: BindError) -> None:
        """Keep what is kept for a pod until the next try."""
        self._nominations.bind_failed(uid, node, error)

    @property
    def unfinished(self) -> Sequence[asyncio.Task[None]]:
        """The evictions that go on."""
        return list(self._evicting.values())

    @property
    def idle_seconds(self) -> float:
        """Until a pod is rejected, if none is chosen for."""
        is_idle = not (self._asked or self._chosen or self._waiting or self._nominations.has_some)
        return UNTIL_NEWS if is_idle else 0.0

    async def tick(self) -> None:
        """Take the next step of each preemption, if the cluster is known well enough."""
        if self._state.not_ready:
            return
        solver = self._solver.within(self._solver.clock() + _CHOOSING_SECONDS)
        for asked in self._turns.ordered(self._due(), lambda each: each.pod.namespace):
            # While victims are chosen for one pod, others get a node, or are rejected again.
            if not solver.is_late and self._asked.get(asked.pod.uid) is asked:
                self._asked.pop(asked.pod.uid)
                with self._turns.of(asked.pod.namespace), self._faults.of(f"pod {asked.pod}"):
                    await self._choose(asked, solver)
        for chosen in list(self._chosen.values()):
            with self._faults.of(f"pod {chosen.found.pod}"):
                await self._evict(chosen)
        busy = self._chosen.keys() | self._evicting.keys()
        await self._nominations.look_after(busy)
        for pod in self._nominations.due(busy):
            with self._faults.of(f"pod {pod}"):
                await self._check(pod)

    def _lowest_priority(self, snapshot: Snapshot) -> float:
        """The lowest priority of a pod with a node: for a pod whose priority is not higher, no pod is evicted."""
        until, lowest = self._lowest
        if self._solver.clock() >= until:
            lowest = min((pod.priority for pod in snapshot.pods.values() if pod.node_name), default=math.inf)
            self._lowest = (self._solver.clock() + _LOWEST_SECONDS, lowest)
        return lowest

    def _due(self) -> list[_Asked]:
        """The pods that were rejected long enough ago, the most important first."""
        now = self._solver.clock()
        due = (each for each in self._asked.values() if each.due <= now)
        return sorted(due, key=lambda each: each.pod.order)

    # --- choose and nominate --------------------------------------------------------------------------------

    async def _choose(self, asked: _Asked, solver: Solver) -> None:
        uid = asked.pod.uid
        self._waiting.pop(uid, None)
        pod = self._pending(uid)
        if pod is None or uid in self._chosen or uid in self._evicting:
            return
        if pod.kept.node:
            if not self._nominations.is_ended(pod):
                await self._carry_on(pod, asked.names)
        elif not pod.nominated_node:
            planned = self._planned()
            wait = self._limits.pause(pod, planned) or self._fruitless.wait(pod, asked.names, planned)
            if not wait:
                await self._choose_anew(pod, asked.names, planned, solver)
            elif wait < math.inf:
                self._ask_later(pod, asked.names, wait)

    def _ask_later(self, pod: Pod, names: Sequence[str], seconds: float) -> None:
        """Choose for a pod later, but look every 10 s whether it has to wait for so long."""
        later = self._solver.clock() + min(seconds, LOOKING_SECONDS)
        self._asked.keep(pod.namespace, pod.uid, _Asked(pod, names, later))

    async def _choose_anew(self, pod: Pod, names: Sequence[str], planned: Snapshot, solver: Solver) -> None:
        began = self._solver.clock()
        self._choosing.add(pod.uid)
        refused: list[EvictionRefusal] = []
        choice = partial(self._choice, pod, names, planned, self._state.snapshot, solver, refused)
        try:
            found = await self._off_loop(Of(pod.namespace, choice))
            is_void = pod.uid not in self._choosing
        finally:
            self._choosing.discard(pod.uid)
        if is_void:
            return
        if found is None and refused:
            self._refuse(pod, names, min(refused, key=lambda each: each.seconds))
        elif found is None:
            self._fruitless.note(pod, names, planned, began, is_complete=not solver.is_late)
        elif not found.victims:
            self._waiting[pod.uid] = found
        else:
            self._limits.plan(pod, [(found.victims, len(found.victims))])
            if await self._is_kept(found):
                self._chosen[pod.uid] = _Chosen(found, names)
                self._nominations.of(pod, found.keeping)
            else:
                self._limits.drop_plan(pod.uid)

    def _refuse(self, pod: Pod, names: Sequence[str], refusal: EvictionRefusal) -> None:
        """No pod may be evicted for a pod now."""
        self._limits.count_refused(refusal)
        logger.info("evictions refused", pod=str(pod), reason=refusal.reason, seconds=round(refusal.seconds, 1))
        self._ask_later(pod, names, refusal.seconds)

    def _choice(
        self,
        pod: Pod,
        names: Sequence[str],
        planned: Snapshot,
        present: Snapshot,
        solver: Solver,
        refused: list[EvictionRefusal],
    ) -> Preemption | None:
        """The best preemption, without victims if a node takes the pod without evictions.

        ``refused`` gets why victims may not be evicted now.
        """
        node = self._taking(pod, names, planned, present, solver.until)
        if node is not None:
            return Preemption(pod, node, ())

        def may_evict(victims: Sequence[Pod]) -> bool:
            refusal = self._limits.refusal(pod, (victims, len(victims)), planned)
            refused.extend([] if refusal is None else [refusal])
            return refusal is None

        return choose(pod, names, planned, solver, may_evict)

    def _taking(
        self, pod: Pod, names: Sequence[str], planned: Snapshot, present: Snapshot, until: float
    ) -> NodeObject | None:
        """A node that takes the pod without evictions; None if there is none, or if that is not known in time."""
        self._decider.follow(present)
        with suppress(TimeoutError, UndecidedError):
            return Planner(self._solver, self._decider).first_taker(pod, names, planned, until)
        return None

    async def _carry_on(self, pod: Pod, names: Sequence[str]) -> None:
        """Go on with a preemption that was begun before, if kube-scheduler takes its node now."""
        found = begun(pod, self._state.snapshot)
        if found is None:
            await self._nominations.give_up(
                pod, f"kube-scheduler takes no pod like this on node {pod.kept.node} any more"
            )
        elif found.node.name in names:
            self._chosen[pod.uid] = _Chosen(found, names)
            self._nominations.of(pod, pod.kept)

    def _planned(self, until: str = "") -> Snapshot:
        """The cluster after all chosen preemptions, and after the terminations that other pods wait for.

        Args:
            until: uid of a pod. Its own preemption, and preemptions that were chosen later, are left out.
        """
        snapshot = self._state.snapshot
        for uid, chosen in self._chosen.items():
            if uid == until:
                break
            snapshot = carried_out(chosen.found, snapshot)
        self._waiting = {uid: found for uid, found in self._waiting.items() if self._pending(uid) is not None}
        for found in self._waiting.values():
            snapshot = carried_out(found, snapshot)
        return snapshot

    async def _is_kept(self, found: Preemption) -> bool:
        """Nominate the pod, unless a plugin refuses that: others of its namespace have got devices meanwhile."""
        pod = found.nominated
        try:
            refused = self._solver.plugins.nominate([pod], self._state.snapshot, self._solver)
        except TimeoutError:
            return False
        if refused is not None:
            logger.info("pod not nominated", pod=str(pod), node=found.node.name, error=str(refused.refusal))
            return False
        self._state.assume_kept([pod])
        before = None
        try:
            before = await self._writes.nominator.keep(found.pod, found.keeping)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("pod not nominated", pod=str(found.pod), node=found.node.name, error=str(error))
        finally:
            if before is None:
                self._state.forget_kept(pod)
        if before is not None:
            self._state.settle_kept(before)
        return before is not None

    # --- evict ----------------------------------------------------------------------------------------------

    async def _evict(self, chosen: _Chosen) -> None:
        """Evict the victims that are still needed, once the watch shows the nomination."""
        found, uid = chosen.found, chosen.found.pod.uid
        pod = self._pending(uid)
        nomination = self._nominations.of(found.pod, found.keeping)
        if pod is not None and not pod.kept.node and self._solver.clock() < nomination.since + _SEEN_SECONDS:
            return
        planned = self._planned(uid)
        if pod is None or pod.kept.node != found.node.name:
            self._drop_choice(uid)
            return
        found = replace(found, pod=pod)
        present, until = self._state.snapshot, self._solver.clock() + _CHOOSING_SECONDS
        taking = await self._off_loop(partial(self._taking, pod, chosen.names, planned, present, until))
        victims = await self._still_needed(found, planned)
        if self._chosen.pop(uid, None) is None:
            return  # Filter has let the pod pass meanwhile.
        refusal = self._limits.refusal(pod, (victims, len(victims)), planned) if victims else None
        self._limits.drop_plan(uid)
        if taking is not None and taking.name != pod.kept.node:
            await self._nominations.give_up(pod, f"the pod fits on node {taking.name} without evictions")
        elif victims is None:
            if nomination.victims and await self._still_needed(found, without_rivals(pod, planned)) is not None:
                return  # The rival has evicted no pod yet, and gives up.
            await self._nominations.give_up(
                pod, f"evictions can't free enough devices on node {pod.kept.node} any more"
            )
        elif refusal is not None:
            self._refuse(pod, chosen.names, refusal)
            await self._nominations.give_up(pod, refusal.reason)
        elif victims and self._pending(uid) is not None:
            await self._begin(victims, pod)

    async def _begin(self, victims: Sequence[Pod], pod: Pod) -> None:
        """Begin to evict. Writes that are slow, for example in admission, go on beside the turns."""
        self._limits.plan(pod, [(victims, len(victims))])  # it counts for the caps until it is done
        evictions = asyncio.create_task(self._evictions(victims, pod))
        self._evicting[pod.uid] = evictions
        evictions.add_done_callback(lambda _: self._evicting.pop(pod.uid))
        await asyncio.wait((evictions,), timeout=_EVICTING_SECONDS)

    async def _evictions(self, victims: Sequence[Pod], pod: Pod) -> None:
        try:
            with self._faults.of(f"pod {pod}"):
                await self._evict_all(victims, pod)
        finally:
            self._limits.drop_plan(pod.uid)

    async def _check(self, pod: Pod) -> None:
        """End a nomination for devices that the pod can't get any more: no filter call may come that shows it.

        Rivals do not count: they give up by themselves.
        """
        found, solver = begun(pod, self._state.snapshot), self._solver.within(self._solver.clock() + _CHOOSING_SECONDS)
        with suppress(AllocatorError, TimeoutError):
            is_lost = found is None
            if found is not None:
                world = without_rivals(pod, self._planned(pod.uid))
                is_lost = await self._off_loop(partial(still_needed, found, world, solver)) is None
            if self._pending(pod.uid) is not None:
                await self._nominations.checked(pod, is_lost=is_lost)

    async def _still_needed(self, found: Preemption, snapshot: Snapshot) -> tuple[Pod, ...] | None:
        solver = self._solver.within(self._solver.clock() + _CHOOSING_SECONDS)
        try:
            return await self._off_loop(partial(still_needed, found, snapshot, solver))
        except (AllocatorError, TimeoutError):
            return None

    async def _evict_all(self, victims: Sequence[Pod], pod: Pod) -> None:
        snapshot = self._state.snapshot
        bound = [victim for victim in victims if victim.node_name]
        self._take_back([victim for victim in victims if not victim.node_name], pod, snapshot)
        failed = await self._writes.evictor.evict(bound, pod, lambda: self._pending(pod.uid) is not None)
        evicted = [victim for victim in bound if victim.uid not in failed]
        nomination = self._nominations.of(pod, pod.kept)
        if evicted and not nomination.victims:
            self._metrics.preempted()
        self._metrics.evicted(len(evicted))
        nomination.victims += len(evicted)
        if evicted:
            nomination.evicted = self._limits.note_evicted(pod, (evicted, len(evicted)), snapshot)
        left = [f"pod {victim}: {failed[victim.uid]}" for victim in victims if victim.uid in failed]
        logger.info("preempted", pod=str(pod), node=pod.kept.node, victims=list(map(str, evicted)), left=left)

    def _take_back(self, waiting: Sequence[Pod], pod: Pod, snapshot: Snapshot) -> None:
        """Take devices that are not ready from pods that wait for them. These pods are scheduled anew."""
        for victim in waiting:
            found, why = (snapshot.claims.get(key) for key in claim_keys(victim)), preempted_by(pod, victim)
            self._writes.give_back(victim, [each for each in found if each is not None and unmet(each)], why)
            self._writes.evictor.tell(victim, Note("Preempted", why, "Preempting"))

    def _pending(self, uid: str) -> Pod | None:
        """The pod as it is now, if it waits for a node and no bind of it is running."""
        pod = self._state.snapshot.pod(uid)
        return None if pod is None or not pod.is_pending or self._is_binding(uid) else pod


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background tasks for both ways to evict pods, which share their limits."""
    state, binder, metrics = handle.state, handle.binder, PreemptionMetrics(handle.registry)
    nominator, evictor = Nominator(handle.api, handle.now), Evictor(handle.api, handle.now, handle.tell)
    caps = handle.settings.evictions
    limits = EvictionLimits(
        EvictionCaps(caps.for_pod, caps.of_namespace, caps.for_namespace), handle.clock, metrics.refused
    )
    others = [
        SchedulerEvictions(state, limits, handle.solver, handle.writer, handle.off_loop),
        KeptOfBound(state, nominator),
    ]
    if not handle.settings.scheduling.preemption:
        return others
    writes = PreemptionWrites(nominator, evictor, binder.give_back)
    preemptor = Preemptor(state, handle.decider, writes, binder.is_binding, metrics, limits, handle.in_background)
    return [*others, preemptor]
