"""Claims that a scheduler has seen, or need not see, before our watch has shown them.

A scheduler that holds pods until their claims exist asks about a pod some milliseconds after its claim was made. Our
watch may be behind then, so filter waits for it. To reject the pod would cost it a second or more in the backoff.

A scheduler that does not hold pods asks before the claim is made. Filter then decides from the template, once for each
pod, and bind waits for the claim. If no claim comes, as with a ResourceQuota, the pod is rejected from then on; the
update of its status wakes it.
"""

import asyncio
from typing import Final

import structlog

from allocator.tools import Recent
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import refreshed
from extender.framework.pods.claims_to_come import Foreseen, foreseen, unmade, unseen
from extender.kube.resources import CLAIMS, PODS

logger = structlog.get_logger()

MOST_SECONDS: Final = 0.1
"""The longest wait of a filter call, in which the scheduler tries no other pod. A watch is some milliseconds behind."""

PAUSE_SECONDS: Final = 5.0
"""After a wait in vain, filter waits for no claim of that namespace for this time: its claims may be deleted."""

_REMEMBERED: Final = 1024
_FORESEEN: Final = 10_000


class ClaimArrival:
    """Waits for claims of pods, and remembers for which pods that was in vain.

    Args:
        state: the cluster.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._paused: Recent[float] = Recent(_REMEMBERED)
        self._decided: Recent[bool] = Recent(_FORESEEN)
        self._has_warned = False

    async def wait(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Wait until the watch shows the claims that a pod names; whether all that were missing are there now.

        Args:
            pod: as the scheduler sent it.
            snapshot: in which claims may be missing.
        """
        loop = asyncio.get_running_loop()
        if not (_is_unmade(pod, snapshot) or _is_unseen(pod, snapshot)) or _is_unmade(pod, self._state.snapshot):
            return False
        if loop.time() < (self._paused.find(pod.namespace) or 0.0):
            return not _is_unseen(pod, self._state.snapshot)
        try:
            async with asyncio.timeout(MOST_SECONDS):
                while _is_unseen(pod, self._state.snapshot):
                    await self._state.passed(CLAIMS, self._state.seen(CLAIMS) + 1)
        except TimeoutError:
            self._paused.keep(pod.namespace, loop.time() + PAUSE_SECONDS)
            return False
        return True

    def foresee(self, pod: Pod, snapshot: Snapshot) -> Foreseen | None:
        """The pod and its cluster as they will be once its claims are made; None if that was asked for the pod before.

        Args:
            pod: as the scheduler sent it.
            snapshot: the present cluster.
        """
        if self._decided.find(pod.uid):
            return None
        found = foreseen(refreshed(pod, snapshot), snapshot)
        if found is not None:
            self._decided.keep(pod.uid, value=True)
            self._warn()
        return found

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            advice = "enable DynamicResources at preEnqueue in the scheduler's profile, as in config/scheduler.yaml"
            logger.warning("the scheduler asks about pods before their claims are made", advice=advice)


def _is_unmade(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether a claim of a pod has no name yet."""
    return any(unmade(refreshed(pod, snapshot)))


def _is_unseen(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether a claim that a pod names is missing."""
    return any(unseen(refreshed(pod, snapshot), snapshot))


async def made(pod: Pod, state: ClusterState, until: float) -> Pod:
    """Wait until the watch shows that all claims of a pod are made; returns the pod as it is then.

    Args:
        pod: names a template for which no claim was made.
        state: the cluster.
        until: when to give up, by the loop's clock.

    Raises:
        TimeoutError: they are not made yet.
    """
    async with asyncio.timeout_at(until):
        while True:
            known = state.snapshot.pod(pod.uid) or pod
            if any(unmade(known)):
                await state.passed(PODS, state.seen(PODS) + 1)
            elif any(unseen(known, state.snapshot)):
                await state.passed(CLAIMS, state.seen(CLAIMS) + 1)
            else:
                return known
