"""Deallocate: a claim that no other pod uses gives its devices back if they keep its pod off every node.

A claim of a PodGroup is used if a pod of the group has a node.

kube-scheduler's own plugin does so in PostFilter, which extenders have not (Kubernetes 1.36, plugin DynamicResources).
The claim's update wakes the pod.
"""

from collections.abc import Callable, Collection, Sequence

import structlog
from prometheus_client import Counter

from allocator import Reason
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import has_other_consumers, is_in_use, users_of
from extender.cluster.objects.claims import ClaimObject, is_immediate
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.writer import Writer
from extender.framework.handle import Handle
from extender.framework.plugin import WaitingPlugin
from extender.framework.pods.claims import ALLOCATED_ELSEWHERE, Blocked, claims_of
from extender.framework.task import BackgroundTask, Rejection
from extender.kube.api import OutcomeUnknownError, WriteRefusedError
from extender.tools.faults import Faults

logger = structlog.get_logger()


def claim_in_the_way(pod: Pod, reasons: Collection[Reason], snapshot: Snapshot) -> ClaimObject | None:
    """A claim of the pod that has ruled out a node, and that no other pod uses. Immediate claims stay allocated.

    Args:
        pod: for which no node was left.
        reasons: why its nodes were rejected.
        snapshot: the cluster.
    """
    claims = claims_of(pod, snapshot)
    if isinstance(claims, Blocked):
        return None
    names = {reason.claim for reason in reasons if reason.cause is ALLOCATED_ELSEWHERE}
    blocking = (each for each in claims.allocated if each.claim.name in names)
    return next((each for each in blocking if _is_idle(each, pod, snapshot)), None)


def _is_idle(found: ClaimObject, pod: Pod, snapshot: Snapshot) -> bool:
    is_flying = found.claim.uid in snapshot.assumed
    return (
        not is_flying
        and not is_immediate(found.claim)
        and not has_other_consumers(pod, found.claim, snapshot)
        and not is_in_use(found.claim, snapshot)
    )


class Deallocator(BackgroundTask):
    """Deallocates claims that were found to be in the way.

    Args:
        state: the cluster.
        writer: writes to it.
        is_binding: whether a bind of the pod with this uid is running.
        faults: gets unexpected errors, each with its pod.
        on_woken: told of each pod that is woken by this.
        plugins: the features that allocate some claims by themselves, and give these back.
    """

    def __init__(
        self,
        state: ClusterState,
        writer: Writer,
        is_binding: Callable[[str], bool],
        faults: Faults,
        on_woken: Callable[[Pod], None],
        plugins: Sequence[WaitingPlugin] = (),
    ) -> None:
        self._state = state
        self._writer = writer
        self._plugins = plugins
        self._is_binding = is_binding
        self._faults = faults
        self._on_woken = on_woken
        self._proposed: dict[str, tuple[ClaimObject, Pod]] = {}

    def on_rejected(self, rejection: Rejection) -> None:
        """Look for a claim in the way, once the pod's scheduler gives up."""
        if rejection.is_final:
            self.propose(rejection.pod, rejection.result.unresolvable.distinct)

    def propose(self, pod: Pod, reasons: Collection[Reason]) -> None:
        """Filter has rejected all nodes, for these reasons. Nothing is written yet: the answer goes first."""
        found = claim_in_the_way(pod, reasons, self._state.snapshot)
        if found is not None:
            self._proposed[found.claim.uid] = (found, pod)

    async def tick(self) -> None:
        """Deallocate what was proposed. A claim that has changed meanwhile is left for the pod's next filter."""
        while self._proposed:
            uid = next(iter(self._proposed))
            claim, pod = self._proposed.pop(uid)
            snapshot = self._state.snapshot
            users = (pod, *users_of(claim.claim, snapshot))
            if uid in snapshot.assumed or any(self._is_binding(user.uid) for user in users):
                continue
            with self._faults.of(f"pod {pod}"):
                if await self._is_deallocated(claim, pod):
                    self._on_woken(pod)

    async def _is_deallocated(self, claim: ClaimObject, pod: Pod) -> bool:
        for each in self._plugins:
            if (is_asked := await each.deallocate(claim)) is not None:
                return is_asked
        try:
            await self._writer.deallocate(claim, pod)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("claim not deallocated", claim=str(claim.key), pod=str(pod), error=str(error))
            return False
        logger.info("claim deallocated", claim=str(claim.key), pod=str(pod))
        return True


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task that deallocates claims, and counts them."""
    text = "Claims that gave back their devices because they kept their pod off every node."
    deallocated = Counter("dra_extender_deallocated_claims", text, registry=handle.registry)

    def on_woken(pod: Pod) -> None:
        handle.background.note_woken(pod)
        deallocated.inc()

    binder = handle.binder
    return [Deallocator(handle.state, handle.writer, binder.is_binding, handle.faults, on_woken, binder.plugins)]
