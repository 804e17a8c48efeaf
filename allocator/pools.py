"""ResourceSlices to pools: which generation counts, whether a pool can be used, and what a node sees of it.

Only the newest generation of a pool counts. A pool with missing slices is incomplete; a pool that contradicts itself is
invalid. Neither is allocated from, and a request for all devices fails if there is one (upstream: structured allocator,
gathering of pools).
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar

from immutables import Map

from allocator.model.devices import AttributeValue, DeviceId, Placement, PoolId
from allocator.model.features import Features
from allocator.model.nodes import Node
from allocator.model.quantity import Quantity
from allocator.model.slices.device import Device
from allocator.model.slices.slice import Slice
from allocator.node_selectors import placement_matches

Mark: TypeAlias = tuple[str, str]
"""What a node must have to reach a pool: a label with its value, or its name."""

_NAME: Final = ""
"""Stands for a node's name, where a mark has its label."""

_Key = TypeVar("_Key", bound=Hashable)

_NAMES: Final = tuple(each.name for of in (Device, Slice) for each in fields(of))
_DEVICE_FIELDS: Final = attrgetter(*(each.name for each in fields(Device)))
_NAME_OF: Final = attrgetter("name")
_SLICE_FIELDS: Final = attrgetter(*(each.name for each in fields(Slice)))


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A device that a node can reach, with the slice that publishes it.

    Attributes:
        unsupported: an attribute of a type unknown to us; no expression can be evaluated on the device.
    """

    device: Device
    slice: Slice
    unsupported: str = ""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SliceView:
    """The devices of a slice, as far as pools need to know them. It is the same object as long as the slice is.

    Attributes:
        candidates: the devices, as listed.
        attributes: the attributes of each candidate.
        names: the name of each candidate.
        fields: the fields that are set and not empty in a device, or in the slice if it has devices.
        consumers: the devices that consume counters.
        consumed: each counter set that a device consumes, with the counters.
        has_binding_conditions: whether a device has some.
    """

    candidates: tuple[Candidate, ...]
    attributes: tuple[Mapping[str, AttributeValue], ...]
    names: tuple[str, ...]
    fields: frozenset[str]
    consumers: tuple[Device, ...]
    consumed: frozenset[tuple[str, tuple[str, ...]]]
    has_binding_conditions: bool

    @classmethod
    def of(cls, published: Slice) -> "SliceView":
        """The view of a slice."""
        devices = published.devices
        consumers = tuple([device for device in devices if device.consumes_counters])
        return cls(
            tuple([Candidate(device, published, unsupported(device)) for device in devices]),
            tuple([device.attributes for device in devices]),
            tuple([device.id.device for device in devices]),
            _fields_set(published),
            consumers,
            frozenset((c.counter_set, tuple(c.counters)) for d in consumers for c in d.consumes_counters),
            any(device.binding_conditions is not None for device in devices),
        )


@dataclass(slots=True, eq=False)
class PublishedSlice:
    """A slice, with what is found out of it once. Each later version of its pool has the same object.

    Attributes:
        has_groups: whether a device has compatibility groups.
        takes: whether a device takes resources of its node.
    """

    slice: Slice
    has_groups: bool
    takes: bool
    _view: SliceView | None = None

    @classmethod
    def of(cls, published: Slice) -> "PublishedSlice":
        """A slice that is new."""
        return cls(published, _has_groups(published), any(device.node_resources for device in published.devices))

    @property
    def view(self) -> SliceView:
        """What pools need to know of its devices."""
        if self._view is None:
            self._view = SliceView.of(self.slice)
        return self._view


@dataclass(frozen=True, slots=True, eq=False)
class NodePool:
    """The part of a pool that one node sees.

    Attributes:
        problem: why the pool can't be used (then it has no candidates); empty if it can.
        incomplete: the problem is that slices are missing.
        candidates: devices that the node can reach, slices by name, devices as listed.
        attributes: the attributes of each candidate.
        slices: the slices of the candidates; empty if the pool has candidates of a part of its slices (`among`).
        fields: the fields that are set and not empty in at least one candidate or its slice.
        elsewhere: devices that only other nodes reach, and that consume counters of the pool.
        counter_sets: counter set to counter to its full value.
        has_binding_conditions: whether a device has some; such pools come last, so that simpler devices are preferred.
    """

    id: PoolId
    problem: str = ""
    incomplete: bool = False
    candidates: tuple[Candidate, ...] = ()
    attributes: tuple[Mapping[str, AttributeValue], ...] = ()
    slices: tuple[SliceView, ...] = ()
    fields: frozenset[str] = frozenset()
    elsewhere: tuple[Device, ...] = ()
    counter_sets: Mapping[str, Mapping[str, Quantity]] = field(default_factory=dict)
    has_binding_conditions: bool = False

    def among(self, devices: Collection[DeviceId]) -> "NodePool":
        """The pool with these candidates alone. What the others consume of its counters still counts."""
        kept: list[Candidate] = []
        left: list[Candidate] = []
        for candidate in self.candidates:
            (kept if candidate.device.id in devices else left).append(candidate)
        consumers = [candidate.device for candidate in left if candidate.device.consumes_counters]
        return replace(
            self,
            candidates=tuple(kept),
            attributes=tuple([candidate.device.attributes for candidate in kept]),
            slices=(),
            elsewhere=(*self.elsewhere, *consumers),
        )


@dataclass(slots=True, eq=False, weakref_slot=True)
class Pool:
    """All slices of a pool, of every generation, by name.

    Attributes:
        ungrouped: slices without compatibility groups; while that feature is off, only these count.
        published: the slices by name, with what is known of them.
        size: the number of devices in all slices.
    """

    id: PoolId
    slices: tuple[Slice, ...]
    ungrouped: tuple[Slice, ...]
    published: Mapping[str, PublishedSlice]
    size: int
    _views: dict[tuple[Features, tuple[str, ...]], NodePool] = field(default_factory=dict)
    _problems: dict[Features, str] = field(default_factory=dict)
    _partitions: frozenset[str] | None = None

    @property
    def partitions(self) -> frozenset[str]:
        """The devices of the newest generation that are partitions (KEP-4815); all others are physical devices.

        Devices that draw on the counters of one set are parts of one piece of hardware. The first one that leaves
        nothing for the others is the hardware itself: it draws all of each counter, or all of one that all of them
        draw on.
        """
        if self._partitions is None:
            self._partitions = frozenset(_partitions(self.newest))
        return self._partitions

    @property
    def newest(self) -> tuple[Slice, ...]:
        """The slices of the newest generation."""
        return tuple(_newest(self.slices))

    @property
    def node_names(self) -> frozenset[str] | None:
        """The only nodes that reach the pool, if its slices name them all; else None."""
        return None if any(_roams(s) for s in self.slices) else frozenset(_node_names(self.slices))

    @property
    def local_nodes(self) -> frozenset[str]:
        """The nodes that the pool has a slice for."""
        return frozenset(_node_names(self.slices))

    def _usable(self, features: Features) -> tuple[Slice, ...]:
        return self.slices if features.compatibility_groups else self.ungrouped

    def problem(self, features: Features) -> str:
        """Why the newest generation as a whole can't be used, empty if it can; one node may see less of it."""
        if features not in self._problems:
            usable = self._usable(features)
            view = self._view(_newest(usable), usable, features) if usable else None
            self._problems[features] = "" if view is None else view.problem
        return self._problems[features]

    def at(self, node: Node, features: Features) -> NodePool | None:
        """What the node sees of the pool; None if it sees nothing, or only a generation that is being replaced."""
        usable = self._usable(features)
        relevant = [s for s in usable if _is_relevant(s, node, features)]
        if not relevant:
            return None
        relevant = _newest(relevant)
        key = (features, tuple(s.name for s in relevant))
        if key not in self._views:
            view = self._view(relevant, usable, features)
            if view is None:
                return None
            self._views[key] = view
        return self._views[key]

    def _view(self, relevant: list[Slice], usable: tuple[Slice, ...], features: Features) -> NodePool | None:
        """What a node sees that reaches the relevant slices, all of one generation; None: being replaced."""
        generation, wanted = relevant[0].generation, relevant[0].slice_count
        known = relevant
        if len(relevant) != wanted:
            if any(s.generation > generation for s in usable):
                return None
            known = [s for s in usable if s.generation == generation]
            if len(known) != wanted:
                return NodePool(self.id, f"{len(known)} of {wanted} slices are there", incomplete=True)
        names = {s.name for s in relevant}
        seen = [self.published[s.name] for s in relevant]
        others = [self.published[s.name] for s in known if s.name not in names]
        problem = _contradiction(seen, others, features)
        if problem:
            return NodePool(self.id, problem)
        views = tuple([each.view for each in seen])
        return NodePool(
            self.id,
            slices=views,
            candidates=tuple(chain.from_iterable([view.candidates for view in views])),
            attributes=tuple(chain.from_iterable([view.attributes for view in views])),
            fields=frozenset().union(*[view.fields for view in views]),
            elsewhere=tuple(chain.from_iterable([each.view.consumers for each in others])),
            counter_sets={name: counters for s in known for name, counters in s.counter_sets},
            has_binding_conditions=any(view.has_binding_conditions for view in views),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Inventory:
    """All pools of a cluster, indexed by the nodes that can reach them. A change makes a new inventory.

    Attributes:
        slices: slice name to slice.
        pools: pool to its slices.
        local: node name to the pools with a slice for only that node.
        roaming: pools with any other slice.
        marked: for each mark, the roaming pools that it opens. A node without any mark of a pool can't reach it.
        anywhere: the other roaming pools: any node may reach them.
        taking: pools with a device that takes resources of its node.
    """

    slices: Map[str, Slice] = field(default_factory=Map)
    pools: Map[PoolId, Pool] = field(default_factory=Map)
    local: Map[str, Map[PoolId, None]] = field(default_factory=Map)
    roaming: Map[PoolId, None] = field(default_factory=Map)
    marked: Map[Mark, Map[PoolId, None]] = field(default_factory=Map)
    anywhere: Map[PoolId, None] = field(default_factory=Map)
    taking: Map[PoolId, None] = field(default_factory=Map)

    @classmethod
    def of(cls, slices: Iterable[Slice]) -> "Inventory":
        """The inventory of some slices; of slices with the same name the last counts."""
        by_name = Map((each.name, each) for each in slices)
        by_pool: dict[PoolId, list[Slice]] = {}
        for each in by_name.values():
            by_pool.setdefault(each.pool, []).append(each)
        inventory = cls()
        for pool_id, members in by_pool.items():
            inventory = inventory._with_pool(pool_id, tuple(members), by_name)
        return inventory

    def with_slice(self, new: Slice) -> "Inventory":
        """The pool with a slice added, in place of the slice of that name if there is one."""
        old = self.slices.get(new.name)
        base = self if old is None or old.pool == new.pool else self.without_slice(new.name)
        pool = base.pools.get(new.pool)
        others = [s for s in pool.slices if s.name != new.name] if pool else []
        return base._with_pool(new.pool, (*others, new), base.slices.set(new.name, new))

    def without_slice(self, name: str) -> "Inventory":
        """Without the slice of that name, if there is one."""
        old = self.slices.get(name)
        if old is None:
            return self
        others = tuple(s for s in self.pools[old.pool].slices if s.name != name)
        return self._with_pool(old.pool, others, self.slices.delete(name))

    def for_node(self, node: Node, features: Features) -> tuple[NodePool, ...]:
        """The pools that a node can reach, by driver and name; those with binding conditions last."""
        ids = {*self.local.get(node.name, ()), *self.anywhere}
        if self.marked:
            marks = (*node.labels.items(), (_NAME, node.name))
            ids.update(pool for mark in marks for pool in self.marked.get(mark, ()))
        views = [view for i in sorted(ids) if (view := self.pools[i].at(node, features)) is not None]
        if any(v.has_binding_conditions for v in views):
            views.sort(key=lambda v: v.has_binding_conditions)
        return tuple(views)

    def published(self, wanted: AbstractSet[DeviceId]) -> Mapping[DeviceId, Device]:
        """The devices among these that are in the newest generations of their pools."""
        found: dict[DeviceId, Device] = {}
        for pool_id in {device.pool_id for device in wanted}:
            for part in pool.newest if (pool := self.pools.get(pool_id)) else ():
                found.update((device.id, device) for device in part.devices if device.id in wanted)
        return found

    def local_devices(self, node: str) -> int:
        """The number of devices in the pools that have a slice for only that node."""
        return sum([self.pools[pool].size for pool in self.local.get(node, ())])

    def _with_pool(self, pool_id: PoolId, slices: tuple[Slice, ...], all_slices: Map[str, Slice]) -> "Inventory":
        old = self.pools.get(pool_id)
        before = old.slices if old else ()
        local = _reindexed(self.local, pool_id, _node_names(before), _node_names(slices))
        roams = any(_roams(s) for s in slices)
        marks = _marks(slices)
        marked = _reindexed(self.marked, pool_id, _marks(before) or (), marks or ())
        published = _published(slices, old)
        ordered = tuple(sorted(slices, key=_NAME_OF))
        ungrouped = tuple([s for s in ordered if not published[s.name].has_groups])
        pool = Pool(pool_id, ordered, ungrouped, published, sum([len(s.devices) for s in slices]))
        pools = self.pools.set(pool_id, pool) if slices else self.pools.delete(pool_id)
        roaming = _having(self.roaming, pool_id, present=roams)
        anywhere = _having(self.anywhere, pool_id, present=marks is None)
        taking = _having(self.taking, pool_id, present=any(each.takes for each in published.values()))
        return Inventory(all_slices, pools, local, roaming, marked, anywhere, taking)


def hiding_gate(s: Slice, features: Features) -> str:
    """The feature gate that is off and hides a slice from every node; empty if there is none."""
    if _has_groups(s) and not features.compatibility_groups:
        return "DRADeviceCompatibilityGroups"
    if (s.per_device_placement or s.counter_sets) and not features.partitionable_devices:
        return "DRAPartitionableDevices"
    return ""


def _partitions(slices: Sequence[Slice]) -> Iterator[str]:
    full = {name: counters for origin in slices for name, counters in origin.counter_sets}
    drawing = [(each, _drawn(each)) for origin in slices for each in origin.devices if each.consumes_counters]
    common: dict[str, AbstractSet[str]] = {}
    for _, drawn in drawing:
        for name, amounts in drawn.items():
            common[name] = common.get(name, amounts.keys()) & amounts.keys()
    known: set[str] = set()
    for device, drawn in drawing:
        name = min(drawn, default="")
        amounts, counters = drawn.get(name, {}), full.get(name, {})
        taken = {counter for counter, amount in counters.items() if amounts.get(counter, 0) >= amount.nano}
        is_whole = len(drawn) == 1 and bool(taken) and (len(taken) == len(counters) or bool(taken & common[name]))
        if is_whole and name not in known:
            known.add(name)
        else:
            yield device.id.device


def _drawn(device: Device) -> Mapping[str, Mapping[str, int]]:
    """What a device draws on: counter set to counter to an amount of more than 0, in units of 10**-9."""
    found: dict[str, dict[str, int]] = {}
    for each in device.consumes_counters:
        of_set = found.setdefault(each.counter_set, {})
        of_set |= {name: of_set.get(name, 0) + amount.nano for name, amount in each.counters.items() if amount.nano > 0}
    return found


def _newest(slices: Sequence[Slice]) -> list[Slice]:
    if len(slices) == 1:  # of most pools, and asked often
        return [*slices]
    generation = max((s.generation for s in slices), default=0)
    return [s for s in slices if s.generation == generation]


def _reindexed(
    index: Map[_Key, Map[PoolId, None]], pool: PoolId, before: Iterable[_Key], now: Iterable[_Key]
) -> Map[_Key, Map[PoolId, None]]:
    """The index with a pool under other keys."""
    for key in before:
        rest = index[key].delete(pool)
        index = index.set(key, rest) if rest else index.delete(key)
    for key in now:
        index = index.set(key, index.get(key, Map()).set(pool, None))
    return index


def _having(pools: Map[PoolId, None], pool: PoolId, *, present: bool) -> Map[PoolId, None]:
    """The pools with or without one of them."""
    if present:
        return pools.set(pool, None)
    return pools.delete(pool) if pool in pools else pools


def _marks(slices: Iterable[Slice]) -> frozenset[Mark] | None:
    """Marks of nodes that reach a roaming slice: a node without any of them reaches none. None: marks can't tell."""
    found: set[Mark] = set()
    for each in slices:
        if _roams(each):
            for place in [d.placement for d in each.devices] if each.per_device_placement else [each.placement]:
                marks = None if place is None else _marks_of(place)
                if marks is None:
                    return None
                found.update(marks)
    return frozenset(found)


def _marks_of(place: Placement) -> list[Mark] | None:
    if place.node_name:
        return [(_NAME, place.node_name)]
    if place.all_nodes or place.node_selector is None:
        return None
    found: list[Mark] = []
    for term in place.node_selector.terms:
        wanted = next((r for r in term.match_expressions if r.operator == "In"), None)
        if wanted is None:
            return None
        found += [(wanted.key, value) for value in wanted.values]
    return found


def _node_names(slices: Iterable[Slice]) -> set[str]:
    return {s.placement.node_name for s in slices if s.placement is not None and s.placement.node_name}


def _roams(s: Slice) -> bool:
    return s.placement is None or not s.placement.node_name


def _has_groups(s: Slice) -> bool:
    return any(c.compatibility_groups for d in s.devices for c in d.consumes_counters)


def _is_relevant(s: Slice, node: Node, features: Features) -> bool:
    if not features.partitionable_devices and (s.per_device_placement or s.counter_sets):
        return False
    if s.placement is not None:
        return placement_matches(s.placement, node)
    return s.per_device_placement and any(
        d.placement is not None and placement_matches(d.placement, node) for d in s.devices
    )


def unsupported(device: Device) -> str:
    """An attribute of a type unknown to us; empty if there is none."""
    if tuple not in map(type, device.attributes.values()):  # most devices have no lists
        return ""
    return next((name for name, value in device.attributes.items() if isinstance(value, tuple) and not value), "")


def _published(slices: Iterable[Slice], before: Pool | None) -> Mapping[str, PublishedSlice]:
    """The slices by name, with what is known of those that were there before."""
    known = {} if before is None else before.published
    return {
        s.name: found if (found := known.get(s.name)) is not None and found.slice is s else PublishedSlice.of(s)
        for s in slices
    }


def _fields_set(published: Slice) -> frozenset[str]:
    if not published.devices:
        return frozenset()
    columns = (
        *zip(*map(_DEVICE_FIELDS, published.devices), strict=True),
        *[(each,) for each in _SLICE_FIELDS(published)],
    )
    return frozenset(name for name, column in zip(_NAMES, columns, strict=True) if any(column))


def _contradiction(relevant: Sequence[PublishedSlice], others: Sequence[PublishedSlice], features: Features) -> str:
    """What makes a complete pool invalid, empty if nothing does."""
    names = [each.view.names for each in relevant]
    if len(set().union(*names)) < sum(map(len, names)):
        return f"duplicate device name {_first_twice(chain.from_iterable(names))}"
    if not features.partitionable_devices:
        return ""
    known = (*relevant, *others)
    counter_sets: dict[str, Mapping[str, Quantity]] = {}
    for name, counters in (pair for each in known for pair in each.slice.counter_sets):
        if name in counter_sets:
            return f"duplicate counter set name {name}"
        counter_sets[name] = counters
    for each in known:
        if not all(name in counter_sets and counter_sets[name].keys() >= {*of} for name, of in each.view.consumed):
            return _unknown_counter(each.view.consumers, counter_sets)
    return ""


def _first_twice(names: Iterable[str]) -> str:
    """The first name that comes a second time."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _unknown_counter(devices: Iterable[Device], counter_sets: Mapping[str, Mapping[str, Quantity]]) -> str:
    """The first counter that a device consumes and its pool does not have, in words."""
    for device in devices:
        for consumed in device.consumes_counters:
            if consumed.counter_set not in counter_sets:
                return f"device {device.id.device} consumes unknown counter set {consumed.counter_set}"
            for counter in consumed.counters:
                if counter not in counter_sets[consumed.counter_set]:
                    return (
                        f"device {device.id.device} consumes unknown counter {counter} "
                        f"of counter set {consumed.counter_set}"
                    )
    return ""
