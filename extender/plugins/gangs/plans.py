"""Plans of gangs: each is made off the loop on one snapshot, while the cluster goes on and others are planned."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.likeness import likeness_of
from extender.framework.pods.node_resources import is_counted
from extender.planning.kube_scheduler import likely_nodes
from extender.planning.planner import Planner
from extender.plugins.gangs.gang import Gang
from extender.plugins.gangs.planner import GangPlanner, shared_claims
from extender.plugins.gangs.rejected_members import RejectedMembers
from extender.plugins.gangs.seats import GangPlan, Shortfall
from extender.tools.offload import Of, Offload

ADMITTING_SECONDS: Final = 0.01
"""The longest time in which a look at what is kept for a gang asks plugins, such as quotas with slow selectors."""


class GangPlans:
    """Makes plans.

    Args:
        state: the cluster.
        decider: remembers where pods fit.
        rejected: knows the nodes that schedulers may take.
        written: what was written for pods, by uid, and the watch does not show yet.
        off_loop: where plans are made.
    """

    def __init__(
        self,
        state: ClusterState,
        decider: Decider,
        rejected: RejectedMembers,
        written: Callable[[], Iterable[tuple[str, Keeping]]],
        off_loop: Offload,
    ) -> None:
        self._state = state
        self._decider = decider
        self._rejected = rejected
        self._written = written
        self._off_loop = off_loop

    async def made(self, gang: Gang, solver: Solver) -> GangPlan | Shortfall | None:
        """A plan, or why there is none. None: the plan is void.

        If the nodes that schedulers may take do not suffice, nodes are tried where they would evict others.

        A plan is void if its devices are kept for other pods by now, if one of its pods does not wait any more, or if
        a plugin refuses it by now: other pods of the namespace have got devices meanwhile. Nothing else runs
        between this check and the return. A plan holds if a pod without a gang has taken one of its devices: only the
        member that loses the device gets another place (`extender.plugins.gangs.gang`).

        Args:
            gang: lacks something.
            solver: the decider's, for as long as there is time.
        """
        present = self._state.snapshot
        preempting = gang.free if any(map(self._rejected.with_evictions, gang.free)) else ()
        names = self._names(present, preempting, with_evictions=False)
        by = solver.while_wanted(partial(self._waits, gang))
        planner = GangPlanner(self._with_written(present), Planner(by, self._decider), names)
        found = await self._off_loop(Of(gang.key.namespace, partial(self._planned, planner, gang, present)))
        if isinstance(found, Shortfall) and preempting:
            planner = replace(planner, names_of=self._names(present, preempting, with_evictions=True))
            found = await self._off_loop(Of(gang.key.namespace, partial(self._planned, planner, gang, present)))
        is_void = not isinstance(found, Shortfall) and self._is_void(found, planner.snapshot)
        return None if is_void else found

    def kind(self, gang: Gang) -> Hashable | None:
        """Equal for gangs that get the same answer: after one finds no place, the next finds none. None: unlike any."""
        if gang.bound or gang.kept or shared_claims(gang.free):
            return None
        snapshot, names, evictions = self._state.snapshot, self._rejected.names, self._rejected.with_evictions
        kinds = sorted(hash((likeness_of(pod, snapshot), names(pod), evictions(pod))) for pod in gang.free)
        return gang.size, gang.topology, tuple(kinds)

    def refused_now(self, kept: Sequence[Pod]) -> str:
        """Why a plugin refuses by now what is kept for pods of a gang; empty: it does not, or that is not soon known.

        Others have got devices while the plan was written, or a quota was lowered.
        """
        if not kept:
            return ""
        solver = self._decider.solver
        by = solver.within(solver.clock() + ADMITTING_SECONDS)
        try:
            refused = by.plugins.nominate(kept, self._state.snapshot, by)
        except TimeoutError:
            return ""
        return "" if refused is None else str(refused.refusal)

    def _waits(self, gang: Gang) -> bool:
        """Whether a pod of a gang is still there that lacks something. Threads may ask."""
        snapshot = self._state.snapshot
        return any(snapshot.pod(pod.uid) is not None for pod in gang.free)

    def _planned(self, planner: GangPlanner, gang: Gang, present: Snapshot) -> GangPlan | Shortfall:
        self._decider.follow(present)
        found = planner.plan(gang)
        if not isinstance(found, Shortfall):
            self._is_refused(found, planner.snapshot)  # what is measured here is remembered
        return found

    def _is_void(self, plan: GangPlan, before: Snapshot) -> bool:
        """Whether a pod of a plan waits no more, or something of it is kept for others, since the plan was begun."""
        now = self._with_written(self._state.snapshot)
        pods = [now.pod(seat.pod.uid) for seat in plan]
        if any(pod is None or not pod.is_pending or pod.kept.node for pod in pods):
            return True
        # What others got meanwhile counts for what devices take of their nodes.
        counts = is_counted(now, self._decider.solver.features)
        if counts and not _pods_with_devices(now) <= _pods_with_devices(before):
            return True
        if self._is_refused(plan, now):
            return True
        devices = (device for seat in plan for device in seat.keeping.devices)
        return any(now.kept.users.get(each) != before.kept.users.get(each) for each in devices)

    def _is_refused(self, plan: GangPlan, snapshot: Snapshot) -> bool:
        """Whether a plugin refuses what a plan keeps for its pods: their namespace may exceed a quota with it."""
        solver = self._decider.solver
        try:
            return bool(plan) and solver.plugins.nominate([seat.pod for seat in plan], snapshot, solver) is not None
        except TimeoutError:
            return True

    def _names(
        self, snapshot: Snapshot, preempting: Sequence[Pod], *, with_evictions: bool
    ) -> Callable[[Pod], Sequence[str]]:
        """The nodes of each pod: those that filter was asked about, or those that kube-scheduler would take.

        Args:
            snapshot: the cluster.
            preempting: the pods of a gang for which schedulers evict others for want of CPU. A pod of these that its
                scheduler has not asked about yet may go where the others may.
            with_evictions: they may also go where evictions make room.
        """
        likely, uids = likely_nodes(snapshot), {pod.uid for pod in preempting}

        def told(pod: Pod) -> Sequence[str] | None:
            asked = self._rejected.names(pod)
            more = self._rejected.with_evictions(pod) if with_evictions and pod.uid in uids else ()
            return None if asked is None else tuple(dict.fromkeys((*asked, *more)))

        of_others = tuple({name: None for pod in preempting for name in told(pod) or ()})

        def names(pod: Pod) -> Sequence[str]:
            asked, may = told(pod), likely(pod)
            if asked is None and pod.uid not in uids:
                return may
            known = set(may)
            return [name for name in (of_others if asked is None else asked) if name in known]

        return names

    def _with_written(self, snapshot: Snapshot) -> Snapshot:
        """The cluster in which the watch shows what was written."""
        for uid, keeping in self._written():
            pod = snapshot.pod(uid)
            if pod is not None and pod.is_pending:
                snapshot = snapshot.with_pod(replace(pod, kept=keeping, nominated_node=keeping.node))
        return snapshot


def _pods_with_devices(snapshot: Snapshot) -> set[str]:
    """The uids of pods for which devices are kept by name."""
    return {uid for uids in snapshot.kept.users.values() for uid in uids}
