"""The claims of a pinned pod: allocated for its node, checked, and reserved for the pod.

A bind checks what it has written before its Binding. A pinned pod has no Binding: kubelet starts the pod as soon as its
claims are reserved. So a claim is allocated first, and then reserved in the very version that was checked.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import structlog

from extender.cluster.consumers import claim_keys
from extender.cluster.controller_marks import is_marked
from extender.cluster.objects.claims import ClaimObject, is_immediate
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.pods import NodeResources
from extender.framework.bind.claim_allocator import ClaimAllocator
from extender.framework.bind.plan import BindPlan
from extender.framework.bind_errors import BindError
from extender.framework.pods.extended_resources.special_claim import reaches
from extender.kube.api import Api

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PinnedClaims:
    """Allocates and reserves the claims of pods that have a node already.

    Attributes:
        claims: allocates them.
    """

    claims: ClaimAllocator

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

    async def _planned(self, pod: Pod, until: float) -> BindPlan:
        """The writes to make. If no devices fit for all claims together, the claims that no pod uses are given back.

        Devices for extended resources are not allocated: kubelet does not wait for them.
        """
        try:
            return await self.claims.plan(replace(pod, containers=()), until)
        except BindError:
            writer = self.claims.writer
            if not writer.state.not_ready:
                for each in list(_idle(pod, writer.state.snapshot)):
                    await writer.deallocate_as_known(each)
            raise


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
