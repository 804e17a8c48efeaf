"""The table of DeviceQuotas: a row for each amount that a limit counts."""

from collections.abc import Iterator
from functools import partial

from allocator import SearchLimitError
from extender.decisions.solver import Solver
from extender.observe.tables.table import Item, Row, TableView, matches
from extender.pods.pod_quota import total_of
from extender.quota.device_quotas.overrun import excess
from extender.state.objects.device_quotas import Amounts, DeviceLimit, DeviceQuota, counted_name
from extender.state.snapshot import Snapshot


def quotas(snapshot: Snapshot, solver: Solver, *, namespace: str = "") -> TableView:
    """What is used of each limit, in one namespace or in all. Assumed allocations do not count.

    Args:
        snapshot: the cluster.
        solver: remembers what was counted before.
        namespace: empty for all.
    """
    columns = ("namespace", "quota", "limit", "of", "counts", "hard", "used", "borrowed", "cohort", "problem")

    def rows() -> Iterator[Row]:
        for key in sorted(snapshot.device_quotas):
            quota = snapshot.device_quotas[key]
            for number, limit in enumerate(quota.limits if matches(namespace, quota.namespace) else ()):
                used = _used(quota, limit, snapshot, solver)
                for counts in limit.hard:
                    yield Row((*key, f"{number:06}", counts), partial(_item, quota, limit, counts, used))

    return TableView(columns, rows())


def _used(quota: DeviceQuota, limit: DeviceLimit, snapshot: Snapshot, solver: Solver) -> Amounts | None:
    """What is used of a limit; None if its selectors take too long."""
    try:
        return total_of(quota, limit, snapshot, solver).amounts
    except SearchLimitError:
        return None


def _item(quota: DeviceQuota, limit: DeviceLimit, counts: str, used: Amounts | None) -> Item:
    beyond = None if used is None else excess(limit, used).get(counts)
    return {
        "namespace": quota.namespace,
        "quota": quota.name,
        "limit": limit.name,
        "of": ", ".join((*((f"class {limit.device_class}",) if limit.device_class else ()), *limit.selectors)),
        "counts": counted_name(counts),
        "hard": str(limit.hard[counts]),
        "used": "" if used is None else str(used[counts]),
        "borrowed": "" if beyond is None else str(beyond),
        "cohort": quota.cohort,
        "problem": "the selectors of the limit take too long" if used is None else "",
    }
