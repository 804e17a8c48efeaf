"""A pool that cannot be used because its ResourceSlices contradict each other: its driver has to correct them."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from allocator import CounterConsumption, Device, DeviceId, Pool, Quantity, RemedyKind, Slice
from allocator.tools import meant_by
from extender.cluster.snapshot import Snapshot
from extender.explain.change import ProposedChange
from extender.explain.holders import MAX_NAMED

CounterSets = dict[str, dict[str, Quantity]]


@dataclass(frozen=True, slots=True)
class _Corrected:
    """The slices as the driver should publish them, and the orders that lead there."""

    slices: tuple[Slice, ...]
    orders: tuple[str, ...]


def repair(pool: Pool, problem: str) -> ProposedChange:
    """Let the driver correct the newest generation of a pool, for example ``1 of 3 slices are there``."""
    corrected = _corrected(pool.newest)

    def fork(snapshot: Snapshot) -> Snapshot:
        for each in corrected.slices:
            snapshot = snapshot.with_slice(each)
        return snapshot

    names = [each.name for each in pool.newest]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ProposedChange(
        RemedyKind.REPAIR,
        f"pool {pool.id}",
        f"let the driver correct pool {pool.id}: {problem}",
        f"in its ResourceSlices ({', '.join(names[:MAX_NAMED])}{more}): {'; '.join(corrected.orders)}",
        fork,
    )


def _corrected(slices: Sequence[Slice]) -> _Corrected:
    """The same slices in the right number, with each name once and all counters that devices consume."""
    orders: list[str] = []
    published = [pair for each in slices for pair in each.counter_sets]
    correct = _Correcting({name: dict(counters) for name, counters in published}, orders)
    named = [replace(each, devices=tuple(map(correct.device, each.devices))) for each in slices]
    sets = _complete(named)
    if len(published) > len(sets) or dict(published) != sets:
        named = [replace(each, counter_sets=()) for each in named]
        name = f"{named[0].name}-all-counters"
        named.append(replace(named[0], name=name, devices=(), counter_sets=tuple(sets.items())))
        orders.append(f"publish sharedCounters in one more slice only: {_counters_text(sets)}")
    if any(each.slice_count > len(named) for each in named):
        orders.append(f"publish the missing slices or, if these are all, write resourceSliceCount: {len(named)}")
    elif any(each.slice_count < len(named) for each in named):
        orders.append(f"write resourceSliceCount: {len(named)}")
    return _Corrected(tuple(replace(each, slice_count=len(named)) for each in named), tuple(orders))


class _Correcting:
    """Corrects the names in the devices of a pool: further devices of a name, and misspelled counters."""

    def __init__(self, sets: CounterSets, orders: list[str]) -> None:
        self._sets = sets
        self._orders = orders
        self._seen: Counter[str] = Counter()

    def device(self, device: Device) -> Device:
        """The device with names that can be used."""
        name = device.id.device
        uses = tuple(self._use(name, each) for each in device.consumes_counters)
        self._seen[name] += 1
        if self._seen[name] > 1:
            other = f"{name}-{self._seen[name]}"
            self._orders.append(f"rename device number {self._seen[name]} with the name {name} to {other}")
            device = replace(device, id=DeviceId(*device.id.pool_id, other))
        return replace(device, consumes_counters=uses)

    def _use(self, device: str, use: CounterConsumption) -> CounterConsumption:
        counter_set = self._meant(device, "counterSet:", use.counter_set, self._sets)
        known = self._sets.get(counter_set, {})
        counters = {self._meant(device, "counter", name, known): amount for name, amount in use.counters.items()}
        return replace(use, counter_set=counter_set, counters=counters)

    def _meant(self, device: str, what: str, name: str, known: Collection[str]) -> str:
        meant = name if name in known else meant_by(name, known)
        if meant and meant != name:
            self._orders.append(f"in device {device}, write {what} {meant} instead of {name}")
        return meant or name


def _complete(slices: Sequence[Slice]) -> CounterSets:
    """All counter sets that are published or consumed. A counter that is only consumed has the largest amount."""
    sets: CounterSets = {}
    for use in (use for each in slices for device in each.devices for use in device.consumes_counters):
        needed = sets.setdefault(use.counter_set, {})
        for name, amount in use.counters.items():
            needed[name] = max(needed.get(name, amount), amount)
    for name, counters in (pair for each in slices for pair in each.counter_sets):
        sets[name] = {**sets.get(name, {}), **counters}
    return sets


def _counters_text(sets: CounterSets) -> str:
    """``{silicon: {memory: 40Gi}}``."""
    texts = (f"{name}: {{{', '.join(f'{n}: {q}' for n, q in counters.items())}}}" for name, counters in sets.items())
    return f"{{{', '.join(texts)}}}"
