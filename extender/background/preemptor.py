"""Preemptor: evicts pods of lower priority for a pod that fits nowhere for want of devices.

A preemption has four steps. A step begins when the snapshot shows what the step before has written:

1. The node and the victims are chosen.
2. The pod is nominated, so that its devices are kept from pods of equal or lower priority. The nomination names the
   devices and the victims.
3. The choice is checked on the newest snapshot, and the victims that are still needed are evicted. If the pod fits
   without evictions meanwhile, the nomination ends, and no pod is evicted.
4. The nomination ends when the pod is bound or gone, or `KEPT_SECONDS` after its victims have gone.

A process that starts knows only the nomination, and nothing else of earlier steps. When the pod is rejected again, the
process carries on with the victims that the nomination names. So two processes never choose different victims for one
pod.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from allocator import AllocatorError, Recent
from extender.background.fitting import UndecidedError, fitting_node
from extender.background.fruitless import Fruitless
from extender.background.task import BackgroundTask, Rejection
from extender.decisions.evaluate import Decider
from extender.decisions.solver import Solver
from extender.kube.api import OutcomeUnknownError
from extender.kube.raw import revision
from extender.observe.preemption_metrics import PreemptionMetrics
from extender.offload import Offload
from extender.preemption.choice import (
    Preemption,
    begun,
    carried_out,
    choose,
    holders_near,
    still_needed,
    without_rivals,
)
from extender.preemption.outcome import is_in_vain
from extender.state.objects import NodeObject, Pod
from extender.state.pod_conditions import Keeping
from extender.state.snapshot import Snapshot
from extender.state.state import ClusterState
from extender.writes.claim_json import WriteRefusedError
from extender.writes.events import Note
from extender.writes.evictions import Evictor

logger = structlog.get_logger()

KEPT_SECONDS: Final = 60.0
"""A nomination lasts this time after the victims have gone: by then a scheduler has tried the pod, or never will."""

PATIENCE_SECONDS: Final = 0.5
"""Time from filter's answer to the choice. Meanwhile kube-scheduler may say that it evicts pods on another node."""

_CHOOSING_SECONDS: Final = 0.5
"""The longest time of all choices in one turn, and of one check of a choice: the turns of other tasks wait."""

_MOST_ENDED: Final = 1024
"""At most this number of nominations is remembered that dra-extender has ended, until the watch shows their end."""

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


@dataclass(slots=True)
class _Kept:
    """A pod for which devices are kept.

    Attributes:
        keeping: the devices that are kept, their node, and the victims.
        since: when the victims were chosen, in seconds of the clock.
        victims: how many pods were evicted for it.
        free_since: since when no terminating pod holds devices that the node reaches; None while one does.
    """

    pod: Pod
    keeping: Keeping
    since: float
    victims: int = 0
    free_since: float | None = None


