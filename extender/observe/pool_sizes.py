"""Pools and nodes with more devices than a search has time for (`docs/reference/limits.md`)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from allocator import PoolId
from allocator.tools import printable
from extender.cluster.change_log import Change
from extender.cluster.kinds import Topic
from extender.cluster.snapshot import Snapshot

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


class PoolSizes:
    """Finds what is too large again and again: looks only at pools that have changed since the last time.

    Args:
        changes_since: the changes after a version of the snapshot; None: anything may have changed.
    """

    def __init__(self, changes_since: Callable[[int], Iterable[Change] | None]) -> None:
        self._changes_since = changes_since
        self._version = -1
        self._pools: set[PoolId] = set()
        self._nodes: set[str] = set()

    def too_large(self, snapshot: Snapshot) -> tuple[TooLarge, ...]:
        """The pools and nodes that are too large, by kind and name."""
        for pool in self._changed(snapshot):
            self._look(pool, snapshot)
        self._version = snapshot.version
        self._pools = {pool for pool in self._pools if _size(pool, snapshot) > MOST_OF_POOL}
        self._nodes = {node for node in self._nodes if snapshot.inventory.local_devices(node) > MOST_OF_NODE}
        return tuple(sorted(self._found(snapshot)))

    def _changed(self, snapshot: Snapshot) -> Iterable[PoolId]:
        changes = None if self._version < 0 else self._changes_since(self._version)
        if changes is None:
            return snapshot.inventory.pools
        return {each.key for each in changes if each.topic is Topic.POOL and isinstance(each.key, PoolId)}

    def _look(self, identity: PoolId, snapshot: Snapshot) -> None:
        pool = snapshot.inventory.pools.get(identity)
        if pool is None:
            return
        self._pools.add(identity)
        self._nodes.update(pool.local_nodes)

    def _found(self, snapshot: Snapshot) -> Iterator[TooLarge]:
        for pool in self._pools:
            yield TooLarge("pool", str(pool), _size(pool, snapshot), MOST_OF_POOL)
        for node in self._nodes:
            yield TooLarge("node", node, snapshot.inventory.local_devices(node), MOST_OF_NODE)


def _size(identity: PoolId, snapshot: Snapshot) -> int:
    pool = snapshot.inventory.pools.get(identity)
    return 0 if pool is None else pool.size
