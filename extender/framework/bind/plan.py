"""Plans of binds, decided in the present snapshot; and whether a decision still holds in a later one."""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from allocator import Allocation, AllocationResult, AllocatorError, InvalidClaimError, PoolId, Reason, SelectorError
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys, group_of
from extender.cluster.double_allocations import DoubleAllocations, double_allocation
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import ClaimObject, is_immediate
from extender.cluster.objects.extended_resources import ExtendedClaim
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.resources import ClaimResources
from extender.cluster.snapshot import Snapshot, pools_of
from extender.cluster.timeline import Reach
from extender.cluster.writes.events import Note
from extender.cluster.writes.reservations import Reservation, is_reserved
from extender.framework.bind_errors import BindError, DoubleAllocationError, PluginRefusesError
from extender.framework.cluster_with_kept import NominationReads, is_local
from extender.framework.cycle import Cycle, found_at_hand, kept_elsewhere, open_cycle
from extender.framework.decisions.solver import No, Solver
from extender.framework.decisions.verdict import UNKNOWN_NODE
from extender.framework.held_devices import confirmed, found_on, nominated_near
from extender.framework.passed_over_nodes import LateNodes, RestlessNodes
from extender.framework.plugin import NodeOffer, WaitingPlugin
from extender.framework.pods.claims import Blocked, PodClaims, foreseen
from extender.framework.pods.extended_resources import Needs, request_nouns
from extender.framework.pods.node_resources import ShortageError
from extender.kube.api import ObjectKey
from extender.tools.offload import Of, Offload, at_once

MOST_TRIES: Final = 5
"""The search is made in a thread at most this number of times, if something that it depends on changes meanwhile."""

LAST_SECONDS: Final = 0.01
"""If one of these searches took no more of a processor, a last one is made on the event loop, where nothing changes
meanwhile. The time until a search had its turn does not count: it is long when many pods are bound at once, and just
then binds take the devices from each other."""


QUICK_SECONDS: Final = 0.003
"""A search that took no more of a processor is made on the event loop at once, not in a thread again."""

NOTHING_OF_OURS: Final = AllocationResult()
"""What our search finds for a claim that a controller serves alone."""


@dataclass(frozen=True, slots=True)
class BindTimes:
    """The times that binds may take, and that their searches take.

    Attributes:
        deadline: seconds of a call, less than the scheduler's timeout.
        binding_timeout: how long a claim may wait for binding conditions after its allocation.
        worked: the seconds that the present thread has had of a processor.
    """

    deadline: float
    binding_timeout: timedelta
    worked: Callable[[], float] = time.thread_time


@dataclass(frozen=True, slots=True)
class Reports:
    """Who is told of what happens in binds.

    Attributes:
        double_allocations: told of every double allocation that is found.
        allocated: told of each pod whose claims were allocated.
        tell: writes an Event on a pod.
    """

    double_allocations: DoubleAllocations
    allocated: Callable[[Pod], None]
    tell: Callable[[Pod, Note], None]


@dataclass(frozen=True, slots=True)
class BindPlan:
    """The plan of a bind: what is to be written.

    Attributes:
        reservations: in the order of the writes.
        stale: special claims of earlier binds, which are deleted first.
        status: the pod's new status of its special claim.
        allocates: claims are allocated for the pod now; a plugin may have written that already.
        resources: the pod's new status of what its claims take of the node; None: that is not counted.
    """

    reservations: tuple[Reservation, ...]
    stale: tuple[ClaimObject, ...]
    status: ExtendedClaim | None
    allocates: bool
    resources: tuple[ClaimResources, ...] | None = None


