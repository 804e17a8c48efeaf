"""Abandoned claims: allocated for a pod that has a node already, and not reserved before the pod ended.

`extender.plugins.pinned_claims` gives such a claim back. But a process that ends forgets for which pods it has
allocated. So the claim itself names its pod (`extender.cluster.writes.reservations.AllocationFirst`), and any process
gives it back after a minute. Nobody can run with the claim: it is reserved for nobody in the version that is written.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import structlog

from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import ALLOCATED_FOR, ClaimObject, is_immediate
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, View
from extender.cluster.writes.writer import Writer
from extender.framework.handle import Handle
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import ObjectKey, OutcomeUnknownError, WriteRefusedError
from extender.tools.fairness import one_of_each
from extender.tools.faults import Faults
from extender.tools.offload import Offload

logger = structlog.get_logger()

IDLE_SECONDS: Final = 60.0
"""A claim that has not changed for so long is not about to be reserved. The watch of pods may be late by less."""

AGAIN_SECONDS: Final = 10.0
"""Between two tries to give a claim back."""


class UnreservedClaims(View[Mapping[ObjectKey, ClaimObject]]):
    """Finds the claims that are allocated for one pod by name, and reserved for nobody."""

    topics = frozenset({Topic.CLAIM})
    bound = "the claims that are allocated for pods with a node, and not reserved yet"

    def build(self, snapshot: Snapshot) -> Mapping[ObjectKey, ClaimObject]:
        """All such claims."""
        return {key: found for key, found in snapshot.claims.items() if _is_unreserved(found)}

    def apply(
        self, value: Mapping[ObjectKey, ClaimObject], reach: Reach, snapshot: Snapshot
    ) -> Mapping[ObjectKey, ClaimObject]:
        """Such claims, with those that have changed as they are now."""
        keys = reach.keys(Topic.CLAIM)
        if not keys:
            return value
        kept = {key: found for key, found in value.items() if key not in keys}
        changed = ((key, snapshot.claims.get(key)) for key in keys)
        return kept | {key: found for key, found in changed if found is not None and _is_unreserved(found)}


def _is_unreserved(found: ClaimObject) -> bool:
    claim = found.claim
    is_named = ALLOCATED_FOR in claim.annotations and not is_immediate(claim)
    return is_named and claim.allocation is not None and not (claim.reserved_for or claim.deleting)


class AbandonedClaims(BackgroundTask):
    """Gives back the claims whose pod has ended before it had them.

    Args:
        state: the cluster.
        writer: writes to it.
        faults: gets unexpected errors, each with its claim.
        clock: measures durations, in seconds.
        off_loop: where all claims are looked through, if it is not known which of them have changed.
    """

    def __init__(
        self, state: ClusterState, writer: Writer, faults: Faults, clock: Callable[[], float], off_loop: Offload
    ) -> None:
        self._state = state
        self._writer = writer
        self._faults = faults
        self._clock = clock
        self._off_loop = off_loop
        self._unreserved = UnreservedClaims(state)
        self._due: dict[ClaimObject, float] = {}
        """When each unreserved claim is looked at, unless it changes before."""

    @property
    def idle_seconds(self) -> float:
        """Until the first claim is looked at."""
        return min(self._due.values()) - self._clock() if self._due else UNTIL_NEWS

    async def tick(self) -> None:
        """Give back the claims that are due, in turns of the namespaces."""
        if self._state.not_ready:
            return
        there = await self._off_loop(partial(self._unreserved.at, self._state.snapshot))
        now = self._clock()
        self._due = {each: self._due.get(each, now + IDLE_SECONDS) for each in there.values()}
        queues: dict[str, list[ClaimObject]] = {}
        for each, due in self._due.items():
            if due <= now:
                queues.setdefault(each.key.namespace, []).append(each)
        for each in one_of_each(queues):
            self._due[each] = now + AGAIN_SECONDS
            with self._faults.of(f"claim {each.key}"):
                await self._give_back(each)

    async def _give_back(self, found: ClaimObject) -> None:
        snapshot = self._state.snapshot
        if found.claim.uid in snapshot.assumed or is_awaited(found, snapshot):
            return
        try:
            await self._writer.deallocate_as_known(found)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("claim not deallocated", claim=str(found.key), error=str(error))
        else:
            logger.info("abandoned claim deallocated", claim=str(found.key))


def is_awaited(found: ClaimObject, snapshot: Snapshot) -> bool:
    """Whether the pod for which a claim was allocated, or another pod with a node, may still get the claim."""
    own = snapshot.pod(found.claim.annotations.get(ALLOCATED_FOR, ""))
    if own is not None and not own.is_finished:
        return True
    return any(
        pod.namespace == found.key.namespace and pod.node_name and not pod.is_finished and found.key in claim_keys(pod)
        for pod in snapshot.pods.values()
    )


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task for abandoned claims."""
    return [AbandonedClaims(handle.state, handle.writer, handle.faults, handle.clock, handle.in_background)]
