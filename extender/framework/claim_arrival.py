"""Claims that a scheduler has seen, or need not see, before our watch has shown them; for preempt, pods as well.

A scheduler that holds pods until their claims exist asks about a pod some milliseconds after its claim was made. Our
watch may be behind then, so filter waits for it, and after `MOST_SECONDS` decides from the template. To reject the pod
would cost it a second or more in the backoff.

A scheduler that does not hold pods asks before the claim is made. Filter then decides from the template, once for each
pod, and bind waits for the claim. If no claim comes, as with a ResourceQuota, the pod is rejected from then on; the
update of its status wakes it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import structlog

from allocator.tools import Recent
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_name
from extender.cluster.objects.claims import READ, ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.pods import check_unbound
from extender.cluster.writes.reservations import Reservation
from extender.framework.bind_errors import BindError
from extender.framework.cycle import refreshed
from extender.framework.pods.claims import Foreseen, foreseen, is_made_for, unmade, unseen
from extender.kube.api import ObjectKey, WriteRefusedError, revision
from extender.kube.resources import CLAIMS, PODS
from extender.tools.fairness import FairMemory

logger = structlog.get_logger()

MOST_SECONDS: Final = 0.1
"""The longest wait of a filter call, in which the scheduler tries no other pod. A watch is some milliseconds behind."""

PAUSE_SECONDS: Final = 5.0
"""After a wait in vain, filter waits for no claim of that namespace for this time: its claims may be deleted."""

_REMEMBERED: Final = 1024
FORESEEN: Final = 10_000
"""The most pods that are known to have been decided from a template, in shares of their namespaces."""


class ClaimArrival:
    """Waits for claims of pods, and remembers for which pods that was in vain.

    Args:
        state: the cluster.
        on_early: called for each pod whose claims are not made yet.
    """

    def __init__(self, state: ClusterState, on_early: Callable[[], None] = lambda: None) -> None:
        self._state = state
        self._on_early = on_early
        self._paused: Recent[float] = Recent(_REMEMBERED)
        self._decided: FairMemory[bool] = FairMemory(FORESEEN)
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

    async def wait_for_all(self, pod: Pod) -> None:
        """Wait until the watch shows a pod and its claims, or for `MOST_SECONDS`: preempt is asked about the pod.

        If all nodes lack CPU, filter is not asked, and no write wakes the scheduler: what preempt does not find now is
        not looked for again before the scheduler's five-minute flush.

        Args:
            pod: as the scheduler sent it.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + MOST_SECONDS
        if self._state.is_made_up(pod) or loop.time() < (self._paused.find(pod.namespace) or 0.0):
            return
        try:
            async with asyncio.timeout_at(until):
                await self._state.passed(PODS, revision(pod.resource_version))
            await made(pod, self._state, until)
        except TimeoutError:
            self._paused.keep(pod.namespace, loop.time() + PAUSE_SECONDS)

    def foresee(self, pod: Pod, snapshot: Snapshot, *, again: bool = False) -> Foreseen | None:
        """The pod and its cluster as they will be once its claims are made; None if a call before has asked for it.

        Args:
            pod: as the scheduler sent it.
            snapshot: the present cluster.
            again: the call that has asked before asks again.
        """
        if pod.uid in self._decided and not again:
            return None
        found = foreseen(refreshed(pod, snapshot), snapshot)
        if found is not None:
            self._decided.keep(pod.namespace, pod.uid, value=True)
            if _is_unmade(pod, snapshot):
                self._on_early()
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


async def arrived(
    pod: Pod, reservations: Sequence[Reservation], state: ClusterState, until: float
) -> tuple[Pod, tuple[Reservation, ...]]:
    """The pod and its reservations once the claims to come are made; their devices are assumed for the claims then.

    Args:
        pod: as it was decided.
        reservations: of the pod; the devices of those to come are assumed under the uid of a stand-in.
        state: the cluster.
        until: when to give up, by the loop's clock.

    Raises:
        BindError: a claim was not made in time.
        WriteRefusedError: a claim was made otherwise than its template said, or the pod has changed.
    """
    try:
        now = await made(pod, state, until)
    except TimeoutError as error:
        raise BindError("out of time: the claims of the pod are not made yet") from error
    check_not_fenced(pod, now)
    check_unbound(now)
    claims = _claims_by_stand_in(now, state.snapshot)
    found = tuple(_for_claim(each, now, claims) if each.is_to_come else each for each in reservations)
    for stand_in, each in zip(reservations, found, strict=True):
        if stand_in.is_to_come:
            state.assume(each.uid, each.allocation, now.uid, each.claim.claim.spec)
            state.forget(stand_in.uid)
    return now, found


def check_not_fenced(old: Pod, new: Pod) -> None:
    """Check that no process has begun to take claims from the pod."""
    if new.fence != old.fence:
        raise WriteRefusedError(f"pod {new.key}: another writer releases its claims")


def _claims_by_stand_in(pod: Pod, snapshot: Snapshot) -> Mapping[str, ClaimObject | None]:
    """The claims of a pod's templates, by the uid of the stand-in (`claim_from_template`)."""
    keys = {each.name: ObjectKey(pod.namespace, claim_name(pod, each) or "") for each in pod.claims}
    return {f"{pod.uid}/{entry}": snapshot.claims.get(key) for entry, key in keys.items()}


def _for_claim(stand_in: Reservation, pod: Pod, claims: Mapping[str, ClaimObject | None]) -> Reservation:
    """The reservation of the claim in place of its stand-in."""
    made_claim, expected = claims.get(stand_in.uid), stand_in.claim.claim
    if made_claim is None:
        raise WriteRefusedError(f"claim {expected.name} was not made")
    claim = made_claim.claim
    told = {name: text for name, text in expected.annotations.items() if name in READ}
    is_as_expected = claim.spec == expected.spec and told.items() <= claim.annotations.items()
    if claim.deleting or claim.allocation is not None or not is_made_for(pod, claim) or not is_as_expected:
        raise WriteRefusedError(f"claim {claim.name} was made otherwise than its template said")
    return replace(stand_in, claim=made_claim, pod=pod)
