"""Keeps the statuses of DeviceQuotas."""

from collections.abc import Collection
from functools import partial
from typing import Final

import structlog

from allocator import SearchLimitError
from extender.background.task import BackgroundTask
from extender.cluster.cluster_state import ClusterState
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import Solver
from extender.fairness.turns import Turns
from extender.kube.api import Api, ObjectKey, RawObject
from extender.kube.errors import ApiError, OutcomeUnknownError, WriteRefusedError
from extender.kube.resources import DEVICE_QUOTAS
from extender.pods.pod_quota import kept_of, total_of
from extender.quota.device_quotas.status import status_of
from extender.tools.offload import Offload
from extender.writes.lease import SharedLease


async def write_quota_status(api: Api, key: ObjectKey, status: RawObject) -> None:
    """Write what is used of a quota, whatever others have written.

    Raises:
        ApiError, OutcomeUnknownError: as `Api.patch_status`.
    """
    await api.patch_status(DEVICE_QUOTAS, key, {"status": status})


logger = structlog.get_logger()

PAUSE_SECONDS: Final = 5.0
"""The pause between two looks at the quotas."""

SOON_SECONDS: Final = 1.0
"""From the look that finds a wrong status until the lease may be held; by then the watch shows what was written."""


LOOK_SECONDS: Final = 2.0
"""How long one look may take. The quotas that it does not get to come first in the next one, a second later."""


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
        self._turns = Turns(solver.clock)
        self._look = 0
        self._looked: dict[ObjectKey, int] = {}
        """The number of the look that got to a quota last; quotas with the lowest number come first."""

    async def tick(self) -> None:
        """Write the statuses that are wrong."""
        snapshot, now = self._state.snapshot, self._solver.clock()
        if now < self._again or self._state.not_ready:
            return
        self._again = now + PAUSE_SECONDS
        wrong = await self._off_loop(partial(self._wrong, snapshot)) if snapshot.device_quotas else {}
        is_over = all(self._looked.get(key) == self._look for key in snapshot.device_quotas)
        if not is_over:
            self._again = self._solver.clock() + SOON_SECONDS
        if not await self._may_write(wrong, is_over=is_over):
            self._looked.update(dict.fromkeys(wrong, 0))
            return
        for key, status in wrong.items():
            try:
                await write_quota_status(self._api, key, status)
            except (ApiError, OutcomeUnknownError) as error:
                logger.warning("status of quota not written", quota=str(key), error=str(error))

    async def _may_write(self, wrong: Collection[ObjectKey], *, is_over: bool) -> bool:
        """Whether this replica has held the lease for a while, so that it has seen what the last holder wrote."""
        try:
            if not wrong:
                if is_over:
                    await self._lease.give_back()
                return False
            is_held = await self._lease.take()
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.warning("status of quota not written", quotas=len(wrong), error=str(error))
            return False
        if not is_held:
            self._again = self._solver.clock() + SOON_SECONDS
        return is_held

    def _wrong(self, snapshot: Snapshot) -> dict[ObjectKey, RawObject]:
        """The statuses that differ from the statuses on the API server, in fair turns of the namespaces."""
        until, found = self._solver.clock() + LOOK_SECONDS, {}
        self._look += 1
        self._looked = {key: self._looked.get(key, 0) for key in snapshot.device_quotas}
        keys = sorted(self._looked, key=self._looked.__getitem__)
        for key in self._turns.ordered(keys, lambda key: key.namespace):
            if self._solver.clock() > until:
                break
            self._looked[key] = self._look
            quota = snapshot.device_quotas[key]
            with self._turns.of(key.namespace):
                try:
                    totals = {limit.name: total_of(quota, limit, snapshot, self._solver) for limit in quota.limits}
                    kept = {limit.name: kept_of(quota, limit, snapshot, self._solver).amounts for limit in quota.limits}
                except (SearchLimitError, TimeoutError) as error:
                    logger.warning("usage of quota not counted", quota=str(key), error=str(error))
                    continue
            status = status_of(quota, totals, kept, snapshot)
            if status != quota.status:
                found[key] = status
        return found
