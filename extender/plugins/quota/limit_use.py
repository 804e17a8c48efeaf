"""The use of the limits of DeviceQuotas: for metrics, for a table with a row for each amount, and for problems."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from allocator import SearchLimitError
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.device_quotas import Amounts, DeviceLimit, DeviceQuota, counted_name
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.framework.problem import Look, Problem
from extender.kube.api import ObjectKey
from extender.kube.resources import DEVICE_QUOTAS
from extender.plugins.quota.pod_quota import excess, kept_of, total_of
from extender.plugins.quota.usage import total
from extender.tools.metrics import gauge
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