class BindPlanner:
    """Decides what binds write.

    Attributes:
        late: the nodes on which binds were late.

    Args:
        worked: as `BindTimes.worked`. The others are those of `extender.framework.bind.bind.Binder`.
    """

    def __init__(
        self,
        state: ClusterState,
        solver: Solver,
        reports: Reports,
        plugins: Sequence[WaitingPlugin],
        worked: Callable[[], float],
    ) -> None:
        self._state = state
        self._solver = replace(solver, policy=solver.policy.of_one_node())
        self._worked = worked
        self._double_allocations = reports.double_allocations
        self._plugins = plugins
        self.late = LateNodes(solver.clock, RestlessNodes(state, solver.clock))

    def awaited(self, pod: Pod) -> Collection[str]:
        """The names of those that `plan` waits for."""
        return frozenset(name for each in self._plugins for name in each.awaited(pod))

    async def plan(
        self,
        pod: Pod,
        node_name: str,
        made: list[Reservation],
        until: float,
        off_loop: Offload,
        *,
        foresees: bool = False,
    ) -> BindPlan:
        """The plan of a bind: what is to be written. From here on, the new allocations are assumed.

        A short search runs here, and nothing else runs between it and the assumed allocations. A longer one runs in a
        thread. Its result counts if nothing that it depends on has changed meanwhile, or if its devices still suit: a
        large pool may change more often than it can be searched. Nothing else runs between that check and the assumed
        allocations. Where pods are nominated, a search may depend on all that changes; so a short one is made on the
        event loop in the end.

        Args:
            pod: the pod to bind.
            node_name: the node to bind it to.
            made: gets a claim whose allocation is void, because it is to be given back.
            until: when the search ends, by the loop's clock.
            off_loop: where devices are searched.
            foresees: decide for claims that are not made yet by their templates (`Reservation.is_to_come`).

        Raises:
            BindError: the pod can't be bound to the node.
        """
        cycle, node = self._opened(pod, node_name, made, foresees=foresees)
        quickest = math.inf
        for _ in range(MOST_TRIES):
            decided, seconds = await self._found(cycle, node, until, off_loop)
            if seconds is None or self._holds(cycle, node):
                return await self._decided(pod, cycle, node, decided)
            quickest, before = min(quickest, seconds), cycle
            cycle, node = self._opened(pod, node_name, made, foresees=foresees)
            confirmed = self._confirmed(cycle, node, before, decided)
            if confirmed is not None:
                return await self._decided(pod, cycle, node, confirmed)
            if quickest <= QUICK_SECONDS:
                break
        if quickest <= LAST_SECONDS:
            decided, _ = await self._found(cycle, node, until, at_once)
            return await self._decided(pod, cycle, node, decided)
        self.late.note(cycle, node)
        raise BindError("its devices change all the time", node_name)

    def _holds(self, cycle: Cycle, node: NodeObject) -> bool:
        """Whether a decision that was made in a thread still holds."""
        reach = self._state.since(cycle.snapshot.version)
        return still_holds(cycle, node, self._state.snapshot, reach) and not self._state.not_ready

    async def _decided(self, pod: Pod, cycle: Cycle, node: NodeObject, found: Allocation) -> BindPlan:
        """The plan with devices that suit at present. The new allocations are assumed."""
        plugins, now = self._concerned(cycle.claims), self._state.snapshot
        for each in plugins:
            if problem := each.reserve(cycle.claims):
                raise BindError(problem, node.name)
        needs = cycle.claims.on(node)
        if isinstance(needs, Reason):
            raise BindError(needs.in_words(), node.name)
        _check_planned(cycle, NodeOffer(node, needs, found), now)
        plan = _plan_of(cycle.pod, cycle.claims, needs, found, now)
        plan = self._assumed(self._promised(plan, replace(cycle, snapshot=now), node, needs, found), pod)
        return await self._pre_bound(plan, pod, node, cycle.claims, plugins) if plugins else plan

    def _concerned(self, claims: PodClaims) -> list[WaitingPlugin]:
        """The plugins that are about some of a pod's claims."""
        return [each for each in self._plugins if any(getattr(claims, name) for name in each.of_claims)]

    def _opened(self, pod: Pod, node_name: str, made: list[Reservation], *, foresees: bool) -> tuple[Cycle, NodeObject]:
        """The pod's cycle in the present snapshot, and the node."""
        if self._state.not_ready:
            raise BindError(f"not ready: {self._state.not_ready}")
        snapshot = self._state.snapshot
        node = snapshot.nodes.get(node_name)
        if node is None:
            raise BindError(UNKNOWN_NODE.in_words(), node_name)
        if refused := self._solver.plugins.pre_enqueue(pod, snapshot):
            raise BindError(str(refused.refusal))
        if pod.kept.node not in ("", node_name) and self._solver.plugins.keeper(pod, snapshot):
            raise BindError(kept_elsewhere(pod.kept.node).in_words(), node_name)
        cycle = open_cycle(pod, snapshot, self._solver)
        if isinstance(cycle, Cycle) and (plugins := self._concerned(cycle.claims)):
            cycle = open_cycle(pod, _ready(cycle.claims, snapshot, plugins), self._solver)
        if isinstance(cycle, Blocked) and foresees and (found := foreseen(pod, snapshot)) is not None:
            cycle = open_cycle(found.pod, found.snapshot, self._solver)
        if not isinstance(cycle, Blocked):
            return cycle, node
        if cycle.void is None:
            raise BindError(cycle.reason.in_words())
        made += to_give_back(pod, [cycle.void], snapshot)
        self._double_allocations.found(cycle.void, double_allocation(snapshot, cycle.void.claim.uid), snapshot)
        raise DoubleAllocationError(cycle.reason.in_words())

    async def _found(
        self, cycle: Cycle, node: NodeObject, until: float, off_loop: Offload
    ) -> tuple[Allocation, float | None]:
        """What the pod's claims would get: here if that takes a millisecond at most, else in a thread.

        Returns:
            The allocation, and the seconds that a search in a thread took of a processor; None: it was found here.

        Raises:
            BindError: nothing, and why; or there was too little time.
        """
        left, solver = until - asyncio.get_running_loop().time(), cycle.solver
        ends = solver.clock() + left

        def search() -> tuple[Allocation | No, float]:
            began = self._worked()
            return found_on(node, cycle.pod, cycle.snapshot, solver.within(ends)), self._worked() - began

        try:
            at_hand = found_at_hand(cycle, node) if left > 0 else None
            found, seconds = await off_loop(Of(cycle.pod.namespace, search)) if at_hand is None else (at_hand, None)
        except (InvalidClaimError, SelectorError) as error:
            raise BindError(error.told(request_nouns(cycle.pod))) from error
        except TimeoutError as error:
            self.late.note(cycle, node)
            raise BindError(f"out of time: devices of node {node.name} were still looked for") from error
        if isinstance(found, No):
            raise BindError(found.reason.in_words(request_nouns(cycle.pod)), node.name)
        return found, seconds

    def _confirmed(self, cycle: Cycle, node: NodeObject, before: Cycle, found: Allocation) -> Allocation | None:
        """The devices that were found, in the present snapshot; None: they have to be searched again."""
        try:
            return confirmed(cycle, node, before, found)
        except (AllocatorError, TimeoutError):
            return None  # the search meets it again, and tells it

    def _promised(self, plan: BindPlan, cycle: Cycle, node: NodeObject, needs: Needs, found: Allocation) -> BindPlan:
        """The plan with what the pod takes of the node. It counts from here on, so that no other bind takes it."""
        if not cycle.counts_resources:
            return plan
        try:
            resources = cycle.resources(node, needs, found)
        except ShortageError as shortage:
            raise BindError(str(shortage), node.name) from shortage
        self._state.promise(cycle.pod, node.name, cycle.pod.resources.with_claims(resources))
        return replace(plan, resources=resources)

    async def _pre_bound(
        self, plan: BindPlan, pod: Pod, node: NodeObject, claims: PodClaims, plugins: Sequence[WaitingPlugin]
    ) -> BindPlan:
        """The plan with what plugins have made of it. If one refuses, nothing is assumed any more.

        Raises:
            BindError: one refuses.
        """
        is_done = False
        try:
            for each in plugins:
                plan = replace(plan, reservations=await each.pre_bind(pod, node, claims, plan.reservations))
            is_done = True
        finally:
            if not is_done:
                self._state.give_up(pod)
                for reservation in plan.reservations:
                    self._state.forget(reservation.uid)
        return self._assumed(plan, pod)

    def _assumed(self, plan: BindPlan, pod: Pod) -> BindPlan:
        for each in plan.reservations:
            if each.allocates:
                self._state.assume(each.uid, each.allocation, pod.uid, each.claim.claim.spec)
        return plan


