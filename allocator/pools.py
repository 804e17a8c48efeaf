"""ResourceSlices to pools: which generation counts, whether a pool can be used, and what a node sees of it.

Only the newest generation of a pool counts. A pool with missing slices is incomplete; a pool that contradicts itself is
invalid. Neither is allocated from, and a request for all devices fails if there is one (upstream: structured allocator,
gathering of pools).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar

from immutables import Map

from allocator.model.devices import AttributeValue, Device, Placement, PoolId, Slice
from allocator.model.features import Features
from allocator.model.nodes import Node
from allocator.model.quantity import Quantity
from allocator.node_selectors import placement_matches

Mark: TypeAlias = tuple[str, str]
"""What a node must have to reach a pool: a label with its value, or its name."""

_NAME: Final = ""
"""Stands for a node's name, where a mark has its label."""

_Key = TypeVar("_Key", bound=Hashable)

_NAMES: Final = tuple(each.name for of in (Device, Slice) for each in fields(of))
_DEVICE_FIELDS: Final = attrgetter(*(each.name for each in fields(Device)))
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


@dataclass(slots=True, eq=False)
class NodePool:
    """What one node sees of a pool.

    Attributes:
        problem: why the pool can't be used (then it has no candidates); empty if it can.
        incomplete: the problem is that slices are missing.
        candidates: devices that the node can reach, slices by name, devices as listed.
        attributes: the attributes of each candidate.
        elsewhere: devices that only other nodes reach, and that consume counters of the pool.
        counter_sets: counter set to counter to its full value.
        has_binding_conditions: whether a device has some; such pools come last, so that simpler devices are preferred.
    """

    id: PoolId
    problem: str = ""
    incomplete: bool = False
    candidates: tuple[Candidate, ...] = ()
    attributes: tuple[Mapping[str, AttributeValue], ...] = ()
    elsewhere: tuple[Device, ...] = ()
    counter_sets: Mapping[str, Mapping[str, Quantity]] = field(default_factory=dict)
    has_binding_conditions: bool = False
    _fields: frozenset[str] | None = field(default=None, init=False, repr=False)

    @property
    def fields(self) -> frozenset[str]:
        """The fields that are set and not empty in at least one candidate or its slice; found out once."""
        if self._fields is None:
            self._fields = self._fields_set()
        return self._fields

    def _fields_set(self) -> frozenset[str]:
        slices = dict.fromkeys(c.slice for c in self.candidates)
        devices = zip(*(_DEVICE_FIELDS(c.device) for c in self.candidates), strict=True)
        columns = (*devices, *zip(*map(_SLICE_FIELDS, slices), strict=True))
        return frozenset(name for name, column in zip(_NAMES, columns, strict=False) if any(column))


