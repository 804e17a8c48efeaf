"""Bind: allocate, reserve, check, bind; or undo what was written.

The order of the writes: of all claims here and in `extender.framework.bind.plan`; of one claim in
`extender.cluster.writes.claims`.

Idempotent: after its timeout the scheduler calls again, although the first call may still run, or have succeeded. A pod
has one bind at a time, and a second call gets the answer of the bind that runs.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Final

import structlog

from allocator.tools import printable
from extender.cluster.binding_conditions import Failed, unmet
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import is_in_use
from extender.cluster.double_allocations import double_allocation
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.events import QUOTA_EXCEEDED, Note
from extender.cluster.writes.pods import NodeResources, check_unbound
from extender.cluster.writes.reservations import Reservation, SpecialClaims
from extender.cluster.writes.writer import Writer
from extender.framework.bind.claim_allocator import ClaimAllocator
from extender.framework.bind.plan import BindPlan, BindPlanner, BindTimes, Reports, to_give_back, verify
from extender.framework.bind_errors import (
    BindError,
    DoubleAllocationError,
    GivenBackError,
    LapsedError,
    PluginRefusesError,
    ResourceQuotaRefusesError,
)
from extender.framework.claim_arrival import arrived, check_not_fenced
from extender.framework.decisions.solver import Solver
from extender.framework.plugin import WaitingPlugin
from extender.kube.api import ObjectKey, OutcomeUnknownError, OverQuotaError, WriteRefusedError
from extender.kube.resources import CLAIMS
from extender.tools.offload import Offload, in_thread

logger = structlog.get_logger()

_STEPS_SHARE: Final = 0.9
"""The part of a call's time in which steps begin. The rest is for the last step and the answer."""


