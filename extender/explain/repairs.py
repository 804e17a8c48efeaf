"""What a driver can change so that a pool can be used: which ResourceSlices contradict each other, and how not to."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from allocator import CounterConsumption, Device, DeviceId, Features, Pool, PoolId, Quantity, Slice, nearest
from extender.explain.changes import Change, Kind
from extender.state.snapshot import Snapshot

Edit = Callable[[Sequence[Slice]], Iterable[Slice]]
"""The slices of a generation to what they become."""


def repairs(pool: Pool, features: Features) -> frozenset[Change]:
    """All that has to change in the newest generation of a pool; nothing, if nothing is wrong with it."""
    found = _Repairs(pool.id, pool.newest)
    counters = found.counters() if features.partitionable_devices else ()
    return frozenset((*found.count(), *found.devices(), *counters))


@dataclass(frozen=True, slots=True)
class _Repairs:
    """Of the slices of a generation."""

    pool: PoolId
    slices: Sequence[Slice]

    def count(self) -> Iterator[Change]:
        """Slices that are missing, or too many."""
        wanted, there = {s.slice_count for s in self.slices}, len(self.slices)
        if wanted == {there}:
            return
        if min(wanted) > there:
            missing = f"{there} of {' or '.join(map(str, sorted(wanted)))} slices are there"
            text = (
                f"let the driver publish the rest of pool {self.pool} ({missing}): the devices that are there will do"
            )
            how = f"there: {_in(s.name for s in self.slices)}"
            kind = Kind.WAIT
        else:
            text = f"let the driver set resourceSliceCount of pool {self.pool} to {there}, or delete what is left over"
            how = f"it is {', '.join(f'{s.slice_count} in ResourceSlice {s.name}' for s in self.slices)}"
            kind = Kind.REPAIR
        yield self._change("slices", text, how, _counted, kind)

    def devices(self) -> Iterator[Change]:
        """Devices of one name."""
        places = _places((device.id.device, s) for s in self.slices for device in s.devices)
        for name, found in places.items():
            if len(found) > 1:
                text = f"let the driver give {_all_but_one(found)} devices {name} of pool {self.pool} another name"
                yield self._change(f"device {name}", text, f"they are in {_in(found)}", partial(_renamed, name))

    def counters(self) -> Iterator[Change]:
        """Counter sets of one name; counters that devices consume and nobody publishes."""
        places = _places((name, s) for s in self.slices for name, _ in s.counter_sets)
        for name, found in places.items():
            if len(found) > 1:
                text = f"let the driver give {_all_but_one(found)} counter sets {name} of pool {self.pool} another name"
                yield self._change(
                    f"counter set {name}", text, f"they are in {_in(found)}", partial(_renamed_set, name)
                )
        known = {name: counters for s in self.slices for name, counters in s.counter_sets}
        consumed = [(s, d, c) for s in self.slices for d in s.devices for c in d.consumes_counters]
        unknown = _places((use.counter_set, s) for s, _, use in consumed if use.counter_set not in known)
        for name, found in unknown.items():
            yield self._unknown_set(name, found, nearest(name, known))
        for name, counters in known.items():
            uses = [(s, use) for s, _, use in consumed if use.counter_set == name]
            lacking = _places((counter, s) for s, use in uses for counter in use.counters if counter not in counters)
            for counter, found in lacking.items():
                yield self._unknown_counter(name, counter, found, nearest(counter, counters))

    def _unknown_set(self, name: str, found: Sequence[str], meant: str) -> Change:
        what, how = f"counter set {name}", f"it is consumed by devices in {_in(found)}"
        if meant:
            text = f"let the driver write {meant} instead of {name} where devices of pool {self.pool} consume counters"
            return self._change(what, text, how, partial(_corrected_set, name, meant))
        text = f"let the driver publish counter set {name} of pool {self.pool}, in a ResourceSlice of its own"
        return self._change(what, text, how, partial(_with_set, name))

    def _unknown_counter(self, of: str, name: str, found: Sequence[str], meant: str) -> Change:
        what, how = f"counter {of}/{name}", f"it is consumed by devices in {_in(found)}"
        if meant:
            text = f"let the driver write {meant} instead of {name} where devices of pool {self.pool} consume of {of}"
            return self._change(what, text, how, partial(_corrected_counter, of, name, meant))
        text = f"let the driver publish counter {name} in counter set {of} of pool {self.pool}"
        return self._change(what, text, how, partial(_with_counter, of, name))

    def _change(self, what: str, text: str, how: str, edit: Edit, kind: Kind = Kind.REPAIR) -> Change:
        def fork(snapshot: Snapshot) -> Snapshot:
            for each in edit(snapshot.inventory.pools[self.pool].newest):
                snapshot = snapshot.with_slice(each)
            return snapshot

        look = f"kubectl get resourceslices --field-selector spec.driver={self.pool.driver}"
        return Change(kind, f"pool {self.pool}: {what}", text, f"{how}; {look}", fork)


# --- edits ---------------------------------------------------------------------------------------------------


def _counted(slices: Sequence[Slice]) -> Iterator[Slice]:
    return (replace(s, slice_count=len(slices)) for s in slices)


def _renamed(name: str, slices: Sequence[Slice]) -> Iterator[Slice]:
    """All but the first of the devices of a name get a name of their own."""
    seen: Counter[str] = Counter()

    def of(device: Device) -> Device:
        number = seen[device.id.device]
        seen[device.id.device] += 1
        if device.id.device != name or not number:
            return device
        return replace(device, id=DeviceId(*device.id.pool_id, f"{name}-{number}"))

    return (replace(s, devices=tuple(map(of, s.devices))) for s in slices)


def _renamed_set(name: str, slices: Sequence[Slice]) -> Iterator[Slice]:
    """All but the first of the counter sets of a name get a name of their own."""
    seen: Counter[str] = Counter()

    def of(found: str) -> str:
        number = seen[found]
        seen[found] += 1
        return f"{name}-{number}" if found == name and number else found

    return (replace(s, counter_sets=tuple((of(key), value) for key, value in s.counter_sets)) for s in slices)


def _corrected_set(name: str, meant: str, slices: Sequence[Slice]) -> Iterator[Slice]:
    return _consuming(slices, lambda use: replace(use, counter_set=meant) if use.counter_set == name else use)


def _corrected_counter(of: str, name: str, meant: str, slices: Sequence[Slice]) -> Iterator[Slice]:
    def corrected(use: CounterConsumption) -> CounterConsumption:
        if use.counter_set != of:
            return use
        return replace(use, counters={meant if key == name else key: value for key, value in use.counters.items()})

    return _consuming(slices, corrected)


def _with_set(name: str, slices: Sequence[Slice]) -> Iterator[Slice]:
    """A set of its own for what devices consume of it; as much as each of them takes, so that one fits."""
    count, first = len(slices) + 1, slices[0]
    yield from (replace(s, slice_count=count) for s in slices)
    sets = ((name, _largest(name, slices)),)
    yield replace(first, name=f"{first.name}-{name}", slice_count=count, devices=(), counter_sets=sets)


def _with_counter(of: str, name: str, slices: Sequence[Slice]) -> Iterator[Slice]:
    amount = {name: _largest(of, slices)[name]}
    for each in slices:
        sets = tuple((key, {**value, **amount} if key == of else value) for key, value in each.counter_sets)
        yield replace(each, counter_sets=sets)


def _consuming(slices: Sequence[Slice], edit: Callable[[CounterConsumption], CounterConsumption]) -> Iterator[Slice]:
    for each in slices:
        devices = (replace(d, consumes_counters=tuple(map(edit, d.consumes_counters))) for d in each.devices)
        yield replace(each, devices=tuple(devices))


def _largest(of: str, slices: Sequence[Slice]) -> Mapping[str, Quantity]:
    """Of each counter of a set, what the device takes that takes most."""
    found: dict[str, Quantity] = {}
    for use in (use for s in slices for d in s.devices for use in d.consumes_counters if use.counter_set == of):
        for name, amount in use.counters.items():
            found[name] = max(found.get(name, amount), amount)
    return found


# --- words ---------------------------------------------------------------------------------------------------


def _places(named: Iterable[tuple[str, Slice]]) -> Mapping[str, list[str]]:
    """Name to the slices that have it, as often as they do."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, of in named:
        places[name].append(of.name)
    return places


def _all_but_one(found: Sequence[str]) -> str:
    return "one of the two" if len(found) == 2 else f"all but one of the {len(found)}"


def _in(slices: Iterable[str]) -> str:
    return " and ".join(f"ResourceSlice {name}" for name in dict.fromkeys(slices))
