"""Keeps the statuses of DeviceQuotas."""

from collections.abc import Collection
from functools import partial
from typing import Final

import structlog

from allocator import SearchLimitError
from extender.background.task import BackgroundTask
from extender.decisions.solver import Solver
from extender.kube.api import Api, ObjectKey, RawObject
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.offload import Offload
from extender.pods.pod_quota import kept_of, total_of
from extender.quota.device_quotas.status import status_of
from extender.state.cluster_state import ClusterState
from extender.state.snapshot import Snapshot
from extender.writes.errors import WriteRefusedError
from extender.writes.lease import SharedLease
from extender.writes.quota_status import write_quota_status

logger = structlog.get_logger()

PAUSE_SECONDS: Final = 5.0
"""The pause between two looks at the quotas."""

SOON_SECONDS: Final = 1.0
"""From the look that finds a wrong status until the lease may be held; by then the watch shows what was written."""


class QuotaStatus(BackgroundTask):
    """Writes the used amounts of each quota, in the replica that holds the lease.

    Args:
        state: the cluster.
        api: the API server that the statuses are written to.
        lease: this replica holds it while it writes statuses.
        solver: has the clock, and the selectors that judge devices.
        off_loop: runs the sums in a thread.
    """

    def __init__(self, state: ClusterState, api: Api, lease: SharedLease, solver: Solver, off_loop: Offload) -> None:
        self._state = state
        self._api = api
        self._lease = lease
        self._solver = solver
        self._off_loop = off_loop
        self._again = 0.0

    async def tick(self) -> None:
        """Write the statuses that are wrong."""
        snapshot, now = self._state.snapshot, self._solver.clock()
        if now < self._again or self._state.not_ready:
            return
        self._again = now + PAUSE_SECONDS
        wrong = await self._off_loop(partial(_wrong, snapshot, self._solver)) if snapshot.device_quotas else {}
        if not await self._may_write(wrong):
            return
        for key, status in wrong.items():
            try:
                await write_quota_status(self._api, key, status)
            except (ApiError, OutcomeUnknownError) as error:
                logger.warning("status of quota not written", quota=str(key), error=str(error))

    async def _may_write(self, wrong: Collection[ObjectKey]) -> bool:
        """Whether this replica has held the lease for a while, so that it has seen what the last holder wrote."""
        try:
            if not wrong:
                await self._lease.give_back()
                return False
            is_held = await self._lease.take()
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.warning("status of quota not written", quotas=len(wrong), error=str(error))
            return False
        if not is_held:
            self._again = self._solver.clock() + SOON_SECONDS
        return is_held


def _wrong(snapshot: Snapshot, solver: Solver) -> dict[ObjectKey, RawObject]:
    """The statuses that differ from the statuses on the API server."""
    found = {}
    for key, quota in snapshot.device_quotas.items():
        try:
            totals = {limit.name: total_of(quota, limit, snapshot, solver) for limit in quota.limits}
            kept = {limit.name: kept_of(quota, limit, snapshot, solver).amounts for limit in quota.limits}
        except (SearchLimitError, TimeoutError) as error:
            logger.warning("usage of quota not counted", quota=str(key), error=str(error))
            continue
        status = status_of(quota, totals, kept, snapshot)
        if status != quota.status:
            found[key] = status
    return found
