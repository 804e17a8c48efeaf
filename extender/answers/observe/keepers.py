"""Keepers: what people look at is worked out before they ask.

The history of devices says who has held a device. The states of devices are there before the first page of the console
asks. The log is told of pools and nodes that get too many devices.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog

from allocator import PoolId
from extender.answers.observe.device_history import DeviceHistory
from extender.answers.observe.device_states import DeviceStates
from extender.answers.observe.overview import Overview
from extender.answers.observe.pool_sizes import PoolSizes, TooLarge
from extender.cluster.cluster_state import ClusterState
from extender.cluster.snapshot import Snapshot
from extender.framework.task import BackgroundTask
from extender.kube.resources import CLAIMS, SLICES
from extender.tools.offload import Offload


class HistoryKeeper(BackgroundTask):
    """Keeps the history of devices.

    Args:
        state: has the claims. While they are not known, there is nothing to compare.
        history: is told of them.
    """

    def __init__(self, state: ClusterState, history: DeviceHistory) -> None:
        self._state = state
        self._history = history

    async def tick(self) -> None:
        """Look at the claims that have changed."""
        if not self._state.doubt_of(CLAIMS):
            self._history.look(self._state.snapshot)


TURN_SECONDS: Final = 0.05
"""The longest turn, but for the last pool. With four turns a second, the work takes a fifth of a core at most."""


class StatesKeeper(BackgroundTask):
    """Follows the pools: those that have changed are worked out again, a few in each turn.

    Args:
        state: has the pools. While they are not known, there is nothing to work out.
        states: remembers what is worked out.
        clock: seconds, from any point.
        off_loop: where the work is done.
    """

    def __init__(
        self, state: ClusterState, states: DeviceStates, clock: Callable[[], float], off_loop: Offload
    ) -> None:
        self._state = state
        self._states = states
        self._clock = clock
        self._off_loop = off_loop
        self._version = -1
        self._left: dict[PoolId, None] = {}

    async def tick(self) -> None:
        """Work for a moment, if something is left to work out."""
        if self._state.not_ready:
            return
        snapshot = self._state.snapshot
        changed = self._state.since(self._version).pools(snapshot)
        self._left.update(dict.fromkeys(snapshot.inventory.pools if changed is None else changed))
        self._version = snapshot.version
        if self._left:
            await self._off_loop(partial(self._work, snapshot))

    def _work(self, snapshot: Snapshot) -> None:
        states_of, until = self._states.at(snapshot), self._clock() + TURN_SECONDS
        while self._left and self._clock() < until:
            pool, _ = self._left.popitem()
            if pool in snapshot.inventory.pools:
                states_of(pool)


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


def keepers(overview: Overview) -> Sequence[BackgroundTask]:
    """The background tasks of an overview. They wait for no search, so the clock is a plain one."""
    state = overview.state
    return [
        HistoryKeeper(state, overview.history),
        StatesKeeper(state, overview.devices, time.monotonic, overview.off_loop),
        SizesKeeper(state, overview.sizes),
    ]
