"""Pods that have a node, in turns, and whether they have their claims."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from allocator import InvalidObjectError
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import ClaimObject, parse_claim_object
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, View
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError
from extender.kube.resources import CLAIMS, PODS

AT_ONCE: Final = 500
"""The number of pods in one turn."""

PIECE: Final = 50
"""The number of pods after which other work gets the event loop: to look at them takes a millisecond."""


READ_AT_ONCE: Final = 500
"""The number of pods after which other work gets the event loop while all of them are read: some milliseconds."""


@dataclass(slots=True)
class _Following:
    """The bound pods, by their uids.

    Attributes:
        uids: of all of them, by key.
        open: those to look at, in turns.
        claims: those that have all of their claims, with the keys of these.
        users: the pods in `claims` that name a claim; a single one has no tuple.
    """

    uids: dict[ObjectKey, str] = field(default_factory=dict)
    open: dict[str, None] = field(default_factory=dict)
    claims: dict[str, tuple[ObjectKey, ...]] = field(default_factory=dict)
    users: dict[ObjectKey, str | tuple[str, ...]] = field(default_factory=dict)

    def look(self, key: ObjectKey, pod: Pod | None) -> str:
        """Take in a pod as it is now. Returns the uid of the pod that is not there any more; empty: none is gone."""
        known, uid = self.uids.pop(key, ""), pod.uid if pod is not None and pod.node_name else ""
        self.open.pop(known, None)
        self.leave_alone(known, ())
        if uid:
            self.uids[key] = uid
            self.open[uid] = None
        return known if known != uid else ""

    def leave_alone(self, uid: str, claims: tuple[ObjectKey, ...]) -> None:
        """Look at a pod no more until it changes, or one of these claims does."""
        self.open.pop(uid, None)
        for key in self.claims.pop(uid, ()):
            left = tuple(each for each in _users(self.users.pop(key, ())) if each != uid)
            if left:
                self.users[key] = left if len(left) > 1 else left[0]
        for key in claims:
            others = _users(self.users.get(key, ()))
            self.users[key] = (*others, uid) if others else uid
        if claims:
            self.claims[uid] = claims

    def changed(self, key: ObjectKey) -> None:
        """Look again at the pods that name a claim."""
        for uid in _users(self.users.get(key, ())):
            self.leave_alone(uid, ())
            self.open[uid] = None


def _users(found: str | tuple[str, ...]) -> tuple[str, ...]:
    return (found,) if isinstance(found, str) else found


class BoundPods(View[_Following]):
    """The pods that have a node and need their claims, some in each turn.

    All are looked at first. One that is `settled` is left alone until it changes, or one of its claims does; the others
    come again. So nothing is done while nothing changes.
    """

    topics = frozenset({Topic.POD, Topic.CLAIM})
    bound = "the bound pods, and the keys of their claims"

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state)
        self._state = state
        self._had: set[str] = set()
        self._waiting: Iterator[str] = iter(())

    def build(self, snapshot: Snapshot) -> _Following:
        """All bound pods, to be looked at."""
        found = _Following()
        for _ in self._read(snapshot, found):
            pass
        return found

    def _read(self, snapshot: Snapshot, found: _Following) -> Iterator[None]:
        """Take in all bound pods, in pieces."""
        for number, uid in enumerate((uid for pods in snapshot.bound.values() for uid in pods), 1):
            found.look(snapshot.pod_keys[uid], snapshot.pod(uid))
            if number % READ_AT_ONCE == 0:
                yield
        self._had.intersection_update(found.open)

    def apply(self, value: _Following, reach: Reach, snapshot: Snapshot) -> _Following:
        """The view with the pods that have changed, and those whose claims have, to be looked at."""
        for key in reach.keys(Topic.POD) or ():
            self._had.discard(value.look(key, snapshot.pods.get(key)))
        for key in reach.keys(Topic.CLAIM) or ():
            value.changed(key)
        return value

    def had_claims(self, uid: str) -> bool:
        """Whether the pod of a uid had all of its claims at some time."""
        return uid in self._had

    @property
    def has_open(self) -> bool:
        """Whether some pods are to be looked at, or it is not known whether there are any."""
        return self._known is None or bool(self._known.value.open)

    async def turn(self) -> AsyncIterator[Pod]:
        """The pods of the next turn, as the newest snapshot has them, with pauses for other work.

        There are none after the last ones, and then the first ones again.
        """
        await self._begin()
        following = self.at(self._state.snapshot)
        uids = list(islice(self._waiting, AT_ONCE))
        if not uids:
            self._waiting = iter(tuple(following.open))
        for start in range(0, len(uids), PIECE):
            if start:
                await asyncio.sleep(0)
            for uid in uids[start : start + PIECE]:
                pod = self._state.snapshot.pod(uid) if uid in following.open else None
                if pod is not None and needs_claims(pod):
                    yield pod
                elif pod is not None:
                    following.leave_alone(uid, ())

    async def _begin(self) -> None:
        """Read all bound pods, with pauses for other work, if it is not known which of them have changed."""
        known = self._known
        if known is not None and self._state.since(known.version).changed is not None:
            return
        snapshot, found = self._state.snapshot, _Following()
        for _ in self._read(snapshot, found):
            await asyncio.sleep(0)
        self.keep(found, snapshot)

    def settled(self, pod: Pod, snapshot: Snapshot) -> None:
        """The pod has all of its claims: it is left alone until it changes, or one of them does."""
        self._had.add(pod.uid)
        self.at(snapshot).leave_alone(pod.uid, claim_keys(pod))

    def leave_alone(self, pod: Pod, snapshot: Snapshot) -> None:
        """Nothing is to be done for the pod until it changes."""
        self.at(snapshot).leave_alone(pod.uid, ())


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


def is_pinned(pod: Pod) -> bool:
    """Whether kubelet would start the pod if it had its claims. A started pod without claims has lost them."""
    return needs_claims(pod) and not pod.has_started


def lacks_some(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether a pod that has a node has not all of its claims."""
    if not needs_claims(pod):
        return False
    unmade = [each for each in pod.claims if each.template_name and each.name not in pod.claim_statuses]
    return bool(unmade or lacking(pod, snapshot))


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
