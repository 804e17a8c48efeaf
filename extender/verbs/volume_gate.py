"""The volume gate: if pods have volumes, a filter call waits for the outcome of the pods before.

A pod's volumes may be made on its node between filter and bind. After that the pod can go nowhere else, so no other pod
may get its devices. They are safe when the scheduler has nominated the pod for the node (Kubernetes 1.35, feature
NominatedNodeNameForExpectation) or binds it. In the milliseconds before, the next pod's filter call may come.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.kube.raw import revision

MOST_SECONDS: Final = 0.08
"""The longest time that a filter call waits for the outcome of earlier pods. A nomination takes milliseconds, and is on
its way when the next call comes. If a scheduler forgets a pod, the calls of other schedulers must not wait for long."""

_POLL_SECONDS: Final = 0.002

_MOST_PODS: Final = 16
"""Pods that are remembered. A scheduler filters one pod at a time, and binds or nominates it soon."""


class VolumeGate:
    """Pods that filter has found nodes for, until their node is known.

    Args:
        state: the cluster.
        has_decided: whether a bind of the pod with this uid is running, and others see its devices.
    """

    def __init__(self, state: ClusterState, has_decided: Callable[[str], bool]) -> None:
        self._state = state
        self._has_decided = has_decided
        self._open: dict[str, Pod] = {}

    def give(self, pod: Pod) -> None:
        """Filter has found nodes for a pod."""
        self._open[pod.uid] = pod
        if len(self._open) > _MOST_PODS:
            del self._open[next(iter(self._open))]

    async def wait(self, pod: Pod) -> None:
        """Wait for the outcome of the pods before, if this pod or one of them has volumes."""
        self._open.pop(pod.uid, None)
        for _ in range(round(MOST_SECONDS / _POLL_SECONDS)):
            self._open = {uid: other for uid, other in self._open.items() if self._is_unknown(other)}
            if not any(pod.has_volumes or other.has_volumes for other in self._open.values()):
                return
            await asyncio.sleep(_POLL_SECONDS)
        self._open.clear()

    def _is_unknown(self, pod: Pod) -> bool:
        """Whether no bind has decided for the pod, and nothing has changed it: nominations and failures do."""
        known = self._state.snapshot.pod(pod.uid)
        is_old = known is None or revision(known.resource_version) <= revision(pod.resource_version)
        return is_old and not self._has_decided(pod.uid)
