"""Pods that have a node, in turns, and whether they have their claims."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from operator import is_not
from typing import Final

from allocator import InvalidObjectError
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.claims import ClaimObject, parse_claim_object
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.snapshot import Snapshot
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError
from extender.kube.resources import CLAIMS, PODS

AT_ONCE: Final = 500
"""The number of pods in one turn."""

PIECE: Final = 50
"""The number of pods after which other work gets the event loop: to look at them takes a millisecond."""


class BoundPods:
    """The pods that have a node and need their claims, some in each turn."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._waiting: Iterator[str] = iter(())

    def next_uids(self) -> Sequence[str]:
        """The uids of the pods of the next turn; none after the last ones, and then the first ones again."""
        uids = list(islice(self._waiting, AT_ONCE))
        if not uids:
            self._waiting = iter([uid for bound in self._state.snapshot.bound.values() for uid in bound])
        return uids

    async def pods(self, uids: Sequence[str], known: "PodsWithClaims") -> AsyncIterator[Pod]:
        """The pods of a turn that need their claims, as the newest snapshot has them, with pauses for other work.

        Args:
            uids: of the turn.
            known: pods that are left out until they or their claims change.
        """
        for start in range(0, len(uids), PIECE):
            if start:
                await asyncio.sleep(0)
            for uid in known.changed(uids[start : start + PIECE], self._state.snapshot):
                pod = self._state.snapshot.pod(uid)
                if pod is not None and needs_claims(pod):
                    yield pod


class PodsWithClaims:
    """Bound pods that were seen with all of their claims, each with the values of pod and claims of that time.

    Snapshots replace values and never change them. So a pod is known to be unchanged without a look at its claims,
    which may have hundreds of consumers.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Pod, tuple[ObjectKey, ...], tuple[ClaimObject, ...]]] = {}

    def __contains__(self, uid: str) -> bool:
        """Whether the pod of that uid had all of its claims at some time."""
        return uid in self._seen

    def changed(self, uids: Iterable[str], snapshot: Snapshot) -> list[str]:
        """Those of the pods that are not known, or that are not the same values any more, or their claims are not.

        All bound pods are compared several times a second: nothing written in Python is called for each.
        """
        seen, keys, pods, claims = self._seen.get, snapshot.pod_keys, snapshot.pods, snapshot.claims.get
        return [
            uid
            for uid in uids
            if (known := seen(uid)) is None
            or uid not in keys
            or pods[keys[uid]] is not known[0]
            or any(map(is_not, map(claims, known[1]), known[2]))
        ]

    def note(self, pod: Pod, snapshot: Snapshot) -> None:
        """Remember a pod that has all of its claims."""
        claims = tuple([snapshot.claims[key] for key in claim_keys(pod)])
        self._seen[pod.uid] = pod, tuple([snapshot.claim_keys[each.claim.uid] for each in claims]), claims

    def forget_gone(self, snapshot: Snapshot) -> None:
        """Forget the pods that do not exist any more."""
        self._seen = {uid: seen for uid, seen in self._seen.items() if uid in snapshot.pod_keys}


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