class Binder:
    """Binds pods of one cluster.

    Attributes:
        claims: allocates claims without a bind.
        plugins: the parts of features that wait, in the order in which they are called.
        times: how long a call may take, and how long claims may wait.
        late: the nodes on which binds were late, or were refused by a ResourceQuota.
        decided: the uids of pods whose bind is running, and others see the devices that it has decided on.

    Args:
        reports: gets double allocations, allocations and Events.
        times: how long a call may take. A bind that takes longer goes on, but posts no Binding any more: the next call
            carries on from what it has written.
        off_loop: where devices are searched.
    """

    def __init__(
        self,
        state: ClusterState,
        writer: Writer,
        solver: Solver,
        reports: Reports,
        *,
        plugins: Sequence[WaitingPlugin] = (),
        times: BindTimes,
        off_loop: Offload = in_thread,
    ) -> None:
        self.plugins = plugins
        self._off_loop = off_loop
        self._state = state
        self._writer = writer
        self._special = SpecialClaims(writer.api, state)
        self._node_resources = NodeResources(writer.api)
        self._solver = solver
        self.times = times
        self._reports = reports
        self._planner = BindPlanner(state, solver, reports, plugins, times.worked)
        self.late = self._planner.late
        self.claims = ClaimAllocator(writer, self._planner, reports, solver, times)
        self._running: dict[str, tuple[str, asyncio.Task[BindError | None]]] = {}
        self.decided: set[str] = set()

    async def bind(
        self, key: ObjectKey, uid: str, node: str, *, seen: Pod | None = None, until: float | None = None
    ) -> None:
        """Bind a pod to a node, with devices for its claims.

        Args:
            key: namespace and name of the pod.
            uid: of the pod; another pod of that name is not bound.
            node: name of the node.
            seen: the pod as filter was given it, if it is still known: saves asking for pods without devices.
            until: when the answer is due, by the loop's clock; None: at the deadline of a bind that begins now.

        Raises:
            BindError: the pod is not bound to the node, and why.
        """
        now = asyncio.get_running_loop().time()
        until = now + self.times.deadline if until is None else until
        own = now + (until - now) * _STEPS_SHARE
        while uid in self._running:
            target, task = self._running[uid]
            error = await _answer(task, until)
            if target == node or not task.done():
                try:
                    _raise(error)
                finally:
                    del error, task
                return
        _raise(await _answer(self._start(uid, node, self._outcome(key, uid, node, seen, own)), until))

    async def finish(self, seconds: float) -> int:
        """Let running binds end, also those whose callers have left; returns how many have not ended in time."""
        tasks = [task for _, task in self._running.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        return sum(not task.done() for task in tasks)

    def is_binding(self, uid: str) -> bool:
        """Whether a bind of the pod of that uid is running, or an undo."""
        return uid in self._running

    def node_of(self, uid: str) -> str:
        """The node of the bind of the pod of that uid; empty if none is running."""
        return self._running[uid][0] if uid in self._running else ""

    def give_back(self, pod: Pod, claims: Sequence[ClaimObject], why: str) -> None:
        """Take allocations from a pod that can't be bound with them, in the background; not while it is being bound.

        The snapshot shows what has become of it.

        Args:
            pod: waits to be bound.
            claims: as they are known; what other pods use as well they keep.
            why: for the pod's condition.
        """
        if not self.is_binding(pod.uid):
            self._start(pod.uid, "", self._given_back(pod, claims, why))

    def _start(
        self, uid: str, node: str, work: Coroutine[None, None, BindError | None]
    ) -> asyncio.Task[BindError | None]:
        task = asyncio.create_task(work)
        self._running[uid] = (node, task)
        task.add_done_callback(lambda _: self._ended(uid))
        return task

    def _ended(self, uid: str) -> None:
        self._running.pop(uid, None)
        self.decided.discard(uid)

    async def _outcome(self, key: ObjectKey, uid: str, node: str, seen: Pod | None, until: float) -> BindError | None:
        """The bind's error as a value: perhaps no caller waits for it any more."""
        try:
            await self._bind(key, uid, node, seen, until)
        except BindError as error:
            return error
        except OverQuotaError as error:
            return ResourceQuotaRefusesError(str(error))
        except (WriteRefusedError, OutcomeUnknownError) as error:
            return BindError(str(error))
        return None

    async def _bind(self, key: ObjectKey, uid: str, node: str, seen: Pod | None, until: float) -> None:
        pod = self._state.snapshot.pod(uid) or seen or await self._writer.read_pod(key, uid)
        if pod.node_name == node:
            return
        check_unbound(pod)
        if not pod.needs_devices:
            self.decided.add(uid)
            await self._writer.bind(replace(pod, resource_version=""), node)
            return
        if not pod.resource_version:
            pod = await self._writer.read_pod(key, uid)
        made: list[Reservation] = []
        try:
            plan = await self._planner.plan(pod, node, made, until, self._off_loop, foresees=True)
            self.decided.add(uid)
            pod, revision = await self._write(pod, plan, made, until)
            pod = await self._ready(pod, plan, made, revision, until)
            await self._writer.bind(pod, node, lambda old, new: self._again(old, new, plan, made, until))
        except (WriteRefusedError, GivenBackError) as error:
            if isinstance(error, OverQuotaError):
                self.late.note_over_quota(pod, node)
            left = await self._undo(pod, node, made, str(error))
            if left is None:
                return
            if event := _event_of(error):
                self._reports.tell(pod, Note(event, printable(str(error)), "Binding"))
            if left:
                raise type(error)("; ".join((str(error), *left))) from error
            raise

    async def _write(self, pod: Pod, plan: BindPlan, made: list[Reservation], until: float) -> tuple[Pod, int]:
        """Write claim by claim. `made` gets those that are written, a special claim once it is made.

        Returns:
            The pod in the version that is to be bound, which was there before all these writes; and the newest revision
            of what was written or read.
        """
        begun, revision, reservations = 0, 0, plan.reservations
        try:
            if any(each.is_to_come for each in reservations):
                pod, reservations = await arrived(pod, reservations, self._state, until)
            pod = await self._remove(pod, plan.stale)
            for each in reservations:
                reservation = await self._special.make(each) if each.is_new else each
                begun += 1
                if reservation.is_special:
                    made.append(reservation)
                revision = max(revision, await self._writer.reserve(reservation, pod.fence))
                if not reservation.is_special:
                    made.append(reservation)
        finally:
            for never_begun in reservations[begun:]:
                self._state.forget(never_begun.uid)
        if plan.allocates:
            self._reports.allocated(pod)
        return pod, revision

    async def _remove(self, pod: Pod, stale: Sequence[ClaimObject]) -> Pod:
        """Delete special claims of an earlier try, with which no Binding may be on its way any more."""
        if not stale:
            return pod
        released = await self._writer.release(pod, to_give_back(pod, stale, self._state.snapshot))
        if released.left:
            raise WriteRefusedError("; ".join(released.left))
        now = await self._writer.read_pod(pod.key, pod.uid)
        check_unbound(now)
        return now

    async def _ready(self, pod: Pod, plan: BindPlan, made: list[Reservation], revision: int, until: float) -> Pod:
        """Do all that comes between the claims and the Binding; returns the pod in the version that is to be bound."""
        if pod.extended_claim != plan.status:
            told = await self._special.tell(pod, plan.status)
            check_not_fenced(pod, told)
            pod = told
        if plan.resources is not None and pod.resources.claims != plan.resources:
            told = await self._node_resources.tell(pod, plan.resources)
            check_not_fenced(pod, told)
            pod = told
        await self._hear(revision, until)
        self._check(made)
        self._check_pre_enqueue(pod)
        return pod

    async def _again(self, old: Pod, new: Pod, plan: BindPlan, made: list[Reservation], until: float) -> Pod:
        """Do the same after others have changed the pod: the API server says whether it still has its claims."""
        check_not_fenced(old, new)
        revision = 0
        for each in made:
            revision = max(revision, await self._writer.confirm(each))
        return await self._ready(new, plan, made, revision, until)

    async def _hear(self, revision: int, until: float) -> None:
        """Wait until all is known that was written to claims before."""
        try:
            async with asyncio.timeout_at(until):
                await self._state.passed(CLAIMS, revision)
        except TimeoutError as error:
            raise BindError("out of time: what others have written to claims is not known yet") from error
        if asyncio.get_running_loop().time() >= until:
            raise BindError("out of time: the claims are reserved, the pod is not bound yet")

    def _check(self, made: list[Reservation]) -> None:
        """Check that the pod may be bound with what was reserved for it: the last look before the Binding."""
        snapshot = self._state.snapshot
        claims = [_reserved(each, snapshot) for each in made]
        for check in (self._check_against_others, self._check_by_plugins, self._check_readiness):
            for index, (each, claim) in enumerate(zip(made, claims, strict=True)):
                try:
                    check(claim, snapshot, each.pod)
                except GivenBackError:
                    made[index] = replace(each, frees=True)
                    raise

    def _check_against_others(self, claim: ClaimObject, snapshot: Snapshot, _pod: Pod) -> None:
        """Compare with what others have written before us. A claim that a bound pod uses was checked then."""
        found = "" if is_in_use(claim.claim, snapshot) else double_allocation(snapshot, claim.claim.uid)
        if found:
            self._reports.double_allocations.found(claim, found, snapshot)
            raise DoubleAllocationError(f"claim {claim.key} was allocated after others: {found}")

    def _check_by_plugins(self, claim: ClaimObject, snapshot: Snapshot, pod: Pod) -> None:
        """Compare with the plugins' rules. If two replicas allocate the last device, the later one gives it back."""
        verify(claim, pod, snapshot, self._solver)

    def _check_readiness(self, claim: ClaimObject, _snapshot: Snapshot, _pod: Pod) -> None:
        """See whether the devices are ready to be bound."""
        lack = unmet(claim) if self._solver.features.binding_conditions else None
        if isinstance(lack, Failed):
            raise LapsedError(f"claim {claim.key}: {lack}")
        if lack is not None and (lapse := lack.lapse(self._writer.now(), self.times.binding_timeout)):
            raise LapsedError(f"claim {claim.key}: {lapse}")
        if lack is not None:
            raise BindError(str(lack))

    def _check_pre_enqueue(self, pod: Pod) -> None:
        """Check that the pod may still be bound: the watch, or the pod as it was read, may show that its gang waits."""
        snapshot = self._state.snapshot
        shown = snapshot.pod(pod.uid)
        for each in (pod,) if shown is None or shown is pod else (pod, shown):
            if refused := self._solver.plugins.pre_enqueue(each, snapshot):
                raise WriteRefusedError(f"pod {pod.key}: {refused.refusal}")

    async def _given_back(self, pod: Pod, claims: Sequence[ClaimObject], why: str) -> None:
        left = await self._undo(pod, "", to_give_back(pod, claims, self._state.snapshot), why)
        logger.info("claims given back", pod=str(pod), claims=[str(each.key) for each in claims], left=left)

    async def _undo(self, pod: Pod, node: str, made: Sequence[Reservation], why: str) -> list[str] | None:
        """Take back what was made; returns what could not be, or None if the pod turns out to be bound to the node."""
        try:
            bound, failed = await self._writer.release(pod, made, why)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            return [f"claims are not released: {error}"]
        if bound:
            return None if bound == node else [f"claims are not released: the pod is bound to node {bound}"]
        left = list(failed)
        for each in made:
            if each.is_special:
                left += await self._withdraw(each)
        if self._solver.features.node_resources:
            left += await self._take_from_status(pod)
        return left

    async def _take_from_status(self, pod: Pod) -> list[str]:
        """End the promise of a pod that is not bound: neither we nor its scheduler count what its claims took."""
        self._state.give_up(pod)
        try:
            await self._node_resources.withdraw(pod)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            return [f"the status of pod {pod.key} still has what its claims took of the node: {error}"]
        return []

    async def _withdraw(self, reservation: Reservation) -> list[str]:
        try:
            await self._special.withdraw(reservation)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            return [f"claim {reservation.claim.key} is not withdrawn: {error}"]
        return []


def _raise(error: BindError | None) -> None:
    if error is not None:
        try:
            raise error
        finally:
            del error  # this frame is in the error's traceback from now on


def _reserved(reservation: Reservation, snapshot: Snapshot) -> ClaimObject:
    """The claim of a reservation that was written, as it is now; raises BindError if it was taken from the pod."""
    claim = snapshot.claim(reservation.uid)
    if claim is None or claim.claim.allocation is None or not reservation.is_reserved(claim.claim):
        raise BindError(f"claim {reservation.claim.key} was taken from the pod meanwhile")
    return claim


async def _answer(task: asyncio.Task[BindError | None], until: float) -> BindError | None:
    """The task's answer, or that there is none yet. The task goes on if its caller stops waiting."""
    done, _ = await asyncio.wait({task}, timeout=until - asyncio.get_running_loop().time())
    return task.result() if done else BindError("the bind of this pod is still running")


def _event_of(error: WriteRefusedError | GivenBackError) -> str:
    """The reason of the Event that tells why a bind was refused; empty: none does."""
    if isinstance(error, PluginRefusesError):
        return error.event
    return QUOTA_EXCEEDED if isinstance(error, OverQuotaError) else ""
