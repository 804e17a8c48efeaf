"""Node views: everything that a verdict on a node depends on, and what node views have in common."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from weakref import WeakKeyDictionary

from allocator import Features, Node
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
from extender.cluster.snapshot import Snapshot

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
    """What decisions depend on of each slice, as numbers. They are found once, however often the pool changes.

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
    """

    view: NodePool
    slices: SliceNumbers
    structure: int
    devices: int | None
    numbers_by_reads: dict[tuple[str, ...] | None, int] = field(default_factory=dict)

    def number_for(self, reads: AttributeReads, numbers: Numbers) -> int:
        """The number of everything that such claims read of the pool, except values that constraints compare."""
        names = None if reads.everything else reads.values
        found = self.numbers_by_reads.get(names)
        if found is None:
            slices = self.view.slices
            columns = (
                [self.slices.columns(each) for each in slices]
                if names is None
                else [self.slices.column(each, name) for name in names for each in slices]
            )
            found = self.numbers_by_reads[names] = numbers.of((self.structure, *columns)) if columns else self.structure
        return found


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """Everything that a verdict on a node depends on, except the claims and the usage of roaming pools.

    Attributes:
        pool_fingerprints: of the pools that the node sees, in the order in which they are tried.
        used: the usage of each pool; None for roaming pools, which several nodes use.
        states: usage and taints of the devices of each pool; of roaming pools without usage.
        state: the number of `states`.
        devices: of the pools that are no roaming ones.
    """

    node: Node
    pool_fingerprints: tuple[PoolFingerprint, ...]
    used: tuple[PoolUsage | None, ...]
    states: tuple[tuple[Hashable, ...], ...]
    state: int
    devices: int

    def fingerprint(self, reads: AttributeReads, numbers: Numbers) -> Hashable:
        """What claims with these attribute reads see of the pools, apart from usage and taints."""
        if len(self.pool_fingerprints) == 1 and not reads.matched:
            return self.pool_fingerprints[0].number_for(reads, numbers)
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
        shared = tuple(
            [pool_fingerprint.devices for pool_fingerprint in pool_fingerprints if pool_fingerprint.devices is not None]
        )
        own = [len(v.candidates) + len(v.elsewhere) for v, held in zip(views, used, strict=True) if held is not None]
        return NodeView(node, pool_fingerprints, used, states, self._states.of((states, shared)), sum(own))

    def _pool_fingerprint(self, view: NodePool, *, roams: bool) -> PoolFingerprint:
        number = self.numbers.of
        devices = (*(c.device for c in view.candidates), *view.elsewhere) if roams else ()
        structure = number(pool_structure(view, [self._slices.structure(each) for each in view.slices]))
        return PoolFingerprint(view, self._slices, structure, number(tuple([d.id for d in devices])) if roams else None)
