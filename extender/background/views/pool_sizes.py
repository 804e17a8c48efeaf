"""Tells the log of pools and nodes that get too many devices."""

from collections.abc import Callable

import structlog

from extender.background.task import BackgroundTask
from extender.cluster.cluster_state import ClusterState
from extender.kube.resources import SLICES
from extender.observe.pool_sizes import PoolSizes, TooLarge

logger = structlog.get_logger()


class SizesKeeper(BackgroundTask):
    """Looks at the sizes of pools.

    Args:
        state: has the pools. While they are not known, there is nothing to look at.
        sizes: finds what is too large.
        tell: gets each that becomes too large.
    """

    def __init__(self, state: ClusterState, sizes: PoolSizes, tell: Callable[[TooLarge], None] | None = None) -> None:
        self._state = state
        self._sizes = sizes
        self._tell = tell or _warn
        self._told: frozenset[tuple[str, str]] = frozenset()

    async def tick(self) -> None:
        """Look at the pools that have changed."""
        if self._state.doubt_of(SLICES):
            return
        found = self._sizes.too_large(self._state.snapshot)
        for each in found:
            if (each.kind, each.name) not in self._told:
                self._tell(each)
        self._told = frozenset((each.kind, each.name) for each in found)


def _warn(found: TooLarge) -> None:
    logger.warning("too many devices to search in time", problem=str(found), devices=found.devices, limit=found.most)
