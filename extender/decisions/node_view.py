"""Node views: everything that a verdict on a node depends on, and what node views have in common."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from allocator import (
    NOTHING_USED,
    AttributeReads,
    Features,
    Node,
    NodePool,
    PoolUsage,
    attribute_column,
    attribute_columns,
    common_values,
    device_circumstances,
    interchangeable,
    pool_structure,
)
from allocator.tools import Recent
from extender.cluster.snapshot import Snapshot

_STATES: Final = 5000
"""The most states that have a number. The state of a node with many devices takes a kilobyte."""


class Numbers:
    """A number for every value, the same for equal values: short to keep and quick to compare.

    Bounded, but no number is given twice: a value that was forgotten is at worst taken for a new one. Safe to use from
    several threads.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self._numbers: Recent[int] = Recent(limit)
        self._next = count()

    def of(self, value: Hashable) -> int:
        """The number of a value."""
        found = self._numbers.get(value)  # `find`, without a call for those that are young
        if found is None:
            found = self._numbers.recall(value)
        return self._numbers.keep(value, next(self._next)) if found is None else found


@dataclass(slots=True, eq=False)
class PoolFingerprint:
    """A pool as some nodes see it, with the numbers of what decisions depend on.

    Attributes:
        structure: the number of everything but attributes.
        devices: of a roaming pool, the number of the devices that these nodes see, because usage is known by device
            name. None for other pools.
        numbers_by_reads: the number of the pool for each set of attribute reads, made when first needed.
    """

    view: NodePool
    structure: int
    devices: int | None
    numbers_by_reads: dict[tuple[str, ...] | None, int] = field(default_factory=dict)

    def number_for(self, reads: AttributeReads, numbers: Numbers) -> int:
        """The number of everything that such claims read of the pool, except values that constraints compare."""
        names = None if reads.everything else reads.values
        found = self.numbers_by_reads.get(names)
        if found is None:
            columns = (
                [attribute_columns(self.view)]
                if names is None
                else [attribute_column(self.view, name) for name in names]
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
    """

    node: Node
    pool_fingerprints: tuple[PoolFingerprint, ...]
    used: tuple[PoolUsage | None, ...]
    states: tuple[tuple[Hashable, ...], ...]
    state: int

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
        return NodeView(node, pool_fingerprints, used, states, self._states.of((states, shared)))

    def _pool_fingerprint(self, view: NodePool, *, roams: bool) -> PoolFingerprint:
        number = self.numbers.of
        devices = (*(c.device for c in view.candidates), *view.elsewhere) if roams else ()
        return PoolFingerprint(
            view, number(pool_structure(view)), number(tuple([d.id for d in devices])) if roams else None
        )
