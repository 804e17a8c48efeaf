"""Keeps the device classes of ResourceClasses, and tells of those that are not accepted."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

import structlog

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.resource_classes import ResourceClass
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.lease import SharedLease
from extender.framework.handle import Handle
from extender.framework.problem import Look, Problem
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, WriteRefusedError
from extender.kube.resources import RESOURCE_CLASSES
from extender.plugins.resource_classes.keeper import keep_device_classes

LEASE: Final = ObjectKey("kube-system", "dra-extender-resource-classes")
"""The lease of the replica that keeps the device classes of ResourceClasses."""

logger = structlog.get_logger()

PAUSE_SECONDS: Final = 1.0
"""The pause between two looks at the classes; by then the watch shows what was written."""

RETRY_SECONDS: Final = 15.0
"""The pause after something could not be written."""


class ResourceClasses(BackgroundTask):
    """Makes a device class of each ResourceClass, in the replica that holds the lease.

    Args:
        state: the cluster.
        api: the API server that the device classes are written to.
        lease: this replica holds it while it writes.
        clock: measures durations, in seconds.
        now: the time, for statuses.
    """

    def __init__(
        self,
        state: ClusterState,
        api: Api,
        lease: SharedLease,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._state = state
        self._api = api
        self._lease = lease
        self._clock = clock
        self._now = now
        self._again = 0.0
        self._done: Snapshot | None = None
        """The snapshot after which nothing was left to write."""

    @property
    def idle_seconds(self) -> float:
        """Until the next look, if there are such classes."""
        is_idle = not (self._state.snapshot.objects(ResourceClass) or self._lease.is_held)
        return UNTIL_NEWS if is_idle else self._again - self._clock()

    async def tick(self) -> None:
        """Write what has to be written, if classes have changed."""
        now, snapshot = self._clock(), self._state.snapshot
        if now < self._again or self._state.not_ready:
            return
        self._again = now + PAUSE_SECONDS
        try:
            if not snapshot.objects(ResourceClass) or self._is_done(snapshot):
                await self._lease.give_back()
            elif await self._lease.take():
                if await keep_device_classes(self._api, self._now):
                    self._done = snapshot
                else:
                    self._again = now + RETRY_SECONDS
        except (ApiError, OutcomeUnknownError, WriteRefusedError) as error:
            self._again = now + RETRY_SECONDS
            logger.warning("resource classes not kept", classes=len(snapshot.objects(ResourceClass)), error=str(error))

    def _is_done(self, snapshot: Snapshot) -> bool:
        done = self._done
        return (
            done is not None
            and done.objects(ResourceClass) is snapshot.objects(ResourceClass)
            and done.classes is snapshot.classes
        )


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task of ResourceClasses."""
    lease = handle.lease(LEASE)
    return [ResourceClasses(handle.state, handle.api, lease, handle.clock, handle.now)]


def problems(look: Look) -> Iterator[Problem]:
    """One for each class that was refused."""
    for each in look.snapshot.objects(ResourceClass).values():
        if each.refusal:
            key, cost = ObjectKey("", each.name), "pods that ask for the class wait"
            advice = "correct the class"
            yield Problem("resource-class", RESOURCE_CLASSES.kind, key, f"not accepted: {each.refusal}", cost, advice)
