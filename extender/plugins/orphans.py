"""Orphan collection: special claims that no pod will use are deleted. A crash leaves them, or a POST that landed late.

A pod's next bind would use or delete its own. But a pod that fits nowhere any more is not bound again, and what its
claim holds would be lost to others.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from extender.cluster.binding_conditions import unmet
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.bind.bind import Binder
from extender.framework.handle import Handle
from extender.framework.pods.extended_resources import is_ours
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.tools.faults import Faults

IDLE: Final = timedelta(seconds=60)
"""A claim for which nothing has happened for so long is not being bound: a bind takes seconds, and is repeated soon."""

PERIOD: Final = timedelta(seconds=10)
"""Between sweeps."""


class OrphanCollector(BackgroundTask):
    """Collects the orphans of a cluster from time to time.

    Args:
        state: the cluster.
        binder: deletes the claims, when it does not bind their pods.
        now: the time.
        faults: gets unexpected errors, each with its pod.
    """

    def __init__(self, state: ClusterState, binder: Binder, now: Callable[[], datetime], faults: Faults) -> None:
        self._state = state
        self._binder = binder
        self._now = now
        self._faults = faults
        self._collected: datetime | None = None

    @property
    def idle_seconds(self) -> float:
        """Until the next look, if there are special claims."""
        if not self._state.snapshot.special:
            return UNTIL_NEWS
        return 0.0 if self._collected is None else (self._collected + PERIOD - self._now()).total_seconds()

    async def tick(self) -> None:
        """Collect, if it is time to."""
        self.look()

    def look(self) -> None:
        """Collect orphans, if it is time to."""
        now = self._now()
        if self._state.not_ready or (self._collected is not None and now - self._collected < PERIOD):
            return
        self._collected = now
        snapshot = self._state.snapshot
        for uid in list(snapshot.special):
            with self._faults.of(f"the special claims of the pod with uid {uid}"):
                for pod, claim in list(orphans(uid, snapshot, now)):
                    if not self._binder.is_binding(uid):
                        self._binder.give_back(pod, [claim], f"claim {claim.claim.name}: no pod uses it")


def orphans(uid: str, snapshot: Snapshot, now: datetime) -> Iterator[tuple[Pod, ClaimObject]]:
    """The special claims by dra-extender, made for the pod with a uid, that no pod uses or waits for.

    Yields the pod and the claim.
    """
    pod = snapshot.pod(uid)
    for claim in snapshot.special_claims(uid):
        owner = pod or _owner(claim)
        if is_ours(claim, owner.name) and not _is_used(claim, pod, snapshot) and _is_idle(claim, now):
            yield owner, claim


def _is_used(claim: ClaimObject, pod: Pod | None, snapshot: Snapshot) -> bool:
    """Whether a bound pod names the claim in its status, a pod waits for its devices, or a write is under way."""
    if pod is None or claim.claim.uid in snapshot.assumed:
        return pod is not None
    if pod.node_name:
        return pod.extended_claim is not None and pod.extended_claim.claim_name == claim.claim.name
    return unmet(claim) is not None


def _is_idle(claim: ClaimObject, now: datetime) -> bool:
    allocation = claim.claim.allocation
    times = [claim.created, *([allocation.timestamp] if allocation is not None and allocation.timestamp else [])]
    return all(now - datetime.fromisoformat(each) >= IDLE for each in times if each)


def _owner(claim: ClaimObject) -> Pod:
    """The pod as the claim knows it."""
    return Pod(claim.claim.namespace, claim.claim.owner_name, claim.claim.owner_uid or "")


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task for orphans."""
    return [OrphanCollector(handle.state, handle.binder, handle.now, handle.faults)]
