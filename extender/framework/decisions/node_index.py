"""The node views of one snapshot. The index of the next snapshot costs only what changed between the two."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import is_
from typing import Final, Optional

from allocator import Node
from allocator.pools import NodePool
from allocator.usage import NOTHING_USED, PoolUsage
from extender.cluster.kinds import Topic
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, nodes_of, roams
from extender.framework.decisions.node_view import NodeView, NodeViewBuilder, PoolFingerprint

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
            pool_fingerprints,
            steps=steps,
            fresh=fresh,
        )

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

    def changed_since(self, version: int) -> set[str] | None:
        """The nodes whose view or CPU may differ from that at an earlier version; None: any node."""
        if version == self.snapshot.version:
            return set()
        if not self.steps or version < self.steps[0][0]:
            return None
        return {name for before, names in self.steps if before >= version for name in names}

    def forked(self, fork: Snapshot) -> "NodeIndex":
        """The index of a fork of the snapshot. No view depends on what controllers have answered."""
        if all(map(is_, fork, self.snapshot._replace(answers=fork.answers))):
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
        found = self.known_view(node.name)
        if found is None:
            found = self._from_below(node) or self.look(node.node)
            views: dict[str, NodeView] | dict[str, NodeView | None]
            views = self.apart if node.name in self.apart else self.shared
            views[node.name] = found
        return found

    def look(self, node: Node) -> NodeView:
        """The view of a node that need not be in the snapshot."""
        found = self.builder.look(self.snapshot, node, self.pool_fingerprints)
        self.fresh += found.devices
        for pool_fingerprint in found.pool_fingerprints:
            self.pool_fingerprints[pool_fingerprint.view] = pool_fingerprint
        return found

    def _from_below(self, node: NodeObject) -> NodeView | None:
        """The view that the node had before the fork, if nothing differs for the node."""
        if self.below is None:
            return None
        before, now = self.below.snapshot, self.snapshot
        found = self.below.known_view(node.name)
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
