"""The use of the limits of DeviceQuotas, for metrics."""

from typing import NamedTuple

from allocator import SearchLimitError
from extender.cluster.objects.device_quotas import counted_name
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import Solver
from extender.plugins.quota.pod_quota import kept_of, total_of

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
