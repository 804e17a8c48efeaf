"""Indexes of nodes by name: node views, the index of those of one snapshot, and verdicts.

A node view is everything that a verdict on a node depends on. The index of the next snapshot costs only what changed
between the two. Verdicts are kept up with the cluster that is followed: an answer takes one dict access for each node.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import is_, itemgetter
from threading import Lock
from typing import Final, Optional
from weakref import WeakKeyDictionary

from allocator import Features, Node
from allocator.checks import NO_RULES
from allocator.equivalence import (
    AttributeReads,
    attribute_column,
    attribute_columns,
    common_values,
    device_circumstances,
    interchangeable,
    pool_structure,
    slice_structure,
)
from allocator.pools import NodePool, SliceView
from allocator.tools import Recent
from allocator.usage import NOTHING_USED, PoolUsage
from extender.cluster.kinds import Topic
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, nodes_of, roams
from extender.framework.decisions.verdict import NOT_KNOWN, UNDECIDED, Verdict, Verdicts

_STRUCTURE: Final = " structure"
_EVERYTHING: Final = " everything"
"""They stand for no attribute: names have no spaces."""

_STATES: Final = 1_000_000
"""The most devices in states that have a number, all together. Each takes 8 bytes."""

_VALUES: Final = 2_000_000
"""The most values in what has a number, all together: a slice of 128 devices has as many for each attribute."""


def _size(value: Hashable) -> int:
    """The number of values, about: those of a tuple, and of tuples in it."""
    if not isinstance(value, tuple):
        return 1
    return 1 + sum(len(each) if isinstance(each, tuple) else 1 for each in value)


class Numbers:
    """A number for every value, the same for equal values: short to keep and quick to compare.

    Bounded by the size of the values, but no number is given twice: a value that was forgotten is at worst taken for a
    new one. Safe to use from several threads.
    """

    def __init__(self, limit: int = _VALUES) -> None:
        self._numbers: Recent[int] = Recent(limit, lambda value, _: _size(value))
        self._next = count()

    def of(self, value: Hashable) -> int:
        """The number of a value."""
        found = self._numbers.get(value)  # `find`, without a call for those that are young
        if found is None:
            found = self._numbers.recall(value)
        return self._numbers.keep(value, next(self._next)) if found is None else found


class SliceNumbers:
    """Numbers for what decisions depend on of each slice. They are found once, however often the pool changes.

    Args:
        numbers: the numbers of all values.
    """

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._known: WeakKeyDictionary[SliceView, dict[str, int]] = WeakKeyDictionary()

    def structure(self, view: SliceView) -> int:
        """The number of everything but attributes."""
        return self._number(view, _STRUCTURE, slice_structure)

    def column(self, view: SliceView, attribute: str) -> int:
        """The number of the values of an attribute."""
        return self._number(view, attribute, lambda view: attribute_column(view, attribute))

    def columns(self, view: SliceView) -> int:
        """The number of the values of all attributes."""
        return self._number(view, _EVERYTHING, attribute_columns)

    def _number(self, view: SliceView, what: str, value_of: Callable[[SliceView], Hashable]) -> int:
        known = self._known.get(view)
        if known is None:
            known = self._known[view] = {}
        found = known.get(what)
        if found is None:
            found = known[what] = self._numbers.of(value_of(view))
        return found


@dataclass(slots=True, eq=False)
class PoolFingerprint:
    """A pool as some nodes see it, with the numbers of what decisions depend on.

    Attributes:
        slices: the numbers of slices.
        structure: the number of everything but attributes.
        devices: of a roaming pool, the number of the devices that these nodes see, because usage is known by device
            name. None for other pools.
        numbers_by_reads: the number of the pool for each set of attribute reads, made when first needed.
        latest: of a roaming pool, what was in use of it when that was asked last, and the states of its devices.
    """

    view: NodePool
    slices: SliceNumbers
    structure: int
    devices: int | None
    numbers_by_reads: dict[tuple[str, ...] | None, int] = field(default_factory=dict)
    latest: tuple[PoolUsage, tuple[Hashable, ...]] | None = None

    def states(self, node: Node, used: PoolUsage) -> tuple[Hashable, ...]:
        """What is in use of the devices of a roaming pool, which is the same for all nodes; `device_circumstances`."""
        known = self.latest
        if known is None or known[0] is not used:
            known = self.latest = used, device_circumstances(self.view, node, used, NO_RULES)
        return known[1]

    def number_for(self, reads: AttributeReads, numbers: Numbers) -> int:
        """The number of everything that such claims read of the pool, except values that constraints compare."""
        names = None if reads.everything else reads.values
        found = self.numbers_by_reads.get(names)
        if found is None:
            columns = self._columns(names)
            found = self.numbers_by_reads[names] = numbers.of((self.structure, *columns)) if columns else self.structure
        return found

    def _columns(self, names: tuple[str, ...] | None) -> list[Hashable]:
        """The values of attributes, device by device, or their numbers; None: of all attributes."""
        slices = self.view.slices
        if names is None:
            return [self.slices.columns(each) for each in slices]
        if len(slices) == 1:  # the pool changes with its slice, so no number would be found a second time
            return [attribute_column(slices[0], name) for name in names]
        return [self.slices.column(each, name) for name in names for each in slices]


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """Everything that a verdict on a node depends on, except the claims and the usage of roaming pools.

    Attributes:
        pool_fingerprints: of the pools that the node sees, in the order in which they are tried.
        only_pool: the fingerprint of the only pool that the node sees; None: it sees several, or none.
        used: the usage of each pool; None for roaming pools, which several nodes use.
        states: usage and taints of the devices of each pool; of roaming pools without usage.
        state: the number of `states`.
        held: how many devices of each pool are held; None if `states` says more than which devices are held.
        devices: of the pools that are no roaming ones.
    """

    node: Node
    pool_fingerprints: tuple[PoolFingerprint, ...]
    only_pool: PoolFingerprint | None
    used: tuple[PoolUsage | None, ...]
    states: tuple[tuple[Hashable, ...], ...]
    state: int
    held: tuple[int, ...] | None
    devices: int

    @property
    def reached(self) -> int:
        """The number of devices that the node reaches, in roaming pools, too."""
        return sum([len(each.view.candidates) for each in self.pool_fingerprints])

    def fingerprint(self, reads: AttributeReads, numbers: Numbers) -> Hashable:
        """What claims with these attribute reads see of the pools, apart from usage and taints."""
        if self.only_pool is not None and not reads.matched:
            return self.only_pool.number_for(reads, numbers)
        numbers_by_reads = [pool_fingerprint.number_for(reads, numbers) for pool_fingerprint in self.pool_fingerprints]
        if not reads.matched:
            return tuple(numbers_by_reads)
        views = [pool_fingerprint.view for pool_fingerprint in self.pool_fingerprints]
        return (*numbers_by_reads, *(common_values(views, attribute) for attribute in reads.matched))

    def interchangeable(self, runs: Sequence[Sequence[int]]) -> Hashable:
        """Equal for node views of one fingerprint that differ only in which devices of a run are in use."""
        return tuple(
            interchangeable(states, lengths) if pool_fingerprint.devices is None else (pool_fingerprint.devices, states)
            for pool_fingerprint, states, lengths in zip(self.pool_fingerprints, self.states, runs, strict=True)
        )


def fingerprints_of(views: Sequence[NodeView], reads: AttributeReads, numbers: Numbers) -> list[Hashable]:
    """The fingerprint of each view for claims with these attribute reads."""
    if reads.matched:
        return [view.fingerprint(reads, numbers) for view in views]
    names, found = None if reads.everything else reads.values, list[Hashable]()
    for view in views:
        number = None if view.only_pool is None else view.only_pool.numbers_by_reads.get(names)
        found.append(view.fingerprint(reads, numbers) if number is None else number)
    return found


class NodeViewBuilder:
    """Makes node views, and the numbers that they share."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self.numbers = Numbers()
        self._slices = SliceNumbers(self.numbers)
        # States come and go with pods, so only the latest have numbers. The number of pools does not grow.
        self._states = Numbers(_STATES)

    def look(self, snapshot: Snapshot, node: Node, known: Mapping[NodePool, PoolFingerprint]) -> NodeView:
        """The view of a node in a snapshot.

        Args:
            snapshot: the cluster.
            node: the node, which need not be in the snapshot.
            known: pool fingerprints that were made before.
        """
        views = snapshot.inventory.for_node(node, self._features)
        pools, roaming = snapshot.usage.pools, snapshot.inventory.roaming
        used = tuple([None if v.id in roaming else pools.get(v.id, NOTHING_USED) for v in views])
        pool_fingerprints = tuple([known.get(v) or self._pool_fingerprint(v, roams=v.id in roaming) for v in views])
        rules = snapshot.taint_rules
        states = tuple(
            [device_circumstances(v, node, held or NOTHING_USED, rules) for v, held in zip(views, used, strict=True)]
        )
        own = [len(v.candidates) + len(v.elsewhere) for v, held in zip(views, used, strict=True) if held is not None]
        return self._numbered(node, pool_fingerprints, used, states, sum(own))

    def again(self, past: NodeView, snapshot: Snapshot) -> NodeView:
        """The view of a node in a snapshot that differs from that of an earlier view in what is in use alone."""
        pools, rules = snapshot.usage.pools, snapshot.taint_rules
        used: list[PoolUsage | None] = []
        states: list[tuple[Hashable, ...]] = []
        for pool, held, state in zip(past.pool_fingerprints, past.used, past.states, strict=True):
            now = None if held is None else pools.get(pool.view.id, NOTHING_USED)
            used.append(now)
            is_same = now is None or now is held
            states.append(state if is_same else device_circumstances(pool.view, past.node, now or NOTHING_USED, rules))
        return self._numbered(past.node, past.pool_fingerprints, tuple(used), tuple(states), past.devices)

    def _numbered(
        self,
        node: Node,
        pool_fingerprints: tuple[PoolFingerprint, ...],
        used: tuple[PoolUsage | None, ...],
        states: tuple[tuple[Hashable, ...], ...],
        devices: int,
    ) -> NodeView:
        shared = tuple([each.devices for each in pool_fingerprints if each.devices is not None])
        held = tuple([of_pool.count(1) for of_pool in states])
        is_all = not shared and sum(held) + sum([of_pool.count(0) for of_pool in states]) == sum(map(len, states))
        only = pool_fingerprints[0] if len(pool_fingerprints) == 1 else None
        number = self._states.of((states, shared))
        return NodeView(node, pool_fingerprints, only, used, states, number, held if is_all else None, devices)

    def _pool_fingerprint(self, view: NodePool, *, roams: bool) -> PoolFingerprint:
        number = self.numbers.of
        devices = (*(c.device for c in view.candidates), *view.elsewhere) if roams else ()
        structure = number(pool_structure(view, [self._slices.structure(each) for each in view.slices]))
        return PoolFingerprint(view, self._slices, structure, number(tuple([d.id for d in devices])) if roams else None)


