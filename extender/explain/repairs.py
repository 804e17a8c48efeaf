"""A pool that cannot be used because its ResourceSlices contradict each other: its driver has to correct them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from allocator import Device, DeviceId, Kind, Pool, Quantity, Slice
from extender.explain.changes import Change
from extender.explain.holders import MAX_NAMED
from extender.state.snapshot import Snapshot


def repair(pool: Pool, problem: str) -> Change:
    """Let the driver correct the newest generation of a pool, for example ``1 of 3 slices are there``."""

    def fork(snapshot: Snapshot) -> Snapshot:
        for each in _corrected(snapshot.inventory.pools[pool.id].newest):
            snapshot = snapshot.with_slice(each)
        return snapshot

    names = [each.name for each in pool.newest]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return Change(
        Kind.REPAIR,
        f"pool {pool.id}",
        f"let the driver correct pool {pool.id}: {problem}",
        f"its ResourceSlices: {', '.join(names[:MAX_NAMED])}{more}; "
        f"kubectl get resourceslices --field-selector spec.driver={pool.id.driver}",
        fork,
    )


def _corrected(slices: Sequence[Slice]) -> Iterator[Slice]:
    """The same slices in the right number, with each name once and all counters that devices consume."""
    sets: dict[str, dict[str, Quantity]] = {}
    for use in (use for each in slices for device in each.devices for use in device.consumes_counters):
        needed = sets.setdefault(use.counter_set, {})
        for name, amount in use.counters.items():
            needed[name] = max(needed.get(name, amount), amount)
    for name, published in (pair for each in slices for pair in each.counter_sets):
        sets[name] = {**sets.get(name, {}), **published}
    seen: Counter[str] = Counter()

    def renamed(device: Device) -> Device:
        name = device.id.device
        seen[name] += 1
        if seen[name] == 1:
            return device
        return replace(device, id=DeviceId(*device.id.pool_id, f"{name}-{seen[name]}"))

    count = len(slices) + bool(sets)
    for each in slices:
        yield replace(each, slice_count=count, devices=tuple(map(renamed, each.devices)), counter_sets=())
    if sets:
        name = f"{slices[0].name}-all-counters"
        yield replace(slices[0], name=name, slice_count=count, devices=(), counter_sets=tuple(sets.items()))
