"""Pods that have a node, in turns, and whether they have their claims."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from allocator import InvalidObjectError
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.claims import ClaimObject, parse_claim_object
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.snapshot import Snapshot
from extender.kube.api import Api, ObjectKey
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kube.resources import CLAIMS, PODS

AT_ONCE: Final = 500
"""The number of pods in one turn: other work waits for the event loop meanwhile."""


class BoundPods:
    """The pods that have a node and need their claims, some in each turn."""

    def __init__(self) -> None:
        self._waiting: Iterator[str] = iter(())

    def turn(self, snapshot: Snapshot) -> list[Pod]:
        """The next pods; none after the last ones, and then the first ones again."""
        uids = list(islice(self._waiting, AT_ONCE))
        if not uids:
            self._waiting = iter([uid for bound in snapshot.bound.values() for uid in bound])
        return [pod for pod in map(snapshot.pod, uids) if pod is not None and needs_claims(pod)]


def needs_claims(pod: Pod) -> bool:
    """Whether a pod that has a node needs its claims. If the pod has ended, the controller releases them."""
    return bool(pod.node_name) and not pod.deleting and not pod.is_finished


def has_claim(pod: Pod, claim: ClaimObject | None) -> bool:
    """Whether a claim is allocated, and reserved for the pod or its PodGroup."""
    if claim is None or claim.claim.allocation is None:
        return False
    return claim.claim.is_reserved_for(pod.uid, pod.pod_group)


def lacking(pod: Pod, snapshot: Snapshot) -> tuple[ObjectKey, ...]:
    """The claims that a pod names and does not have."""
    return tuple(key for key in claim_keys(pod) if not has_claim(pod, snapshot.claims.get(key)))


async def lacks(api: Api, pod: Pod, key: ObjectKey) -> bool:
    """Whether the API server also says that a pod needs a claim and does not have it; False if it does not answer.

    The watch of pods may be ahead of the watch of claims. So the claim is read first, and then the pod: if the pod is
    still there, it used the claim all the time.
    """
    try:
        try:
            claim = parse_claim_object(await api.get(CLAIMS, key))
        except ApiError as error:
            if not error.is_missing:
                raise
            claim = None
        now = parse_pod(await api.get(PODS, pod.key))
    except (ApiError, OutcomeUnknownError, InvalidObjectError):
        return False
    return now.uid == pod.uid and needs_claims(now) and not has_claim(pod, claim)