STEPS: Final = 64
"""Steps from snapshot to snapshot that are remembered."""

MOST: Final = 64
"""A step that concerns more nodes is not remembered."""

_OF_ALL_NODES: Final = ("nodes", "inventory", "taint_rules", "requested")
"""Parts of a snapshot on which the views and the CPU of all nodes depend, beside what is in use of their pools."""

_MOST_FRESH: Final = 200_000
"""Devices in views that were made, after which the pools of past views are dropped: a large pool takes a megabyte."""

_MOST_APART: Final = 256
"""Nodes whose views stand apart. With more of them, all views are copied."""


@dataclass(slots=True, eq=False)
class NodeIndex:
    """The node views of one snapshot, each made when it is first asked for.

    Several threads may make a view at the same time: the views are equal, and one of them stays.

    Attributes:
        shared: the views made so far, by node name. Earlier and later snapshots share them.
        apart: the views of nodes that differ from snapshot to snapshot; None: not made yet. They go before.
        past: of nodes apart whose view is not made yet, an earlier view, if only what is in use may differ from it.
        roaming: the usage of each roaming pool; the same object while nothing changes there.
        pool_fingerprints: of the pools in the node views.
        below: the node index of the snapshot that this snapshot was forked from.
        steps: the latest steps: the version before, and the nodes whose view or CPU may have changed since.
        fresh: devices of the views that were made since the pool fingerprints of past views were dropped.
    """

    snapshot: Snapshot
    builder: NodeViewBuilder
    roaming: tuple[PoolUsage, ...]
    shared: dict[str, NodeView] = field(default_factory=dict)
    apart: dict[str, NodeView | None] = field(default_factory=dict)
    past: dict[str, NodeView] = field(default_factory=dict)
    pool_fingerprints: dict[NodePool, PoolFingerprint] = field(default_factory=dict)
    below: Optional["NodeIndex"] = None
    steps: tuple[tuple[int, frozenset[str]], ...] = ()
    fresh: int = 0
    _differing: tuple[set[str] | None] | None = field(default=None, init=False)

    @classmethod
    def of(cls, snapshot: Snapshot, builder: NodeViewBuilder) -> "NodeIndex":
        """The index of a snapshot, without node views."""
        return cls(snapshot, builder, _roaming(snapshot, ()))

    def moved(self, snapshot: Snapshot, reach: Reach) -> "NodeIndex":
        """The index of a later snapshot; ``reach``: of the changes in between, at least."""
        nodes = reach.nodes(self.snapshot, snapshot)
        changed = frozenset(self.node_views if nodes is None else nodes)
        past = self._past(snapshot, changed)
        shared, apart = self.shared, {**self.apart, **dict.fromkeys(changed)}
        if len(apart) > _MOST_APART:
            views = self.node_views.items()
            shared, apart = {name: view for name, view in views if view is not None and name not in changed}, {}
        pool_fingerprints = self.pool_fingerprints
        fresh = self.fresh
        if len(pool_fingerprints) > 2 * len(snapshot.inventory.pools) + 1000 or fresh > _MOST_FRESH:
            fresh = 0
            pool_fingerprints = {
                pool_fingerprint.view: pool_fingerprint
                for node_view in {**shared, **apart}.values()
                if node_view is not None
                for pool_fingerprint in node_view.pool_fingerprints
            }
        changed |= reach.keys(Topic.CPU) or set()
        steps = (*self.steps[1 - STEPS :], (self.snapshot.version, changed)) if len(changed) <= MOST else ()
        return NodeIndex(
            snapshot,
            self.builder,
            _roaming(snapshot, self.roaming),
            shared,
            apart,
            past,
            pool_fingerprints,
            steps=steps,
            fresh=fresh,
        )

    def _past(self, snapshot: Snapshot, changed: Collection[str]) -> dict[str, NodeView]:
        """The earlier views of nodes whose view is not made yet in a later snapshot."""
        before = self.snapshot
        if before.inventory is not snapshot.inventory or before.taint_rules is not snapshot.taint_rules:
            return {}
        past = {name: view for name, view in self.past.items() if self.apart.get(name) is None}
        for name in changed if len(changed) <= MOST else ():
            view = self.known_view(name)
            if view is not None:
                past[name] = view
        return past

    def present_views(self) -> Iterator[NodeView]:
        """The views made so far, of a fork also those below."""
        yield from filter(None, self.node_views.values())
        if self.below is not None:
            yield from self.below.present_views()

    @property
    def node_views(self) -> dict[str, NodeView | None]:
        """A copy of the views made so far, by node name; None: not made yet."""
        return {**self.shared, **self.apart}

    def known_view(self, name: str) -> NodeView | None:
        """The view of a node, if it has been made."""
        return self.apart[name] if name in self.apart else self.shared.get(name)

    def states(self, node_view: NodeView) -> Sequence[tuple[Hashable, ...]] | None:
        """The states of the devices of each pool, with the usage of roaming pools; None: they say more than usage."""
        if None not in node_view.used:
            return node_view.states
        pools, found = self.snapshot.usage.pools, list[tuple[Hashable, ...]]()
        for pool, used, states in zip(node_view.pool_fingerprints, node_view.used, node_view.states, strict=True):
            if used is None and states:
                return None
            in_use = pools.get(pool.view.id, NOTHING_USED)
            found.append(states if used is not None else pool.states(node_view.node, in_use))
        return found

    def changed_since(self, version: int) -> set[str] | None:
        """The nodes whose view or CPU may differ from that at an earlier version; None: any node."""
        if version == self.snapshot.version:
            return set()
        if not self.steps or version < self.steps[0][0]:
            return None
        return {name for before, names in self.steps if before >= version for name in names}

    def forked(self, fork: Snapshot) -> "NodeIndex":
        """The index of a fork of the snapshot. No view depends on what controllers have answered."""
        if fork is self.snapshot or all(map(is_, fork, self.snapshot._replace(answers=fork.answers))):
            return self
        roaming = _roaming(fork, self.roaming)
        return NodeIndex(fork, self.builder, roaming, pool_fingerprints=self.pool_fingerprints, below=self)

    def differing(self) -> set[str] | None:
        """The nodes of a fork whose view or CPU may differ from that below; None: any node."""
        if self._differing is None:
            self._differing = (self._found_differing(),)
        return self._differing[0]

    def _found_differing(self) -> set[str] | None:
        if self.below is None or self.roaming is not self.below.roaming:
            return None
        before, now = self.below.snapshot, self.snapshot
        if not all(getattr(before, each) is getattr(now, each) for each in _OF_ALL_NODES):
            return None
        pools = now.usage.differing(before.usage)
        return {name for pool in pools if not roams(pool, now) for name in nodes_of(pool, now)}

    def node_view(self, node: NodeObject) -> NodeView:
        """The view of a node of the snapshot."""
        name = node.name
        found = self.known_view(name)
        if found is None:
            found = self._from_past(node) or self._from_below(node) or self.look(node.node)
            views: dict[str, NodeView] | dict[str, NodeView | None]
            views = self.apart if name in self.apart else self.shared
            views[name] = found
        return found

    def look(self, node: Node) -> NodeView:
        """The view of a node that need not be in the snapshot."""
        found = self.builder.look(self.snapshot, node, self.pool_fingerprints)
        self.fresh += found.devices
        for pool_fingerprint in found.pool_fingerprints:
            self.pool_fingerprints[pool_fingerprint.view] = pool_fingerprint
        return found

    def _from_past(self, node: NodeObject) -> NodeView | None:
        """The view of a node, if only what is in use may differ from an earlier one."""
        past = self.past.get(node.name)
        return None if past is None or past.node is not node.node else self.builder.again(past, self.snapshot)

    def _from_below(self, node: NodeObject) -> NodeView | None:
        """The view that the node had before the fork, if nothing differs for the node.

        Many forks are made of one cluster. A node that none of them changes is looked at once for all.
        """
        if self.below is None:
            return None
        before, now = self.below.snapshot, self.snapshot
        found = self.below.known_view(node.name)
        if found is None and (differing := self.differing()) is not None and node.name not in differing:
            return self.below.node_view(node)
        if found is None or before.inventory is not now.inventory or before.taint_rules is not now.taint_rules:
            return None
        used = now.usage.pools
        pairs = zip(found.pool_fingerprints, found.used, strict=True)
        same = all(
            held is None or used.get(pool_fingerprint.view.id, NOTHING_USED) is held for pool_fingerprint, held in pairs
        )
        return found if same and found.node is node.node else None


