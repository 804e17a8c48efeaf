"""The use of the limits of DeviceQuotas: in statuses, in metrics, in a table with a row for each amount; problems."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

import structlog
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

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
from extender.framework.problem import Look, Problem
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject, WriteRefusedError
from extender.kube.resources import DEVICE_QUOTAS
from extender.plugins.quota.pod_quota import excess, kept_of, total_of
from extender.plugins.quota.totals import Total
from extender.plugins.quota.usage import Taken, total
from extender.tools.fairness import Turns
from extender.tools.metrics import gauge
from extender.tools.offload import Offload
from extender.tools.table import Item, Row, TableView, matches

_NANO = 10**9


class LimitUse(NamedTuple):
    """One amount that a quota limits.

    Attributes:
        counts: ``devices``, or the name of a capacity.
        hard: the limit, in devices or in the unit of the capacity.
        used: what is in use of it: allocated, or kept for pods.
        kept: what of it is kept.
    """

    namespace: str
    quota: str
    limit: str
    counts: str
    hard: float
    used: float
    kept: float


def quota_use(snapshot: Snapshot, solver: Solver) -> list[LimitUse]:
    """All amounts, without limits whose selectors take too long.

    Args:
        snapshot: the cluster. Assumed allocations do not count.
        solver: remembers what was counted before.
    """
    found = []
    for quota in snapshot.device_quotas.values():
        for limit in quota.limits:
            try:
                allocated = total_of(quota, limit, snapshot, solver).amounts
                kept = kept_of(quota, limit, snapshot, solver).amounts
            except (SearchLimitError, TimeoutError):
                continue
            for name, hard in limit.hard.items():
                waiting = kept[name].nano if name in kept else 0
                amounts = hard.nano / _NANO, (allocated[name].nano + waiting) / _NANO, waiting / _NANO
                found.append(LimitUse(quota.namespace, quota.name, limit.name, counted_name(name), *amounts))
    return found


class QuotaMetrics(Collector):
    """The limits of all DeviceQuotas and their use, worked out at each scrape."""

    def __init__(self, state: ClusterState, solver: Solver) -> None:
        self._state = state
        self._solver = solver

    def collect(self) -> Iterator[Metric]:
        """All limits."""
        used = quota_use(self._state.snapshot, self._solver)
        # The label is not "namespace": Prometheus gives this label to the pod that it scrapes.
        labels = ("quota_namespace", "quota", "limit", "counts")
        text = "Limits of DeviceQuotas, in devices or in the unit of a capacity."
        yield gauge("quota_limit", text, labels, ((each[:4], each.hard) for each in used))
        text = "What is in use of the limits of DeviceQuotas: allocated to claims, or kept for pods."
        yield gauge("quota_used", text, labels, ((each[:4], each.used) for each in used))
        text = "What is kept of the limits of DeviceQuotas, for nominated pods and gangs; it is in use, too."
        yield gauge("quota_kept", text, labels, ((each[:4], each.kept) for each in used))


def quotas(snapshot: Snapshot, solver: Solver, *, namespace: str = "") -> TableView:
    """What is used of each limit, in one namespace or in all. Assumed allocations do not count.

    Args:
        snapshot: the cluster.
        solver: remembers what was counted before.
        namespace: empty for all.
    """
    columns = ("namespace", "quota", "limit", "of", "counts", "hard", "used", "kept", "borrowed", "cohort", "problem")

    def rows() -> Iterator[Row]:
        for key in sorted(snapshot.device_quotas):
            quota = snapshot.device_quotas[key]
            for number, limit in enumerate(quota.limits if matches(namespace, quota.namespace) else ()):
                use = _use(quota, limit, snapshot, solver)
                for counts in limit.hard:
                    yield Row((*key, f"{number:06}", counts), partial(_item, quota, limit, counts, use))

    return TableView(columns, rows())


class _Use(NamedTuple):
    """The use of a limit, and the part of it that is kept for pods."""

    used: Amounts
    kept: Amounts


def _use(quota: DeviceQuota, limit: DeviceLimit, snapshot: Snapshot, solver: Solver) -> _Use | None:
    """None if the selectors of the limit take too long."""
    try:
        kept = kept_of(quota, limit, snapshot, solver).amounts
        return _Use(total((total_of(quota, limit, snapshot, solver).amounts, kept)), kept)
    except (SearchLimitError, TimeoutError):
        return None


def _item(quota: DeviceQuota, limit: DeviceLimit, counts: str, use: _Use | None) -> Item:
    beyond = None if use is None else excess(limit, use.used).get(counts)
    kept = None if use is None else use.kept.get(counts)
    return {
        "namespace": quota.namespace,
        "quota": quota.name,
        "limit": limit.name,
        "of": ", ".join((*((f"class {limit.device_class}",) if limit.device_class else ()), *limit.selectors)),
        "counts": counted_name(counts),
        "hard": str(limit.hard[counts]),
        "used": "" if use is None else str(use.used[counts]),
        "kept": str(kept) if kept is not None and kept.nano else "",
        "borrowed": "" if beyond is None else str(beyond),
        "cohort": quota.cohort,
        "problem": "the selectors of the limit take too long" if use is None else "",
    }


def problems(look: Look) -> Iterator[Problem]:
    """One for each amount that is over its limit. A loan of the cohort is within the quota."""
    for use in quota_use(look.snapshot, look.solver):
        look.pause()
        quota = look.snapshot.device_quotas[ObjectKey(use.namespace, use.quota)]
        if use.used > use.hard and not quota.cohort:
            text = f"limit {use.limit}: {use.used:g} of {use.hard:g} {use.counts} are in use"
            cost = "no pod of the namespace gets more devices of the limit"
            advice = "raise the limit, or delete pods"
            yield Problem("quota", DEVICE_QUOTAS.kind, ObjectKey(use.namespace, use.quota), text, cost, advice)


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
