"""Pools and nodes with more devices than a search has time for (`docs/reference/limits.md`)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import structlog

from allocator import PoolId
from allocator.tools import printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, View, nodes_of
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.resources import SLICES
from extender.tools.offload import Offload

logger = structlog.get_logger()

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


_Large: TypeAlias = tuple[frozenset[PoolId], frozenset[str]]
"""Pools and nodes that are too large."""


class PoolSizes(View[_Large]):
    """Finds what is too large again and again: looks only at pools that have changed since the last time."""

    topics = frozenset({Topic.POOL})
    bound = "the pools and nodes that are too large"

    def too_large(self, snapshot: Snapshot) -> tuple[TooLarge, ...]:
        """The pools and nodes that are too large, by kind and name."""
        (pools, nodes), devices_of = self.at(snapshot), snapshot.inventory.local_devices
        found = [TooLarge("pool", str(pool), _size(pool, snapshot), MOST_OF_POOL) for pool in pools]
        return tuple(sorted(found + [TooLarge("node", node, devices_of(node), MOST_OF_NODE) for node in nodes]))

    def build(self, snapshot: Snapshot) -> _Large:
        """Look at all pools."""
        return self.apply((frozenset(), frozenset()), Reach({Topic.POOL: {*snapshot.inventory.pools}}), snapshot)

    def apply(self, value: _Large, reach: Reach, snapshot: Snapshot) -> _Large:
        """Look at the pools that have changed, and at what was too large."""
        pools, nodes = set(value[0]), set(value[1])
        for pool in reach.keys(Topic.POOL) or ():
            pools.add(pool)
            nodes |= nodes_of(pool, snapshot)
        return (
            frozenset(pool for pool in pools if _size(pool, snapshot) > MOST_OF_POOL),
            frozenset(node for node in nodes if snapshot.inventory.local_devices(node) > MOST_OF_NODE),
        )


def _size(identity: PoolId, snapshot: Snapshot) -> int:
    pool = snapshot.inventory.pools.get(identity)
    return 0 if pool is None else pool.size


class SizesKeeper(BackgroundTask):
    """Looks at the sizes of pools.

    Args:
        state: has the pools. While they are not known, there is nothing to look at.
        sizes: finds what is too large.
        off_loop: where that is done: all pools are looked at first, and after many changes.
        tell: gets each that becomes too large.
    """

    def __init__(
        self,
        state: ClusterState,
        sizes: PoolSizes,
        off_loop: Offload,
        tell: Callable[[TooLarge], None] | None = None,
    ) -> None:
        self._state = state
        self._sizes = sizes
        self._off_loop = off_loop
        self._tell = tell or _warn
        self._told: frozenset[tuple[str, str]] = frozenset()
        self._seen = -1
        """The version of the cluster at the last look."""

    @property
    def idle_seconds(self) -> float:
        """Until pools change."""
        return UNTIL_NEWS

    async def tick(self) -> None:
        """Look at the pools that have changed."""
        snapshot = self._state.snapshot
        changed = self._state.since(self._seen).keys(Topic.POOL)
        if self._state.doubt_of(SLICES):
            return
        self._seen = snapshot.version
        if changed is not None and not changed:
            return
        found = await self._off_loop(partial(self._sizes.too_large, snapshot))
        for each in found:
            if (each.kind, each.name) not in self._told:
                self._tell(each)
        self._told = frozenset((each.kind, each.name) for each in found)


def _warn(found: TooLarge) -> None:
    logger.warning("too many devices to search in time", problem=str(found), devices=found.devices, limit=found.most)
