"""Keeps the statuses of DeviceQuotas."""

from functools import partial
from typing import Final

import structlog

from allocator import SearchLimitError
from extender.background.task import BackgroundTask, Rejection
from extender.decisions.solver import Solver
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.offload import Offload
from extender.pods.device_quota import total_of
from extender.quota.device_status import status_of
from extender.state.objects import Pod
from extender.state.snapshot import Snapshot
from extender.state.state import ClusterState
from extender.writes.quota_status import write_quota_status

logger = structlog.get_logger()

PAUSE_SECONDS: Final = 5.0
"""Between two looks at the quotas; a status that is right is not written."""


class QuotaStatus(BackgroundTask):
    """Writes what is used of each quota. Only a replica writes that a scheduler has asked: the others stand by.

    Args:
        state: the cluster.
        api: takes the statuses.
        solver: its clock counts, and its selectors judge devices.
        off_loop: where usage is added up.
    """

    def __init__(self, state: ClusterState, api: Api, solver: Solver, off_loop: Offload) -> None:
        self._state = state
        self._api = api
        self._solver = solver
        self._off_loop = off_loop
        self._is_asked = False
        self._again = 0.0

    def on_rejected(self, rejection: Rejection) -> None:
        """A scheduler asks this replica."""
        del rejection
        self._is_asked = True

    def on_passed(self, pod: Pod) -> None:
        """A scheduler asks this replica."""
        del pod
        self._is_asked = True

    async def tick(self) -> None:
        """Write the statuses that are wrong."""
        snapshot, now = self._state.snapshot, self._solver.clock()
        if not snapshot.device_quotas or not self._is_asked or now < self._again or self._state.not_ready:
            return
        self._again = now + PAUSE_SECONDS
        for key, status in (await self._off_loop(partial(_wrong, snapshot, self._solver))).items():
            try:
                await write_quota_status(self._api, key, status)
            except (ApiError, OutcomeUnknownError) as error:
                logger.warning("status of quota not written", quota=str(key), error=str(error))


def _wrong(snapshot: Snapshot, solver: Solver) -> dict[ObjectKey, RawObject]:
    """The statuses that differ from what is written."""
    found = {}
    for key, quota in snapshot.device_quotas.items():
        try:
            totals = {limit.name: total_of(quota, limit, snapshot, solver) for limit in quota.limits}
        except SearchLimitError as error:
            logger.warning("usage of quota not counted", quota=str(key), error=str(error))
            continue
        status = status_of(quota, totals, snapshot)
        if status != quota.status:
            found[key] = status
    return found
