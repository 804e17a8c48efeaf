"""Allocations without a bind: a claim is allocated first, then checked, and reserved only after that or for nobody.

A bind checks what it has written before its Binding. Where there is no Binding, kubelet starts a pod as soon as its
claims are reserved; so the claims must be checked before they are.

kube-controller-manager reserves allocated claims for pods that have a node, perhaps before the check. If the check then
fails, the claim is taken back from the pod, unless kubelet has started it.
"""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from allocator.tools import Recent
from extender.cluster.binding_conditions import Failed, unmet
from extender.cluster.consumers import has_other_consumers, is_in_use, users_of
from extender.cluster.double_allocations import double_allocation
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.reservations import AllocationFirst, Reservation
from extender.cluster.writes.writer import Writer
from extender.framework.bind.plan import BindPlan, BindPlanner, BindTimes, Reports, verify
from extender.framework.bind_errors import BindError, DoubleAllocationError, LapsedError, PluginRefusesError
from extender.framework.decisions.solver import Solver
from extender.kube.resources import CLAIMS
from extender.tools.offload import Offload

_KEPT: Final = 4096


class ClaimAllocator:
    """Allocates the claims of pods that have a node already, and claims that no pod needs yet.

    Attributes:
        writer: writes to the cluster.

    Args:
        planner: decides what to allocate.
        reports: gets double allocations and allocations.
        solver: its features decide whether there are binding conditions, and its plugins check allocations.
        times: how long one pod may take, and how long its claims may wait.
    """

    def __init__(
        self, writer: Writer, planner: BindPlanner, reports: Reports, solver: Solver, times: BindTimes
    ) -> None:
        self._state = writer.state
        self.writer = writer
        self._planner = planner
        self._reports = reports
        self._solver = solver
        self._times = times
        self._unchecked: Recent[int] = Recent(_KEPT)

    def until(self) -> float:
        """The time at which work for one pod that begins now has to end, by the loop's clock."""
        return asyncio.get_running_loop().time() + self._times.deadline

    def awaited(self, pod: Pod) -> Collection[str]:
        """The names of those that `plan` waits for."""
        return self._planner.awaited(pod)

    async def plan(self, pod: Pod, until: float, off_loop: Offload) -> BindPlan:
        """What to write for the claims of a pod, or of a stand-in, on its node. New allocations are assumed.

        Args:
            pod: the pod, or the stand-in, with its node.
            until: when the search ends, by the loop's clock.
            off_loop: where devices are searched.

        Raises:
            BindError: the claims cannot be allocated for the node now.
        """
        return await self._planner.plan(pod, pod.node_name, [], until, off_loop)

    async def allocate(self, pod: Pod, plan: BindPlan, until: float) -> list[Reservation]:
        """Write the allocations of a plan, and check them; returns the reservations that may be written then.

        A process may end after any write: the next call continues with what is there.

        Raises:
            BindError: a check has failed, so the claim was taken back; or devices are not ready.
            WriteRefusedError, OutcomeUnknownError: a write is refused, or it is not known whether it happened.
        """
        await self._hear(await self._written(pod, plan), until)
        snapshot = self._state.snapshot
        return [await self._checked(each, snapshot) for each in plan.reservations]

    async def check(self, claim: ClaimObject, pod: Pod) -> None:
        """Check an allocated claim of a stand-in. If the check fails, the claim is taken back. Raises as `allocate`."""
        if claim.claim.allocation is not None:
            known = Reservation(claim, pod, claim.claim.allocation, allocates=False, frees=True)
            await self._checked(known, self._state.snapshot)

    async def _written(self, pod: Pod, plan: BindPlan) -> int:
        """Write the allocations; returns the newest revision of what was written."""
        new = [each for each in plan.reservations if each.allocates]
        begun = revision = 0
        try:
            for each in new:
                begun += 1
                goal = AllocationFirst(each.claim, pod, each.allocation, allocates=True, frees=True)
                revision = max(revision, await self.writer.reserve(goal))
                self._unchecked.keep(each.uid, revision)
        finally:
            for never_begun in new[begun:]:
                self._state.forget(never_begun.uid)
        if plan.allocates:
            self._reports.allocated(pod)
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
                self._reports.double_allocations.found(claim, found, snapshot)
                await self._take_back(claim, pod)
                raise DoubleAllocationError(f"claim {claim.key} was allocated after others: {found}")
            await self._check_by_plugins(claim, pod, snapshot)
            await self._check_readiness(claim, pod)
        self._unchecked.forget(reservation.uid)
        return replace(reservation, claim=claim, allocates=False, frees=False)

    async def _check_by_plugins(self, claim: ClaimObject, pod: Pod, snapshot: Snapshot) -> None:
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
        elif lapse := lack.lapse(self.writer.now(), self._times.binding_timeout):
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
        if claim.claim.reserved_for and (await self.writer.read_pod(pod.key, pod.uid)).has_started:
            return
        if any(each.is_pod_group for each in claim.claim.reserved_for):
            await self.writer.deallocate(claim, pod)  # binds of other pods of the group write nothing to the claim
        else:
            await self.writer.deallocate_as_known(claim)
