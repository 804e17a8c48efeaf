"""The outlooks of a cluster's nodes, kept up with the cluster at the cost of what changed in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Final, Optional

from allocator.model import Node, PoolId
from allocator.pools import NodePool
from allocator.usage import NOTHING_USED, PoolUsage
from extender.decisions.node_view import Ground, Outlook, Surveyor
from extender.state.changes import Change, Topic
from extender.state.objects import NodeObject
from extender.state.snapshot import Snapshot

STEPS: Final = 64
"""Moves that are remembered."""

MOST: Final = 64
"""Nodes that a move may concern, to be remembered."""


@dataclass(frozen=True, slots=True, eq=False)
class Terrain:
    """One snapshot, seen from its nodes.

    Outlooks are made when they are first asked for. Several threads may do so at once: they make equal ones, and one of
    them stays.

    Attributes:
        outlooks: those made so far, by node name.
        roaming: what is held of each roaming pool; the same object as long as nothing changes there.
        grounds: the views that outlooks are made of.
        below: the terrain of the snapshot that this one's was forked from.
        steps: the latest moves that led here: the version before, and the nodes that may see something else since.
    """

    snapshot: Snapshot
    surveyor: Surveyor
    roaming: tuple[PoolUsage, ...]
    outlooks: dict[str, Outlook] = field(default_factory=dict)
    grounds: dict[NodePool, Ground] = field(default_factory=dict)
    below: Optional["Terrain"] = None
    steps: tuple[tuple[int, frozenset[str]], ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot, surveyor: Surveyor) -> "Terrain":
        """Of a snapshot, nothing looked at yet."""
        return cls(snapshot, surveyor, _roaming(snapshot, ()))

    def moved(self, snapshot: Snapshot, changes: Sequence[Change] | None) -> "Terrain":
        """Of a later snapshot.

        Args:
            snapshot: the later snapshot.
            changes: at least what changed in between; None: anything may have.
        """
        if changes is None:
            return Terrain.of(snapshot, self.surveyor)
        outlooks = self.outlooks.copy()
        changed = frozenset(_changed(changes, self, snapshot))
        for name in changed:
            outlooks.pop(name, None)
        grounds = self.grounds
        if len(grounds) > 2 * len(snapshot.inventory.pools) + 1000:
            grounds = {ground.view: ground for outlook in outlooks.values() for ground in outlook.grounds}
        steps = (*self.steps[1 - STEPS :], (self.snapshot.version, changed)) if len(changed) <= MOST else ()
        return Terrain(snapshot, self.surveyor, _roaming(snapshot, self.roaming), outlooks, grounds, steps=steps)

    def changed_since(self, version: int) -> set[str] | None:
        """The nodes that may see something else than at an earlier version; None: that may be any."""
        if version == self.snapshot.version:
            return set()
        if not self.steps or version < self.steps[0][0]:
            return None
        return {name for before, names in self.steps if before >= version for name in names}

    def forked(self, fork: Snapshot) -> "Terrain":
        """Of a snapshot that was made from this one's, in whatever way it differs."""
        if fork is self.snapshot:
            return self
        return Terrain(fork, self.surveyor, _roaming(fork, self.roaming), {}, self.grounds, self)

    def outlook(self, node: NodeObject) -> Outlook:
        """What a node of the snapshot sees."""
        found = self.outlooks.get(node.name)
        if found is None:
            found = self.outlooks[node.name] = self._from_below(node) or self.look(node.node)
        return found

    def look(self, node: Node) -> Outlook:
        """What a node sees that may be none of the snapshot."""
        found = self.surveyor.look(self.snapshot, node, self.grounds)
        for ground in found.grounds:
            self.grounds[ground.view] = ground
        return found

    def _from_below(self, node: NodeObject) -> Outlook | None:
        """The outlook before the fork, if nothing is different for the node."""
        if self.below is None:
            return None
        before, now = self.below.snapshot, self.snapshot
        found = self.below.outlooks.get(node.name)
        if found is None or before.inventory is not now.inventory or before.taint_rules is not now.taint_rules:
            return None
        used = now.usage.pools
        pairs = zip(found.grounds, found.used, strict=True)
        same = all(held is None or used.get(ground.view.id, NOTHING_USED) is held for ground, held in pairs)
        return found if same and found.node is node.node else None


def _roaming(snapshot: Snapshot, before: tuple[PoolUsage, ...]) -> tuple[PoolUsage, ...]:
    pools = snapshot.usage.pools
    now = tuple([pools.get(pool, NOTHING_USED) for pool in snapshot.inventory.roaming])
    return before if len(now) == len(before) and all(map(is_, now, before)) else now


def _changed(changes: Sequence[Change], terrain: Terrain, now: Snapshot) -> set[str]:
    """The nodes that may see something else than before."""
    names: set[str] = set()
    pools: set[PoolId] = set()
    for change in changes:
        if change.topic is Topic.TAINT_RULE:
            return set(terrain.outlooks)
        if change.topic is Topic.NODE and isinstance(change.key, str):
            names.add(change.key)
        elif change.topic is Topic.POOL and isinstance(change.key, PoolId):
            pools.add(change.key)
    for pool in pools:
        if not _of_nodes(pool, terrain.snapshot, now, names):
            return set(terrain.outlooks)
    return names


def _of_nodes(identity: PoolId, before: Snapshot, now: Snapshot, names: set[str]) -> bool:
    """Add the nodes that a pool's change concerns; False: that may be any node."""
    old, new = before.inventory.pools.get(identity), now.inventory.pools.get(identity)
    if identity in before.inventory.roaming or identity in now.inventory.roaming:
        return old is new
    names.update(
        s.placement.node_name
        for pool in (old, new)
        if pool
        for s in pool.slices
        if s.placement and s.placement.node_name
    )
    return True
