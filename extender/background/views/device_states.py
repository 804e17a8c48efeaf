"""Works out the states of devices before somebody asks, so that the first page of the console need not wait for it."""

from collections.abc import Callable
from functools import partial
from typing import Final

from allocator import PoolId
from extender.background.task import BackgroundTask
from extender.cluster.cluster_state import ClusterState
from extender.cluster.snapshot import Snapshot
from extender.observe.device_states import DeviceStates, pools_of
from extender.tools.offload import Offload

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
        self._left.update(self._changed(snapshot))
        self._version = snapshot.version
        if self._left:
            await self._off_loop(partial(self._work, snapshot))

    def _changed(self, snapshot: Snapshot) -> dict[PoolId, None]:
        changes = self._state.changes_since(self._version)
        if changes is None:
            return dict.fromkeys(snapshot.inventory.pools)
        return {pool: None for each in changes for pool in pools_of(each, snapshot)}

    def _work(self, snapshot: Snapshot) -> None:
        states_of, until = self._states.at(snapshot), self._clock() + TURN_SECONDS
        while self._left and self._clock() < until:
            pool, _ = self._left.popitem()
            if pool in snapshot.inventory.pools:
                states_of(pool)
