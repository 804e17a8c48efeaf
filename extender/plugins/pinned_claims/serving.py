"""The claims of a pinned pod: allocated for its node, checked, and reserved for the pod.

A bind checks what it has written before its Binding. A pinned pod has no Binding: kubelet starts the pod as soon as its
claims are reserved. So a claim is allocated first, and then reserved in the very version that was checked.

kube-controller-manager reserves allocated claims for pods that have a node, perhaps before the check. If the check then
fails, the claim is taken back from the pod, unless kubelet has started it.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

import structlog

from allocator.tools import Recent
from extender.cluster.binding_conditions import Failed, unmet
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys, has_other_consumers, is_in_use, users_of
from extender.cluster.controller_marks import is_marked
from extender.cluster.double_allocations import DoubleAllocations, double_allocation
from extender.cluster.objects.claims import ClaimObject, is_immediate
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.claims.claim_json import AllocationFirst, Reservation
from extender.cluster.writes.pods import NodeResources
from extender.cluster.writes.writer import Writer
from extender.framework.bind.plan import BindPlan, BindPlanner, BindTimes, verify
from extender.framework.bind_errors import BindError, DoubleAllocationError, LapsedError, PluginRefusesError
from extender.framework.decisions.solver import Solver
from extender.framework.pods.extended_resources.special_claim import reaches
from extender.kube.resources import CLAIMS

logger = structlog.get_logger()

_KEPT: Final = 4096


class PinnedClaims:
    """Allocates and reserves the claims of pods that have a node already.

    Attributes:
        api: the API server that is written to.

    Args:
        state: the cluster.
        writer: writes to it.
        planner: decides what to allocate.
        double_allocations: told of every double allocation that is found.
        allocated: told of each pod whose claims were allocated.
        solver: its features decide whether there are binding conditions, and its selectors are for quotas.
        times: how long one pod may take, and how long its claims may wait.
    """

    def __init__(
        self,
        state: ClusterState,
        writer: Writer,
        planner: BindPlanner,
        double_allocations: DoubleAllocations,
        allocated: Callable[[Pod], None],
        solver: Solver,
        times: BindTimes,
    ) -> None:
        self._state = state
        self._writer = writer
        self.api = writer.api
        self._planner = planner
        self._double_allocations = double_allocations
        self._allocated = allocated
        self._solver = solver
        self._times = times
        self._unchecked: Recent[int] = Recent(_KEPT)

    def awaited(self, pod: Pod) -> Collection[str]:
        """The controllers that `serve` waits for."""
        return self._planner.awaited(pod)

    async def serve(self, pod: Pod) -> None:
        """Bring the claims of a pod to their goal: allocated for its node, and reserved for it.

        A process may end after any write: the next call continues with what is there.

        Raises:
            BindError: the claims cannot be allocated for the node now, or their devices are not ready.
            WriteRefusedError, OutcomeUnknownError: a write is refused, or it is not known whether it happened.
        """
        until = asyncio.get_running_loop().time() + self._times.deadline
        plan = await self._planned(pod, until)
        checked = await self._allocated_and_checked(pod, plan, until)
        if plan.resources is not None and pod.resources.claims != plan.resources:
            await NodeResources(self.api).tell(pod, plan.resources)  # before kubelet starts the pod
        for each in checked:
            await self._writer.reserve_as_known(each)
        logger.debug(
            "claims allocated", pod=str(pod), node=pod.node_name, claims=[str(each.claim.key) for each in checked]
        )

    async def allocate(self, pod: Pod) -> None:
        """Allocate the claims of a stand-in for its node, and check them; they are reserved for nobody.

        Raises:
            BindError: the claims cannot be allocated for the node now, or their devices are not ready.
            WriteRefusedError, OutcomeUnknownError: a write is refused, or it is not known whether it happened.
        """
        until = asyncio.get_running_loop().time() + self._times.deadline
        try:
            await self._allocated_and_checked(pod, await self._planner.plan(pod, pod.node_name, [], until), until)
        finally:
            self._state.give_up(pod)  # a stand-in takes nothing of its node

    async def check(self, claim: ClaimObject, pod: Pod) -> None:
        """Check an allocated claim of a stand-in. If the check fails, the claim is taken back. Raises as `allocate`."""
        if claim.claim.allocation is not None:
            known = Reservation(claim, pod, claim.claim.allocation, allocates=False, frees=True)
            await self._checked(known, self._state.snapshot)

    async def _allocated_and_checked(self, pod: Pod, plan: BindPlan, until: float) -> list[Reservation]:
        await self._hear(await self._allocate(pod, plan), until)
        snapshot = self._state.snapshot
        return [await self._checked(each, snapshot) for each in plan.reservations]

    async def _planned(self, pod: Pod, until: float) -> BindPlan:
        """The writes to make. If no devices fit for all claims together, the claims that no pod uses are given back.

        Devices for extended resources are not allocated: kubelet does not wait for them.
        """
        try:
            return await self._planner.plan(replace(pod, containers=()), pod.node_name, [], until)
        except BindError:
            if not self._state.not_ready:
                for each in list(_idle(pod, self._state.snapshot)):
                    await self._writer.deallocate_as_known(each)
            raise

    async def _allocate(self, pod: Pod, plan: BindPlan) -> int:
        """Write the allocations; returns the newest revision of what was written."""
        new = [each for each in plan.reservations if each.allocates]
        begun = revision = 0
        try:
            for each in new:
                begun += 1
                goal = AllocationFirst(each.claim, pod, each.allocation, allocates=True, frees=True)
                revision = max(revision, await self._writer.reserve(goal))
                self._unchecked.keep(each.uid, revision)
        finally:
            for never_begun in new[begun:]:
                self._state.forget(never_begun.uid)
        if plan.allocates:
            self._allocated(pod)
        return revision

    async def _hear(self, revision: int, until: float) -> None:
        """Wait until the watch shows all writes to claims up to a revision."""
        try:
            async with asyncio.timeout_at(until):
                await self._state.passed(CLAIMS, revision)
        except TimeoutError as error:
            raise BindError("out of time: what others have written to claims is not known yet") from error

    async def _checked(self, reservation: Reservation, snapshot: Snapshot) -> Reservation:
        """The reservation of a checked claim. If the check fails, the claim is taken back."""
        pod, claim = reservation.pod, snapshot.claim(reservation.uid)
        if claim is None or not reservation.is_allocated(claim.claim):
            raise BindError(f"claim {reservation.claim.key} was changed by others meanwhile")
        written, came = self._unchecked.find(reservation.uid), claim.allocated_at
        is_new = written is not None and came is not None and came <= written
        if is_new or not is_in_use(claim.claim, snapshot):
            found = double_allocation(snapshot, reservation.uid)
            if found:
                self._double_allocations.found(claim, found, snapshot)
                await self._take_back(claim, pod)
                raise DoubleAllocationError(f"claim {claim.key} was allocated after others: {found}")
            await self._check_quota(claim, pod, snapshot)
            await self._check_readiness(claim, pod)
        self._unchecked.forget(reservation.uid)
        return replace(reservation, claim=claim, allocates=False, frees=False)

    async def _check_quota(self, claim: ClaimObject, pod: Pod, snapshot: Snapshot) -> None:
        try:
            verify(claim, pod, snapshot, self._solver)
        except PluginRefusesError:
            await self._take_back(claim, pod)
            raise

    async def _check_readiness(self, claim: ClaimObject, pod: Pod) -> None:
        """Check that the devices are ready: kubelet does not look at binding conditions."""
        lack = unmet(claim) if self._solver.features.binding_conditions else None
        if lack is None:
            return
        if isinstance(lack, Failed):
            cause = str(lack)
        elif lapse := lack.lapse(self._writer.now(), self._times.binding_timeout):
            cause = lapse
        else:
            raise BindError(str(lack))
        await self._take_back(claim, pod)
        raise LapsedError(f"claim {claim.key}: {cause}")

    async def _take_back(self, claim: ClaimObject, pod: Pod) -> None:
        """Deallocate a claim, unless another pod uses it, or the pod has started with it."""
        snapshot = self._state.snapshot
        has_mates = any(user.uid != pod.uid for user in users_of(claim.claim, snapshot))
        if has_mates or has_other_consumers(pod, claim.claim, snapshot):
            return
        if claim.claim.reserved_for and (await self._writer.read_pod(pod.key, pod.uid)).has_started:
            return
        if any(each.is_pod_group for each in claim.claim.reserved_for):
            await self._writer.deallocate(claim, pod)  # binds of other pods of the group write nothing to the claim
        else:
            await self._writer.deallocate_as_known(claim)


def _idle(pod: Pod, snapshot: Snapshot) -> Iterable[ClaimObject]:
    """The allocated claims of a pod that no pod uses, and that no bind is writing.

    What a controller has allocated for the pod's node stays, with the devices that we have added: otherwise it would be
    allocated and given back again and again, as long as another controller refuses.
    """
    node = snapshot.nodes.get(pod.node_name)
    for key in claim_keys(pod):
        found = snapshot.claims.get(key)
        if found is None or found.claim.allocation is None or found.claim.deleting or found.claim.reserved_for:
            continue
        is_kept = is_marked(found.claim) and node is not None and reaches(found, node)
        if not is_kept and found.claim.uid not in snapshot.assumed and not is_immediate(found.claim):
            yield found