@dataclass(slots=True, eq=False)
class Pool:
    """All slices of a pool, of every generation, by name.

    Attributes:
        ungrouped: slices without compatibility groups; while that feature is off, only these count.
    """

    id: PoolId
    slices: tuple[Slice, ...]
    ungrouped: tuple[Slice, ...]
    _views: dict[tuple[Features, tuple[str, ...]], NodePool] = field(default_factory=dict)
    _problems: dict[Features, str] = field(default_factory=dict)

    @property
    def newest(self) -> tuple[Slice, ...]:
        """The slices of the newest generation."""
        return tuple(_newest(self.slices))

    @property
    def node_names(self) -> frozenset[str] | None:
        """The only nodes that reach the pool, if its slices name them all; else None."""
        return None if any(_roams(s) for s in self.slices) else frozenset(_node_names(self.slices))

    def _usable(self, features: Features) -> tuple[Slice, ...]:
        return self.slices if features.compatibility_groups else self.ungrouped

    def problem(self, features: Features) -> str:
        """Why the newest generation as a whole can't be used, empty if it can; one node may see less of it."""
        if features not in self._problems:
            usable = self._usable(features)
            view = _view(self.id, _newest(usable), usable, features) if usable else None
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
            view = _view(self.id, relevant, usable, features)
            if view is None:
                return None
            self._views[key] = view
        return self._views[key]


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
        """With a slice added, in place of the slice of that name if there is one."""
        base = self.without_slice(new.name)
        pool = base.pools.get(new.pool)
        others = pool.slices if pool else ()
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

    def _with_pool(self, pool_id: PoolId, slices: tuple[Slice, ...], all_slices: Map[str, Slice]) -> "Inventory":
        old = self.pools.get(pool_id)
        before = old.slices if old else ()
        local = _reindexed(self.local, pool_id, _node_names(before), _node_names(slices))
        roams = any(_roams(s) for s in slices)
        marks = _marks(slices)
        marked = _reindexed(self.marked, pool_id, _marks(before) or (), marks or ())
        ordered = tuple(sorted(slices, key=lambda s: s.name))
        pool = Pool(pool_id, ordered, tuple(s for s in ordered if not _has_groups(s)))
        pools = self.pools.set(pool_id, pool) if slices else self.pools.delete(pool_id)
        roaming = _having(self.roaming, pool_id, present=roams)
        anywhere = _having(self.anywhere, pool_id, present=marks is None)
        takes = any(device.node_resources for s in slices for device in s.devices)
        taking = _having(self.taking, pool_id, present=takes)
        return Inventory(all_slices, pools, local, roaming, marked, anywhere, taking)


def hiding_gate(s: Slice, features: Features) -> str:
    """The feature gate that is off and hides a slice from every node; empty if there is none."""
    if _has_groups(s) and not features.compatibility_groups:
        return "DRADeviceCompatibilityGroups"
    if (s.per_device_placement or s.counter_sets) and not features.partitionable_devices:
        return "DRAPartitionableDevices"
    return ""


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


def _view(pool_id: PoolId, relevant: list[Slice], usable: tuple[Slice, ...], features: Features) -> NodePool | None:
    """What a node sees of the pool that reaches the relevant slices, all of one generation; None: being replaced."""
    generation, wanted = relevant[0].generation, relevant[0].slice_count
    known = relevant
    if len(relevant) != wanted:
        if any(s.generation > generation for s in usable):
            return None
        known = [s for s in usable if s.generation == generation]
        if len(known) != wanted:
            return NodePool(pool_id, f"{len(known)} of {wanted} slices are there", incomplete=True)
    names = {s.name for s in relevant}
    others = [s for s in known if s.name not in names]
    problem = _contradiction(relevant, others, features)
    if problem:
        return NodePool(pool_id, problem)
    return NodePool(
        pool_id,
        candidates=tuple(Candidate(d, s, unsupported(d)) for s in relevant for d in s.devices),
        attributes=tuple([d.attributes for s in relevant for d in s.devices]),
        elsewhere=tuple(d for s in others for d in s.devices if d.consumes_counters),
        counter_sets={name: counters for s in known for name, counters in s.counter_sets},
        has_binding_conditions=any(d.binding_conditions is not None for s in relevant for d in s.devices),
    )


def unsupported(device: Device) -> str:
    """An attribute of a type unknown to us; empty if there is none."""
    return next((name for name, value in device.attributes.items() if isinstance(value, tuple) and not value), "")


def _contradiction(relevant: list[Slice], others: list[Slice], features: Features) -> str:
    """What makes a complete pool invalid, empty if nothing does."""
    seen: set[str] = set()
    for device in (d for s in relevant for d in s.devices):
        if device.id.device in seen:
            return f"duplicate device name {device.id.device}"
        seen.add(device.id.device)
    if not features.partitionable_devices:
        return ""
    counter_sets: dict[str, Mapping[str, Quantity]] = {}
    for name, counters in (pair for s in (*relevant, *others) for pair in s.counter_sets):
        if name in counter_sets:
            return f"duplicate counter set name {name}"
        counter_sets[name] = counters
    for device in (d for s in (*relevant, *others) for d in s.devices):
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