class Preemptor(BackgroundTask):
    """Preempts for one pod after the other, the pod with the highest priority first.

    Args:
        state: the cluster.
        decider: remembers where pods fit. Its solver decides which pods are evicted, and has the faults, which get
            unexpected errors.
        evictor: writes nominations and evictions.
        is_binding: whether a bind of the pod with this uid is running.
        tell: writes an Event on a victim.
        metrics: counts preemptions and victims.
        off_loop: runs the choice of victims in a thread.
    """

    def __init__(
        self,
        state: ClusterState,
        decider: Decider,
        evictor: Evictor,
        is_binding: Callable[[str], bool],
        tell: Callable[[Pod, Note], None],
        metrics: PreemptionMetrics,
        off_loop: Offload,
    ) -> None:
        self._state = state
        self._decider = decider
        self._solver = solver = decider.solver
        self._evictor = evictor
        self._is_binding = is_binding
        self._tell = tell
        self._metrics = metrics
        self._faults = solver.faults
        self._off_loop = off_loop
        self._fruitless = Fruitless(state.changes_since, solver.clock)
        self._asked: dict[str, _Asked] = {}
        self._chosen: dict[str, _Chosen] = {}
        self._waiting: dict[str, Preemption] = {}
        self._kept: dict[str, _Kept] = {}
        self._ended: Recent[int] = Recent(_MOST_ENDED)

    def on_rejected(self, rejection: Rejection) -> None:
        """Remember the pod. The latest call counts: a scheduler asks about a nominated node before all others."""
        may_preempt = rejection.sent.may_preempt and not rejection.result.is_over_quota
        if may_preempt and not rejection.result.failed:
            due = self._solver.clock() + PATIENCE_SECONDS
            self._asked[rejection.sent.uid] = _Asked(rejection.sent, rejection.names, due)

    def on_passed(self, pod: Pod) -> None:
        """The pod has a node. No more pods are evicted for it."""
        for each in (self._asked, self._waiting, self._chosen):
            each.pop(pod.uid, None)

    def on_victims(self, pod: Pod) -> None:
        """The pod's scheduler makes room itself."""
        self._asked.pop(pod.uid, None)

    async def tick(self) -> None:
        """Take the next step of each preemption."""
        solver = self._solver.within(self._solver.clock() + _CHOOSING_SECONDS)
        for asked in self._due():
            if not solver.is_late:
                del self._asked[asked.pod.uid]
                with self._faults.of(f"pod {asked.pod}"):
                    await self._choose(asked, solver)
        for chosen in list(self._chosen.values()):
            with self._faults.of(f"pod {chosen.found.pod}"):
                await self._evict(chosen)
        for kept in self._all_kept():
            with self._faults.of(f"pod {kept.pod}"):
                await self._look_after(kept)

    def _due(self) -> list[_Asked]:
        """The pods that were rejected long enough ago, the most important first."""
        now = self._solver.clock()
        due = (each for each in self._asked.values() if each.due <= now)
        return sorted(due, key=lambda each: (-each.pod.priority, each.pod.created, each.pod.uid))

    # --- choose and nominate --------------------------------------------------------------------------------

    async def _choose(self, asked: _Asked, solver: Solver) -> None:
        uid = asked.pod.uid
        self._waiting.pop(uid, None)
        pod = self._pending(uid)
        if pod is None or uid in self._chosen:
            return
        if pod.kept.node:
            if revision(pod.resource_version) > (self._ended.find(uid) or 0):
                await self._carry_on(pod, asked.names)
        elif not pod.nominated_node:
            planned = self._planned()
            wait = self._fruitless.wait(pod, asked.names, planned)
            if not wait:
                await self._choose_anew(pod, asked.names, planned, solver)
            elif wait < math.inf:
                self._asked[uid] = replace(asked, due=self._solver.clock() + wait)

    async def _choose_anew(self, pod: Pod, names: Sequence[str], planned: Snapshot, solver: Solver) -> None:
        began = self._solver.clock()
        found = await self._off_loop(partial(self._choice, pod, names, planned, self._state.snapshot, solver))
        if found is None:
            self._fruitless.note(pod, names, planned, began, is_complete=not solver.is_late)
        elif not found.victims:
            self._waiting[pod.uid] = found
        elif await self._is_kept(found):
            self._chosen[pod.uid] = _Chosen(found, names)
            self._kept[pod.uid] = _Kept(pod, found.keeping, self._solver.clock())

    def _choice(
        self, pod: Pod, names: Sequence[str], planned: Snapshot, present: Snapshot, solver: Solver
    ) -> Preemption | None:
        """The best preemption, without victims if a node takes the pod without evictions."""
        node = self._taking(pod, names, planned, present, solver.until)
        return choose(pod, names, planned, solver) if node is None else Preemption(pod, node, ())

    def _taking(
        self, pod: Pod, names: Sequence[str], planned: Snapshot, present: Snapshot, until: float
    ) -> NodeObject | None:
        """A node that takes the pod without evictions; None if there is none, or if that is not known in time."""
        self._decider.follow(present)
        with suppress(TimeoutError, UndecidedError):
            return fitting_node(pod, names, planned, self._decider, until)
        return None

    async def _carry_on(self, pod: Pod, names: Sequence[str]) -> None:
        """Go on with a preemption that was begun before, if kube-scheduler takes its node now."""
        found = begun(pod, self._state.snapshot)
        if found is None:
            await self._give_up(pod, f"kube-scheduler takes no pod like this on node {pod.kept.node} any more")
        elif found.node.name in names:
            self._chosen[pod.uid] = _Chosen(found, names)
            self._kept.setdefault(pod.uid, _Kept(pod, pod.kept, self._solver.clock()))

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
        try:
            await self._evictor.keep(found.pod, found.keeping)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("pod not nominated", pod=str(found.pod), node=found.node.name, error=str(error))
            return False
        return True

    # --- evict ----------------------------------------------------------------------------------------------

    async def _evict(self, chosen: _Chosen) -> None:
        """Evict the victims that are still needed, once the watch shows the nomination."""
        found, uid = chosen.found, chosen.found.pod.uid
        pod = self._pending(uid)
        if pod is not None and not pod.kept.node and self._solver.clock() < self._kept[uid].since + _SEEN_SECONDS:
            return
        planned = self._planned(uid)
        if pod is None or pod.kept.node != found.node.name:
            self._chosen.pop(uid, None)
            return
        found = replace(found, pod=pod)
        present, until = self._state.snapshot, self._solver.clock() + _CHOOSING_SECONDS
        taking = await self._off_loop(partial(self._taking, pod, chosen.names, planned, present, until))
        victims = await self._still_needed(found, planned)
        if self._chosen.pop(uid, None) is None:
            return  # Filter has let the pod pass meanwhile.
        if taking is not None and taking.name != pod.kept.node:
            await self._give_up(pod, f"the pod fits on node {taking.name} without evictions")
        elif victims is None:
            if self._kept[uid].victims and await self._still_needed(found, without_rivals(pod, planned)) is not None:
                return  # The rival has evicted no pod yet, and gives up.
            await self._give_up(pod, f"evictions can't free enough devices on node {pod.kept.node} any more")
        elif victims and self._pending(uid) is not None:
            await self._evict_all(victims, pod)

    async def _still_needed(self, found: Preemption, snapshot: Snapshot) -> tuple[Pod, ...] | None:
        solver = self._solver.within(self._solver.clock() + _CHOOSING_SECONDS)
        try:
            return await self._off_loop(partial(still_needed, found, snapshot, solver))
        except (AllocatorError, TimeoutError):
            return None

    async def _evict_all(self, victims: Sequence[Pod], pod: Pod) -> None:
        failed = await self._evictor.evict(victims, pod)
        evicted = [victim for victim in victims if victim.uid not in failed]
        text = f"preempted by pod {pod} of priority {pod.priority}, which needs the devices on node {pod.kept.node}"
        for victim in evicted:
            self._tell(victim, Note("Preempted", text, "Preempting"))
        kept = self._kept[pod.uid]
        if evicted and not kept.victims:
            self._metrics.preempted()
        self._metrics.evicted(len(evicted))
        kept.victims += len(evicted)
        left = [f"pod {victim}: {failed[victim.uid]}" for victim in victims if victim.uid in failed]
        logger.info("preempted", pod=str(pod), node=pod.kept.node, victims=list(map(str, evicted)), left=left)

    # --- until the pod is bound -------------------------------------------------------------------------------

    def _all_kept(self) -> list[_Kept]:
        """All pods for which devices are kept, also pods that another process has nominated."""
        snapshot = self._state.snapshot
        for name in snapshot.nominated:
            for pod in snapshot.nominated_to(name):
                if pod.kept.node and pod.uid not in self._kept:
                    self._kept[pod.uid] = _Kept(pod, pod.kept, self._solver.clock())
        return list(self._kept.values())

    async def _look_after(self, kept: _Kept) -> None:
        snapshot, uid, now = self._state.snapshot, kept.pod.uid, self._solver.clock()
        pod = snapshot.pod(uid)
        if pod is None or not pod.is_pending:
            del self._kept[uid]
            if pod is not None and kept.victims:
                self._count_outcome(kept, pod)
            return
        if uid in self._chosen or self._is_binding(uid):
            return
        if not pod.kept.node:
            self._forget(uid)
        elif self._is_waiting(pod, snapshot):
            kept.free_since = None
        elif kept.free_since is None:
            kept.free_since = now
        elif now - kept.free_since > KEPT_SECONDS:
            await self._give_up(pod, "the pod was not bound in time")

    def _is_waiting(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether a pod near the kept node is terminating."""
        node = snapshot.nodes.get(pod.kept.node)
        return node is not None and any(each.deleting for each in holders_near(node, snapshot, self._solver.features))

    def _count_outcome(self, kept: _Kept, pod: Pod) -> None:
        if pod.node_name == kept.keeping.node:
            self._metrics.took(self._solver.clock() - kept.since)
        elif pod.node_name:
            self._count_unused(kept)

    def _count_unused(self, kept: _Kept) -> None:
        if is_in_vain(kept.pod, kept.keeping, self._planned()):
            self._metrics.in_vain(kept.victims)

    async def _give_up(self, pod: Pod, why: str) -> None:
        """End the nomination. The write wakes the pod's scheduler. Once the pod is rejected, it may preempt again."""
        self._forget(pod.uid)
        try:
            before = await self._evictor.end(pod, why)
            if before is not None:
                self._ended.keep(pod.uid, revision(before.resource_version))
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("nomination not ended", pod=str(pod), error=str(error))

    def _forget(self, uid: str) -> None:
        """Count that the pod does not take the devices of its victims."""
        kept = self._kept.pop(uid, None)
        if kept is not None:
            self._count_unused(kept)

    def _pending(self, uid: str) -> Pod | None:
        """The pod as it is now, if it waits for a node and no bind of it is running."""
        pod = self._state.snapshot.pod(uid)
        return None if pod is None or not pod.is_pending or self._is_binding(uid) else pod
