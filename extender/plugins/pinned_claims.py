"""Pinned pods: they have a node without their claims, usually because their author set ``spec.nodeName``.

Such a pod comes to no scheduler, and kubelet does not start it. So its claims are allocated here (KEP-3063, "Scheduled
pods with unallocated or unreserved claims"), or an Event on the pod says why not.

A bind checks what it has written before its Binding. A pinned pod has no Binding: kubelet starts the pod as soon as its
claims are reserved. So a claim is allocated first, and then reserved in the very version that was checked.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import structlog

from allocator.tools import Recent, printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys
from extender.cluster.controller_marks import is_marked
from extender.cluster.objects.claims import ClaimObject, is_immediate
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.events import Note
from extender.cluster.writes.lease import SharedLease
from extender.cluster.writes.pods import NodeResources
from extender.framework.asked import Asked
from extender.framework.bind.claim_allocator import ClaimAllocator
from extender.framework.bind.plan import BindPlan
from extender.framework.bind_errors import BindError
from extender.framework.bound_pods import BoundPods, is_pinned, lacking, lacks, lacks_some
from extender.framework.decisions.solver import Solver
from extender.framework.handle import Handle
from extender.framework.leased_work import LeasedWork, WaitingWork
from extender.framework.pods.extended_resources import reaches, without_devices
from extender.framework.queueing_hints import NO_HINT, QueueingHint, queueing_hint
from extender.framework.rejected_pods import PATIENCE, Attention, RejectedPod
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import Api, ObjectKey, OutcomeUnknownError, WriteRefusedError
from extender.planning.kube_scheduler import no_attempt
from extender.tools.fairness import FairMemory
from extender.tools.offload import Offload, in_thread

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PinnedClaims:
    """Allocates and reserves the claims of pods that have a node already.

    Attributes:
        claims: allocates them.
        off_loop: where devices are searched.
    """

    claims: ClaimAllocator
    off_loop: Offload = in_thread

    @property
    def api(self) -> Api:
        """The API server that is written to."""
        return self.claims.writer.api

    def awaited(self, pod: Pod) -> Collection[str]:
        """The controllers that `serve` waits for."""
        return self.claims.awaited(pod)

    async def serve(self, pod: Pod) -> None:
        """Bring the claims of a pod to their goal: allocated for its node, and reserved for it.

        A process may end after any write: the next call continues with what is there.

        Raises:
            BindError: the claims cannot be allocated for the node now, or their devices are not ready.
            WriteRefusedError, OutcomeUnknownError: a write is refused, or it is not known whether it happened.
        """
        until = self.claims.until()
        plan = await self._planned(pod, until)
        checked = await self.claims.allocate(pod, plan, until)
        if plan.resources is not None and pod.resources.claims != plan.resources:
            await NodeResources(self.api).tell(pod, plan.resources)  # before kubelet starts the pod
        for each in checked:
            await self.claims.writer.reserve_as_known(each)
        logger.debug(
            "claims allocated", pod=str(pod), node=pod.node_name, claims=[str(each.claim.key) for each in checked]
        )

    async def give_back(self, pod: Pod) -> None:
        """Give back what was allocated for a pod that does not need it any more, and what no other pod uses.

        If a controller has allocated something, too, it hears of that once the claim has no devices.
        """
        for each in list(_unused(pod, self.claims.writer.state.snapshot)):
            with suppress(WriteRefusedError):  # others have changed it, and see to it
                await self.claims.writer.deallocate_as_known(each)

    async def _planned(self, pod: Pod, until: float) -> BindPlan:
        """The writes to make. If no devices fit for all claims together, the claims that no pod uses are given back.

        Devices for extended resources are not allocated: kubelet does not wait for them.
        """
        try:
            return await self.claims.plan(replace(pod, containers=()), until, self.off_loop)
        except BindError:
            writer = self.claims.writer
            if not writer.state.not_ready:
                for each in list(_idle(pod, writer.state.snapshot)):
                    await writer.deallocate_as_known(each)
            raise


def _idle(pod: Pod, snapshot: Snapshot) -> Iterable[ClaimObject]:
    """The allocated claims of a pod that no pod uses, but those that a controller has allocated for the pod's node.

    These stay, with the devices that we have added: otherwise they would be allocated and given back again and again,
    as long as another controller refuses.
    """
    node = snapshot.nodes.get(pod.node_name)
    for found in _unused(pod, snapshot):
        if not (is_marked(found.claim) and node is not None and reaches(found, node)):
            yield found


def _unused(pod: Pod, snapshot: Snapshot) -> Iterable[ClaimObject]:
    """The allocated claims of a pod that no pod uses, and that no bind is writing."""
    for key in claim_keys(pod):
        found = snapshot.claims.get(key)
        if found is None or found.claim.allocation is None or found.claim.deleting or found.claim.reserved_for:
            continue
        if found.claim.uid not in snapshot.assumed and not is_immediate(found.claim):
            yield found


PINNED_PODS: Final = ObjectKey("kube-system", "dra-extender-pinned-pods")
"""The lease of the replica that serves pinned pods."""

REASON: Final = "ClaimsNotAllocated"

HEAD_START: Final = timedelta(seconds=2)
"""The replica that schedulers ask serves pinned pods this much earlier than others. It knows its own binds, so it never
gives one device to both."""

_ASKED_SECONDS: Final = 60.0
"""A replica that no scheduler has asked for this time has no head start."""

_KEPT: Final = 4096

MOST_PODS: Final = 1024
"""Pods that are tried in turn, in shares by namespace. Others wait until one of their namespace was tried in vain."""


class PinnedPods(BackgroundTask):
    """Looks for pinned pods, and tries to serve each: at once, after changes that may help it, and from time to time.

    A pod that waits for a controller holds up no other.

    Args:
        state: the cluster.
        claims: serves a pod.
        lease: this replica holds it while it serves pods.
        solver: has the clock, the features and the faults.
        asked: when a scheduler has asked this replica last. Pods of schedulers that do not call the extender are left
            alone.
        tell: writes an Event on a pod, with the reason why it is not served.
        now: the time.
    """

    def __init__(
        self,
        state: ClusterState,
        claims: PinnedClaims,
        lease: SharedLease,
        solver: Solver,
        asked: Asked,
        tell: Callable[[Pod, Note], None],
        now: Callable[[], datetime],
    ) -> None:
        self._state = state
        self._claims = claims
        self._solver = solver
        self._tell = tell
        self._now = now
        self._pods = BoundPods(state)
        self._seen = state.snapshot
        self._waiting = FairMemory[WaitingWork](MOST_PODS)
        self._work = LeasedWork(lease, solver, claims.awaited, self._serve)
        self._ended: dict[str, Pod] = {}
        """By uid: the pods that were tried, and that end before they have their claims."""

        self._told: Recent[str] = Recent(_KEPT)
        self._asked = asked

    @property
    def unfinished(self) -> Sequence[asyncio.Task[None]]:
        """Pods that controllers are asked for."""
        return self._work.running

    @property
    def idle_seconds(self) -> float:
        """Until something changes, if no pod is to be served."""
        is_idle = not (self._waiting or self._ended or self._pods.has_open or self._work.has_lease)
        return UNTIL_NEWS if is_idle else 0.0

    async def tick(self) -> None:
        """Look for pinned pods, write Events on those that could not be served for a while, and serve the due ones.

        So a question that is asked in this turn has the time of a turn for its answer, before a pod is told of it.
        """
        if self._state.not_ready:
            return
        await self._find()
        self._note_changes()
        await self._give_back()
        await self._tell_due()
        await self._serve_due()

    async def _find(self) -> None:
        async for pod in self._pods.turn():
            snapshot = self._state.snapshot
            if pod.has_started:
                self._pods.leave_alone(pod, snapshot)
                continue
            if no_attempt(pod, self._asked.named):
                continue
            if not lacks_some(pod, snapshot):
                if not pod.containers:
                    self._pods.settled(pod, snapshot)
            elif pod.uid not in self._waiting:
                self._admit(pod)
            reason = without_devices(pod, snapshot, self._solver.features)
            if reason and self._told.find((pod.uid, reason)) is None:
                self._told.keep((pod.uid, reason), reason)
                self._tell(pod, Note(REASON, printable(reason)))

    def _admit(self, pod: Pod) -> None:
        """Let a pod be tried from now on, if there is room. If there is none, the pod is found again later."""
        if not self._waiting.make_room(pod.namespace, self._work.was_in_vain):
            return
        rejected = RejectedPod(pod, (pod.node_name,), Attention.NOW)
        self._waiting.keep(pod.namespace, pod.uid, WaitingWork(f"pod {pod}", rejected, self._now()))

    def _note_changes(self) -> None:
        """Forget pods that need nothing any more. The others are due if a change may help them, or if it is time."""
        before, snapshot = self._seen, self._state.snapshot
        self._seen = snapshot
        hint = NO_HINT
        if self._waiting:
            hint = queueing_hint(self._state.since(before.version), before, snapshot, self._solver.plugins)
        now = self._solver.clock()
        for uid, each in self._waiting.items():
            pod, rejected = snapshot.pod(uid), each.rejected
            if pod is None or not is_pinned(pod):
                self._waiting.pop(uid)
                if each.was_tried:
                    self._ended[uid] = rejected.pod
            elif each.is_due(now, is_helped=_may_help(rejected, pod, hint, snapshot)):
                rejected.attention = Attention.NOW
            if pod is not None:
                rejected.pod = pod

    async def _give_back(self) -> None:
        """Give back what was allocated for pods that have ended since, once the watch shows it."""
        for uid, pod in list(self._ended.items()):
            if self._work.has(uid) or self._is_on_its_way(pod):
                continue
            with self._solver.faults.of(f"pod {pod}"), suppress(OutcomeUnknownError):
                await self._claims.give_back(pod)
                del self._ended[uid]

    def _is_on_its_way(self, pod: Pod) -> bool:
        """Whether the watch has not shown an allocation for the pod yet."""
        snapshot = self._state.snapshot
        claims = (snapshot.claims.get(key) for key in claim_keys(pod))
        return any(each is not None and each.claim.uid in snapshot.assumed for each in claims)

    async def _serve_due(self) -> None:
        """Serve the pods that are due, the most important first, as long as there is time."""
        is_asked = self._solver.clock() < self._asked.at + _ASKED_SECONDS
        latest = self._now() - (timedelta() if is_asked else HEAD_START)
        due = [
            each for each in self._waiting.values() if each.rejected.attention is Attention.NOW and each.since <= latest
        ]
        await self._work.turn(sorted(due, key=lambda each: -each.rejected.pod.priority))

    async def _serve(self, pinned: WaitingWork) -> None:
        pod = pinned.rejected.pod
        try:
            await self._claims.serve(pod)
        except (BindError, WriteRefusedError, OutcomeUnknownError) as error:
            pinned.fail(error)
        else:
            self._waiting.pop(pod.uid)

    async def _tell_due(self) -> None:
        due = self._now() - PATIENCE
        for each in self._waiting.values():
            pod = each.rejected.pod
            text = f"the pod has node {pod.node_name}, and its claims are not allocated there: {each.reason}"
            if not each.reason or each.since > due or self._told.find(pod.uid) == text:
                continue
            if await self._still_lacks(pod):
                self._told.keep(pod.uid, text)
                self._tell(pod, Note(REASON, printable(text)))

    async def _still_lacks(self, pod: Pod) -> bool:
        """Whether the pod lacks a claim: another replica may have served it while a write of this one was refused."""
        snapshot = self._state.snapshot
        keys = lacking(pod, snapshot)
        return lacks_some(pod, snapshot) and (not keys or await lacks(self._claims.api, pod, keys[0]))


def _may_help(rejected: RejectedPod, pod: Pod, hint: QueueingHint, snapshot: Snapshot) -> bool:
    return pod != rejected.pod or bool(rejected.targets(pod, hint, tuple(snapshot.nodes)))


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task for pinned pods."""
    claims, lease = PinnedClaims(handle.binder.claims, handle.in_background), handle.lease(PINNED_PODS)
    return [PinnedPods(handle.state, claims, lease, handle.solver, handle.asked, handle.tell, handle.now)]
