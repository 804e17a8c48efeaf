"""Pools and nodes with more devices than a search has time for (`docs/reference/limits.md`)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from allocator import PoolId
from allocator.tools import printable
from extender.cluster.kinds import Topic
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, View

MOST_OF_POOL: Final = 20_480
MOST_OF_NODE: Final = 20_480
"""Devices of a pool, and of all pools of a node's own. With more, nothing is refused, but searches take long."""


@dataclass(frozen=True, slots=True, order=True)
class TooLarge:
    """A pool or a node with too many devices.

    Attributes:
        kind: "pool" or "node".
        most: the number up to which searches end in time.
    """

    kind: str
    name: str
    devices: int
    most: int

    def __str__(self) -> str:
        return f"{self.kind} {printable(self.name)} has {self.devices} devices, more than {self.most}"


@dataclass(frozen=True, slots=True)
class _Large:
    """The pools and nodes that are too large."""

    pools: frozenset[PoolId] = frozenset()
    nodes: frozenset[str] = frozenset()


class PoolSizes(View[_Large]):
    """Finds what is too large again and again: looks only at pools that have changed since the last time."""

    topics = frozenset({Topic.POOL})
    bound = "the pools and nodes that are too large"

    def too_large(self, snapshot: Snapshot) -> tuple[TooLarge, ...]:
        """The pools and nodes that are too large, by kind and name."""
        found, inventory = self.at(snapshot), snapshot.inventory
        pools = [TooLarge("pool", str(pool), _size(pool, snapshot), MOST_OF_POOL) for pool in found.pools]
        nodes = [TooLarge("node", node, inventory.local_devices(node), MOST_OF_NODE) for node in found.nodes]
        return tuple(sorted(pools + nodes))

    def build(self, snapshot: Snapshot) -> _Large:
        """Look at all pools."""
        return self._among(snapshot.inventory.pools, _Large(), snapshot)

    def apply(self, value: _Large, reach: Reach, snapshot: Snapshot) -> _Large:
        """Look at the pools that have changed, and at what was too large."""
        return self._among(reach.keys(Topic.POOL) or (), value, snapshot)

    @staticmethod
    def _among(changed: Collection[PoolId], before: _Large, snapshot: Snapshot) -> _Large:
        inventory = snapshot.inventory
        nodes = {node for pool in changed if pool in inventory.pools for node in inventory.pools[pool].local_nodes}
        return _Large(
            frozenset(pool for pool in {*before.pools, *changed} if _size(pool, snapshot) > MOST_OF_POOL),
            frozenset(node for node in {*before.nodes, *nodes} if inventory.local_devices(node) > MOST_OF_NODE),
        )


def _size(identity: PoolId, snapshot: Snapshot) -> int:
    pool = snapshot.inventory.pools.get(identity)
    return 0 if pool is None else pool.size
