"""Scheduling contexts: PodSchedulingContexts that are done are deleted, and claims that nobody needs are deallocated.

A context is done when its pod is gone, or has a node and all its claims. A claim that was allocated for a pod that is
gone is given back by its controller (KEP-3063: kube-controller-manager asks for that).
"""

from collections.abc import Callable
from typing import Final

import structlog

from extender.cluster.consumers import claim_keys
from extender.cluster.kinds import Topic
from extender.cluster.objects.scheduling_contexts import SchedulingContext
from extender.cluster.snapshot import Snapshot
from extender.framework.bound_pods import needs_claims
from extender.framework.pods.claims import named_claims
from extender.framework.task import BackgroundTask
from extender.kube.api import ApiError, ObjectKey, OutcomeUnknownError
from extender.kube.resources import PODS
from extender.plugins.negotiation.deallocation import Deallocation
from extender.plugins.negotiation.scheduling_contexts import Contexts

logger = structlog.get_logger()

_PAUSE_SECONDS: Final = 1.0
_IDLE_SECONDS: Final = 10.0
"""A claim is allocated without a pod for this long before it is deallocated: a pod may be on its way."""


class SchedulingContexts(BackgroundTask):
    """Deletes contexts that are done, and has controllers deallocate claims that no pod needs.

    Args:
        contexts: the contexts.
        deallocation: asks controllers to deallocate.
        clock: measures durations, in seconds.
    """

    def __init__(self, contexts: Contexts, deallocation: Deallocation, clock: Callable[[], float]) -> None:
        self._contexts = contexts
        self._deallocation = deallocation
        self._state = contexts.state
        self._clock = clock
        self._again = 0.0
        self._seen = -1
        self._idle: dict[ObjectKey, float] = {}

    @property
    def idle_seconds(self) -> float:
        """Until the next look."""
        return self._again - self._clock()

    async def tick(self) -> None:
        """Look at contexts and claims, once a second."""
        if self._state.not_ready or self._clock() < self._again:
            return
        self._again = self._clock() + _PAUSE_SECONDS
        snapshot = self._state.snapshot
        for each in snapshot.objects(SchedulingContext).values():
            if self._is_done(each, snapshot):
                await self._removed(each)
        self._follow(snapshot)
        await self._deallocate_idle(snapshot)

    def _is_done(self, context: SchedulingContext, snapshot: Snapshot) -> bool:
        pod = snapshot.pods.get(context.key)
        if pod is None or pod.uid != context.pod_uid:
            return self._state.seen(PODS) >= context.revision
        if pod.is_finished:
            return True
        return bool(pod.node_name) and all(
            claim.claim.allocation is not None and claim.claim.is_reserved_for(pod.uid, pod.pod_group)
            for _, claim in named_claims(pod, snapshot)
        )

    async def _removed(self, context: SchedulingContext) -> None:
        try:
            await self._contexts.writes.remove(context)
        except (ApiError, OutcomeUnknownError) as error:
            if not (isinstance(error, ApiError) and (error.is_missing or error.is_conflict)):
                logger.warning("scheduling context not deleted", context=str(context.key), error=str(error))

    def _follow(self, snapshot: Snapshot) -> None:
        """Find the claims that are allocated and used by nobody, among those that have changed."""
        changed = self._state.since(self._seen).keys(Topic.CLAIM)
        self._seen = snapshot.version
        for key in [*snapshot.claims, *self._idle] if changed is None else changed:
            claim = snapshot.claims.get(key)
            if claim is not None and self._deallocation.is_idle(claim):
                self._idle.setdefault(key, self._clock())
            else:
                self._idle.pop(key, None)

    async def _deallocate_idle(self, snapshot: Snapshot) -> None:
        due = [key for key, since in self._idle.items() if since + _IDLE_SECONDS <= self._clock()]
        if not due:
            return
        # A pod that has its node may wait for other claims.
        users = (pod for pod in snapshot.pods.values() if pod.is_pending or needs_claims(pod))
        wanted = {key for pod in users for key in claim_keys(pod)}
        for key in due:
            claim = snapshot.claims.get(key)
            if claim is not None and key not in wanted and claim.claim.uid not in snapshot.assumed:
                self._idle[key] = self._clock()  # if it fails, it is tried again later
                await self._deallocation.request(claim)
