"""Ends what is kept for pods that are bound: they have their devices, and the condition would say otherwise."""

from contextlib import suppress
from typing import Final

from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.pods import Nominator
from extender.framework.task import BackgroundTask
from extender.kube.api import ObjectKey, OutcomeUnknownError, WriteRefusedError

MOST_WRITES: Final = 8
"""The most writes in a turn. The devices are safe already, so this is not urgent."""


class KeptOfBound(BackgroundTask):
    """Writes that nothing is kept any more for pods that are bound.

    Args:
        state: the cluster.
        nominator: writes what is kept.
    """

    def __init__(self, state: ClusterState, nominator: Nominator) -> None:
        self._state = state
        self._nominator = nominator
        self._seen = -1
        self._due: dict[ObjectKey, None] = {}

    async def tick(self) -> None:
        """End what is kept for some pods. What could not be written is left: nothing depends on it."""
        if self._state.not_ready:
            return
        self._note_changes()
        for key in list(self._due)[:MOST_WRITES]:
            del self._due[key]
            pod = self._state.snapshot.pods.get(key)
            if pod is not None and _has_kept(pod):
                with suppress(WriteRefusedError, OutcomeUnknownError):
                    await self._nominator.end(pod, "the pod is bound")

    def _note_changes(self) -> None:
        """Note the pods that have got a node since the last turn; in the first turn, all that have one."""
        snapshot = self._state.snapshot
        changed = self._state.since(self._seen).keys(Topic.POD)
        self._seen = snapshot.version
        for key in snapshot.pods if changed is None else changed:
            pod = snapshot.pods.get(key)
            if pod is not None and _has_kept(pod):
                self._due[key] = None


def _has_kept(pod: Pod) -> bool:
    return bool(pod.node_name and pod.kept.node) and not pod.deleting and not pod.is_finished