def _ready(claims: PodClaims, snapshot: Snapshot, plugins: Sequence[WaitingPlugin]) -> Snapshot:
    """The cluster in which a bind decides. What plugins ask for later counts as agreed there."""
    for each in plugins:
        snapshot = each.ready_to_bind(claims, snapshot)
    return snapshot


def _check_planned(cycle: Cycle, offer: NodeOffer, now: Snapshot) -> None:
    """Ask the plugins about a node, and what a pod would get there.

    Raises:
        PluginRefusesError: one refuses.
        BindError: there was not enough time.
    """
    plugins = cycle.solver.plugins
    try:
        refused = plugins.reserve(cycle.pod, cycle.claims, offer, now, cycle.solver)
    except TimeoutError as error:
        raise BindError(f"out of time: {error}") from error
    if refused is not None:
        raise PluginRefusesError(str(refused.refusal), plugins.events[refused.by])


def verify(claim: ClaimObject, pod: Pod, snapshot: Snapshot, solver: Solver) -> None:
    """Ask the plugins about an allocation that was written for a pod.

    Raises:
        PluginRefusesError: one refuses, so the allocation is to be given back.
        BindError: there was not enough time.
    """
    try:
        refused = solver.plugins.verify(claim, pod, snapshot, solver)
    except TimeoutError as error:
        raise BindError(f"out of time: {error}") from error
    if refused is not None:
        raise PluginRefusesError(str(refused.refusal), solver.plugins.events[refused.by])


