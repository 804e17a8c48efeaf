"""Losses: claims that a bound pod uses and does not have any more, counted and told.

A Binding has no precondition on claims. So no bind can stop others who delete a claim and make it anew, or deallocate
it, just before the Binding or at any time after it. All that is left is to notice.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import structlog

from allocator import InvalidObjectError
from extender.background.task import BackgroundTask
from extender.kube.api import CLAIMS, PODS, Api, ApiError, ObjectKey, OutcomeUnknownError
from extender.pods.claims import claim_keys
from extender.state.objects import ClaimObject, Pod, parse_claim_object, parse_pod
from extender.state.state import ClusterState
from extender.writes.claim_json import is_reserved
from extender.writes.events import Note

logger = structlog.get_logger()

AT_ONCE: Final = 500
"""Pods in one look: others wait for the event loop meanwhile."""


class LostClaims(BackgroundTask):
    """Looks at bound pods in turns, some at a time.

    Args:
        state: the cluster.
        api: asked before anything is told: what is known of pods may be newer than what is known of claims.
        count: counts one.
        tell: tells a pod of one.
    """

    def __init__(
        self, state: ClusterState, api: Api, count: Callable[[], None], tell: Callable[[Pod, Note], None]
    ) -> None:
        self._state = state
        self._api = api
        self._count = count
        self._tell = tell
        self._waiting: Iterator[str] = iter(())
        self._told: set[tuple[str, ObjectKey]] = set()

    async def tick(self) -> None:
        """Look at some bound pods, and at the rest next time."""
        snapshot = self._state.snapshot
        if self._state.not_ready:
            return
        uids = list(islice(self._waiting, AT_ONCE))
        if not uids:
            self._waiting = iter([uid for bound in snapshot.bound.values() for uid in bound])
            self._told = {each for each in self._told if snapshot.pod(each[0]) is not None}
        for pod in filter(None, map(snapshot.pod, uids)):
            for key in claim_keys(pod) if _needs_claims(pod) else ():
                if has_claim(pod, snapshot.claims.get(key)):
                    self._told.discard((pod.uid, key))
                elif (pod.uid, key) not in self._told and await self._is_lost(pod, key):
                    self._found(pod, key)

    def _found(self, pod: Pod, key: ObjectKey) -> None:
        self._told.add((pod.uid, key))
        self._count()
        text = (
            f"the pod has node {pod.node_name}, and claim {key.name} is not allocated and reserved for it: others have "
            "changed the claim, or have given the pod its node without its claims"
        )
        self._tell(pod, Note("ClaimLost", text, "Binding"))
        logger.warning("claim lost", pod=str(pod), claim=str(key))

    async def _is_lost(self, pod: Pod, key: ObjectKey) -> bool:
        """The claim is read first: the pod, which is known to be bound, still uses it if it is there afterwards."""
        try:
            try:
                claim = parse_claim_object(await self._api.get(CLAIMS, key))
            except ApiError as error:
                if not error.is_missing:
                    raise
                claim = None
            now = parse_pod(await self._api.get(PODS, pod.key))
        except (ApiError, OutcomeUnknownError, InvalidObjectError):
            return False
        return now.uid == pod.uid and _needs_claims(now) and not has_claim(pod, claim)


def has_claim(pod: Pod, claim: ClaimObject | None) -> bool:
    """Whether a claim is allocated, and reserved for the pod."""
    return claim is not None and claim.claim.allocation is not None and is_reserved(claim.claim, pod.uid)


def _needs_claims(pod: Pod) -> bool:
    """Of a pod that has ended the controller releases the claims."""
    return bool(pod.node_name) and not pod.deleting and not pod.is_finished