def _roaming(snapshot: Snapshot, before: tuple[PoolUsage, ...]) -> tuple[PoolUsage, ...]:
    pools = snapshot.usage.pools
    now = tuple([pools.get(pool, NOTHING_USED) for pool in snapshot.inventory.roaming])
    return before if len(now) == len(before) and all(map(is_, now, before)) else now


_RENEWED_AFTER: Final = 1 / 8
"""Share of the names that may have been added before all names are copied."""

_MOST_MARKS: Final = 64
"""Sets of verdicts that nodes have had together, whose marks are kept."""


class VerdictIndex(dict[str, int]):
    """Node name to the number of its verdict, for one signature and one state of the roaming pools.

    Python calls `__missing__` for a name that is not there. Every other access is done in C, which makes the difference
    with thousands of names.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._version = -1
        self._numbers: dict[Verdict, int] = {}
        self._kinds: tuple[Verdict, ...] = ()
        self._marks: dict[bytes, bytes] = {}
        self._find: Callable[[str], Verdict] | None = None
        self._added = 0  # verdicts, since the names were copied

    def look(self, names: Sequence[str], node_index: NodeIndex, find: Callable[[str], Verdict]) -> Verdicts | None:
        """The verdicts on nodes; None if another thread is using the index, or has taken it to a later snapshot.

        Args:
            names: the nodes.
            node_index: of the cluster that is followed.
            find: finds the verdict of a name that is not in the index.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if node_index.snapshot.version < self._version:
                return None
            self._catch_up(node_index)
            self._find = find
            codes = itemgetter(*names)(self) if len(names) > 1 else [self[name] for name in names]
            if len(self._kinds) < len(self._numbers):
                self._kinds = tuple(self._numbers)
            if len(self._marks) > _MOST_MARKS:
                self._marks = {}
            verdicts = Verdicts(self._kinds, codes, self._marks)
            if self._added > len(self) * _RENEWED_AFTER:
                self._copy_names()
            return verdicts
        finally:
            self._find = None  # it refers to the whole cluster as it is now
            self._lock.release()

    def fill(self, names: Sequence[str], verdicts: Verdicts, node_index: NodeIndex) -> None:
        """Take over the verdicts on all of some nodes, if there are none yet, and if each of them lasts.

        Args:
            names: the nodes.
            verdicts: on these nodes, in the snapshot of the index.
            node_index: of the cluster that is followed.
        """
        is_lasting = all(each.lasting and each is not NOT_KNOWN for each in verdicts.kinds)
        if self or not is_lasting or not self._lock.acquire(blocking=False):
            return
        try:
            if node_index.snapshot.version < self._version:
                return
            self._catch_up(node_index)
            self._forget()
            self._numbers = {kind: number for number, kind in enumerate(verdicts.kinds)}
            self.update(zip(names, verdicts.codes, strict=True))
            self._added = len(self)
        finally:
            self._lock.release()

    def __missing__(self, name: str) -> int:
        if self._find is None:
            raise KeyError(name)
        found = self._find(name)
        number = self._numbers.setdefault(found, len(self._numbers))
        if found not in (NOT_KNOWN, UNDECIDED):
            self._added += 1
            if found.lasting:
                self[name] = number
        return number

    def _copy_names(self) -> None:
        """Copy the names, so that they are adjacent in memory, and number only verdicts that a node still has.

        Names come from requests and lie wherever there was room. Comparing a requested name with one of ours that is
        not in the processor's cache takes longer than the rest of the access; adjacent names share cache lines.
        """
        kinds = tuple(self._numbers)
        known = [(name.encode().decode(), kinds[code]) for name, code in self.items()]
        self._forget()
        for name, kind in known:
            self[name] = self._numbers.setdefault(kind, len(self._numbers))
        self._added = 0

    def _catch_up(self, node_index: NodeIndex) -> None:
        changed = node_index.changed_since(self._version)
        if changed is None:
            self._forget()
        else:
            for name in changed:
                self.pop(name, None)
        self._version = node_index.snapshot.version

    def _forget(self) -> None:
        """Forget all verdicts and their numbers, and what is kept by these numbers."""
        self.clear()
        self._numbers, self._kinds, self._marks = {}, (), {}