def to_give_back(pod: Pod, claims: Iterable[ClaimObject], snapshot: Snapshot) -> list[Reservation]:
    """Reservations that give the claims back when they are undone."""
    found = [(each, each.claim.allocation, group_of(pod, each.claim, snapshot)) for each in claims]
    return [
        Reservation(each, pod, allocation or AllocationResult(), allocates=False, frees=True, group=group)
        for each, allocation, group in found
        if allocation is not None or each.special_of
    ]


def _plan_of(pod: Pod, claims: PodClaims, needs: Needs, decided: Allocation, snapshot: Snapshot) -> BindPlan:
    """Claims that are allocated already come first, then those to be allocated, a special claim last."""
    there = (*claims.allocated, *([] if needs.kept is None else [needs.kept]))
    new = [(each.claim, NOTHING_OF_OURS) for each in claims.negotiated if not each.has_rest]
    new += zip(needs.pending, decided.results, strict=True)
    reservations = (*_reserved(pod, there, snapshot), *(_allocated(pod, *each, snapshot) for each in new))
    return BindPlan(reservations, needs.stale, needs.status, any(each.allocates for each in reservations))


def _allocated(pod: Pod, claim: ClaimObject, allocation: AllocationResult, snapshot: Snapshot) -> Reservation:
    """The reservation of a claim that is to be allocated. Other pods of a PodGroup rely on the allocation at once."""
    group = group_of(pod, claim.claim, snapshot)
    return Reservation(claim, pod, allocation, allocates=True, frees=group is None, group=group)


def _reserved(pod: Pod, claims: Iterable[ClaimObject], snapshot: Snapshot) -> Iterator[Reservation]:
    for each in claims:
        if each.claim.allocation is not None:
            resumed, group = each.claim.uid in snapshot.assumed, group_of(pod, each.claim, snapshot)
            is_own = group is None and not is_immediate(each.claim)
            frees = is_own and (resumed or is_reserved(each.claim, pod.uid))
            yield Reservation(each, pod, each.claim.allocation, allocates=resumed, frees=frees, group=group)


def still_holds(cycle: Cycle, node: NodeObject, now: Snapshot, reach: Reach) -> bool:
    """Whether a decision about a cycle on a node still holds; False may be wrong, True never is.

    Args:
        cycle: with the snapshot of the decision.
        node: as it was then.
        now: a later snapshot.
        reach: of all changes in between.
    """
    before = cycle.snapshot
    if now.version == before.version:
        return True
    if reach.changed is None:
        return False
    changed = {topic: keys for topic, keys in reach.changed.items() if topic.alters_decisions}
    claims, pools, pods = _claims(cycle), _pools(cycle, node, now), {cycle.pod.key}
    for snapshot in (before, now):
        nominated = _of_nominated(cycle, node, snapshot)
        if nominated is None:
            return not changed
        claims |= nominated.claims
        pods |= nominated.pods
    reads: Mapping[Topic, Collection[object]] = {
        Topic.NODE: {node.name},
        Topic.POOL: pools,
        Topic.CLAIM: claims,
        Topic.POD: pods,
    }
    return all(topic in reads and keys.isdisjoint(reads[topic]) for topic, keys in changed.items())


def _of_nominated(cycle: Cycle, node: NodeObject, snapshot: Snapshot) -> NominationReads | None:
    """The reads of nominated devices that a decision depends on; None if it also depends on other pods."""
    if not snapshot.nominated:
        return NominationReads()
    if snapshot.device_quotas and any(uid != cycle.pod.uid for uid in snapshot.kept.unnamed):
        return None  # what they get elsewhere counts in quotas
    others = [pod for pod in nominated_near(node, snapshot, cycle.solver.features) if pod.uid != cycle.pod.uid]
    asking = [cycle.pod] if cycle.pod.kept.victims else []
    if not (others or asking):
        return NominationReads()
    is_near = all(pod.kept.devices and pod.nominated_node == node.name for pod in others)
    if not is_near or cycle.counts_resources or not is_local(others, snapshot):
        return None
    views = snapshot.inventory.for_node(node.node, cycle.solver.features)
    return NominationReads.of((*asking, *others), (view.id for view in views), snapshot)


def _claims(cycle: Cycle) -> set[ObjectKey]:
    found = cycle.claims
    return {*claim_keys(cycle.pod), *(each.key for each in (*found.allocated, *found.pending, *found.special.made))}


def _pools(cycle: Cycle, node: NodeObject, now: Snapshot) -> set[PoolId]:
    """The pools that the node sees or saw, and those of allocated claims."""
    views = (
        view.id for each in (cycle.snapshot, now) for view in each.inventory.for_node(node.node, cycle.solver.features)
    )
    held = (each.claim.allocation for each in cycle.claims.allocated)
    return {*views, *(pool for allocation in held if allocation is not None for pool in pools_of(allocation))}
