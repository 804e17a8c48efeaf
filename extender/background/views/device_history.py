"""Looks at claims all the time, so that a device's page can say who has held the device."""

from extender.background.task import BackgroundTask
from extender.cluster.cluster_state import ClusterState
from extender.kube.resources import CLAIMS
from extender.observe.device_history import DeviceHistory


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
