"""Losses: a bound pod had a claim and does not have it any more. Each loss is counted, and told by an Event on the pod.

A Binding has no precondition on claims. So no bind can stop others who delete a claim and make it anew, or deallocate
it, just before the Binding or at any time after it. Such a loss can only be noticed.

A pod that has not started and was never seen with its claims is a pinned pod: `extender.plugins.pinned_claims`.
"""

from collections.abc import Callable, Sequence

import structlog
from prometheus_client import Counter

from allocator.tools import printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.framework.bound_pods import BoundPods, lacking, lacks
from extender.framework.handle import Handle
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import Api, ObjectKey

logger = structlog.get_logger()


class LostClaims(BackgroundTask):
    """Looks at bound pods that have changed, or whose claims have, some at a time.

    Args:
        state: the cluster.
        api: confirms a loss: the watch of pods may be ahead of the watch of claims.
        count: counts one loss.
        tell: writes an Event on the pod.
    """

    def __init__(
        self, state: ClusterState, api: Api, count: Callable[[], None], tell: Callable[[Pod, Note], None]
    ) -> None:
        self._state = state
        self._api = api
        self._count = count
        self._tell = tell
        self._pods = BoundPods(state)
        self._told: set[tuple[str, ObjectKey]] = set()

    @property
    def idle_seconds(self) -> float:
        """Until pods or claims change, if no pod lacks one."""
        return 0.0 if self._pods.has_open else UNTIL_NEWS

    async def tick(self) -> None:
        """Look at some bound pods, and at the rest next time."""
        if self._state.not_ready:
            return
        if self._told:
            snapshot = self._state.snapshot
            self._told = {each for each in self._told if snapshot.pod(each[0]) is not None}
        async for pod in self._pods.turn():
            snapshot = self._state.snapshot
            missing = lacking(pod, snapshot)
            self._told.difference_update((pod.uid, key) for key in claim_keys(pod) if key not in missing)
            if not missing:
                self._pods.settled(pod, snapshot)
            for key in missing if pod.has_started or self._pods.had_claims(pod.uid) else ():
                if (pod.uid, key) not in self._told and await lacks(self._api, pod, key):
                    self._tell_lost_claim(pod, key)

    def _tell_lost_claim(self, pod: Pod, key: ObjectKey) -> None:
        self._told.add((pod.uid, key))
        self._count()
        text = (
            f"the pod has node {pod.node_name}, and claim {key.name} is not allocated and reserved for it any more: "
            "others have changed the claim"
        )
        self._tell(pod, Note("ClaimLost", printable(text), "Binding"))
        logger.warning("claim lost", pod=str(pod), claim=str(key))


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task for lost claims, which counts them."""
    text = "Claims of bound pods that others have deallocated, or deleted and made again."
    lost = Counter("dra_extender_lost_claims", text, registry=handle.registry)
    return [LostClaims(handle.state, handle.api, lost.inc, handle.tell)]
