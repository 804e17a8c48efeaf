"""Keeps the statuses of DeviceQuotas: what is used of each limit, and by which claims."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

import structlog

from allocator import Claim, SearchLimitError
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import pods_of
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.device_quotas import DEVICES, Amounts, DeviceLimit, DeviceQuota, counted_name
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.lease import LONG, SharedLease
from extender.cluster.writes.other_kinds import write_quota_status
from extender.framework.decisions.solver import Solver
from extender.framework.handle import Handle
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject, WriteRefusedError
from extender.plugins.quota.limit_use import QuotaMetrics
from extender.plugins.quota.pod_quota import excess, kept_of, total_of
from extender.plugins.quota.totals import Total
from extender.plugins.quota.usage import Taken, total
from extender.tools.fairness.turns import Turns
from extender.tools.offload import Offload

QUOTA_STATUS: Final = ObjectKey("kube-system", "dra-extender-quota-status")
"""The lease of the replica that writes the statuses of DeviceQuotas."""

MOST_CLAIMS: Final = 20
"""The most claims that a status names."""

_MOST_PODS: Final = 5
"""The most pods that a status names for a claim."""


def status_of(
    quota: DeviceQuota, totals: Mapping[str, Total], kept: Mapping[str, Amounts], snapshot: Snapshot
) -> RawObject:
    """The status, as JSON. Assumed allocations do not count: they may never be written.

    Args:
        quota: of a namespace.
        totals: what the namespace is allocated, by the name of the limit.
        kept: what is kept for pods of the namespace, in the same way.
        snapshot: the snapshot that the totals were counted on.
    """
    counted = {uid for total in totals.values() for uid, part in total.parts.items() if part.amounts}
    users = [claim for uid in counted if (claim := snapshot.claim(uid)) is not None]
    users.sort(key=lambda claim: (-_devices(claim), claim.claim.name))
    return {
        "observedGeneration": quota.generation,
        "summary": ", ".join(_summary(limit, totals[limit.name].amounts, kept[limit.name]) for limit in quota.limits),
        "limits": [_limit(limit, totals[limit.name].amounts, kept[limit.name]) for limit in quota.limits],
        "claims": len(users),
        "usedBy": _users(users[:MOST_CLAIMS], snapshot),
    }


def _summary(limit: DeviceLimit, allocated: Amounts, kept: Amounts) -> str:
    """``gpu 5/8 100Gi/160Gi memory``, or ``gpu 5/8 (2 kept)``."""
    used = total((allocated, kept))
    parts = (
        f"{used[name]}/{hard}"
        + ("" if name == DEVICES else f" {counted_name(name)}")
        + (f" ({kept[name]} kept)" if name in kept and kept[name].nano else "")
        for name, hard in limit.hard.items()
    )
    return f"{limit.name} {' '.join(parts)}"


def _limit(limit: DeviceLimit, allocated: Amounts, kept: Amounts) -> RawObject:
    used = total((allocated, kept))
    over, waiting = excess(limit, used), {name: amount for name, amount in kept.items() if amount.nano}
    found: RawObject = {"name": limit.name, "used": _texts(used)}
    found |= {"kept": _texts(waiting)} if waiting else {}
    return found | ({"borrowed": _texts(over)} if over else {})


def _users(users: Sequence[ClaimObject], snapshot: Snapshot) -> list[RawObject]:
    return [
        {
            "claim": claim.claim.name,
            "devices": _devices(claim),
            "pods": list(islice(_pods(claim.claim, snapshot), _MOST_PODS)),
        }
        for claim in users
    ]


def _pods(claim: Claim, snapshot: Snapshot) -> Iterator[str]:
    """The names of the pods for which a claim is reserved, by themselves or by their PodGroup."""
    yield from (user.name for user in claim.reserved_for if not user.is_pod_group)
    yield from (pod.name for user in claim.reserved_for if user.is_pod_group for pod in pods_of(user, claim, snapshot))


def _devices(claim: ClaimObject) -> int:
    """The devices of a claim, and those that it has asked a controller for that names none."""
    if claim.claim.allocation is None:
        return 0
    taken = Taken(claim.claim.spec, claim.claim.allocation)
    return len(taken.allocation.results) + sum(each.alternatives[0].count for each in taken.unlisted)


def _texts(amounts: Amounts) -> dict[str, str]:
    return {counted_name(name): str(amount) for name, amount in amounts.items()}


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

    @property
    def idle_seconds(self) -> float:
        """Until the next look, if there are quotas."""
        is_idle = not (self._state.snapshot.device_quotas or self._lease.is_held)
        return UNTIL_NEWS if is_idle else self._again - self._solver.clock()

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


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task of DeviceQuotas; their use is in the metrics."""
    handle.registry.register(QuotaMetrics(handle.state, handle.solver))
    lease = handle.lease(QUOTA_STATUS, LONG)
    return [QuotaStatus(handle.state, handle.api, lease, handle.solver, handle.in_background)]
