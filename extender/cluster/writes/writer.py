"""Writes claims, one by one, then the Binding of a pod; and takes both back.

Several processes may write for the same pods. Whoever takes a claim from a pod reads the claim, fences the pod, and
writes the claim as it was read. Whoever binds a pod knows the pod's version before writing its claims, and posts the
Binding with that version. docs/explanation/binding.md says why no bound pod loses a device.

A write that was refused with 4xx has not happened. A write that timed out, was cut, or got a 5xx may have happened: the
object is read before anything else is done, and while it can't be read, nothing is undone and the assumed allocation
stays. Every status write names the revision that it was made from, so at most one of its repetitions can happen.

Pods that share a claim are bound at the same time: one write reserves the claim for all that wait
(`extender.cluster.writes.reservations`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from allocator import Claim
from allocator.tools import printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import users_of
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import RELEASED, Pod
from extender.cluster.writes.claims import ClaimWrites, ReadClaim
from extender.cluster.writes.pods import (
    ATTEMPTS,
    DEVICES_CHANGED,
    changed_by_others,
    check_unbound,
    marking_patch,
    patch_status,
    refused,
    same_pod,
)
from extender.cluster.writes.reservations import (
    Reservation,
    ReservationQueue,
    WaitingReservation,
    deallocated,
    dropped_fields,
    is_protected,
    taking,
    unprotected,
)
from extender.kube.api import (
    Api,
    ApiError,
    ObjectKey,
    OutcomeUnknownError,
    RawObject,
    WriteRefusedError,
    revision,
    revision_of,
)
from extender.kube.encoding import loads
from extender.kube.resources import PODS

_HEARING_SECONDS: Final = 5.0
"""The longest wait until the watch shows a write of ours."""

_LONGEST_CAUSE: Final = 1024
"""The most characters that a pod's condition says of why its claims are released."""


class ReleaseOutcome(NamedTuple):
    """The outcome of a release.

    Attributes:
        bound: the node that the pod is bound to, so that its claims stay; empty if the pod is not bound.
        left: the claims that could not be released, and why.
    """

    bound: str
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Released:
    """No reservation, and no allocation if it was for the pod alone; a special claim is deleted."""

    reservation: Reservation
    claims: ClaimWrites

    def is_reached(self, now: ReadClaim) -> bool:
        """Whether nothing is left to write."""
        if self.reservation.is_special:
            return now.claim.uid != self.reservation.uid or (now.claim.deleting and not is_protected(now.raw))
        return self.reservation.is_unmade(now.claim)

    async def write(self, now: ReadClaim) -> None:
        """Write from what was read."""
        if not self.reservation.is_special:
            await self.claims.update_status(self.reservation.unmade(*now))
            return
        if is_protected(now.raw):
            now = await self.claims.update(unprotected(now.raw))
        # Other finalizers of a claim that is being deleted are not ours.
        if not now.claim.deleting:
            await self.claims.delete(now)


@dataclass(slots=True)
class Release:
    """The release of several claims: those still ``waiting``, and the last error of each that ``failed``, by uid."""

    waiting: dict[str, Released]
    failed: dict[str, Exception] = field(default_factory=dict)

    async def read(self) -> dict[str, ReadClaim]:
        """Read the waiting claims; returns those that still need a write."""
        found = {}
        for uid, goal in list(self.waiting.items()):
            try:
                now = await goal.claims.get(goal.reservation.claim.key)
            except (ApiError, OutcomeUnknownError) as error:
                del self.waiting[uid]
                self._note(uid, error)
                continue
            if goal.is_reached(now):
                del self.waiting[uid]
                self.failed.pop(uid, None)
            else:
                found[uid] = now
        return found

    async def mark(self, found: dict[str, ReadClaim]) -> dict[str, ReadClaim]:
        """Mark the claims that are taken from PodGroups; returns all that could be marked, or need no mark."""
        marked = {}
        for uid, now in found.items():
            try:
                is_of_group = self.waiting[uid].reservation.group is not None
                marked[uid] = await self.waiting[uid].claims.update(taking(now.raw)) if is_of_group else now
            except (ApiError, OutcomeUnknownError) as error:
                self._failed(uid, error)
        return marked

    async def write(self, found: dict[str, ReadClaim]) -> None:
        """Write from what was read."""
        for uid, now in found.items():
            try:
                await self.waiting[uid].write(now)
            except (ApiError, OutcomeUnknownError) as error:
                self._failed(uid, error)
            else:
                del self.waiting[uid]
                self.failed.pop(uid, None)

    def _failed(self, uid: str, error: ApiError | OutcomeUnknownError) -> None:
        """Note why a write failed. It is tried again if the claim has changed, or if the outcome is unknown."""
        if isinstance(error, OutcomeUnknownError):
            self.failed[uid] = error
        elif error.is_conflict:
            self.failed[uid] = changed_by_others("it")
        else:
            del self.waiting[uid]
            self._note(uid, error)

    def leave(self, uid: str) -> None:
        """Do not release a claim that another pod runs with."""
        del self.waiting[uid]
        self.failed.pop(uid, None)

    def _note(self, uid: str, error: Exception) -> None:
        if isinstance(error, ApiError) and error.is_missing:
            self.failed.pop(uid, None)
        else:
            self.failed[uid] = error


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes reservations and Bindings, and tells the state the outcome for assumed allocations."""

    api: Api
    state: ClusterState
    now: Callable[[], datetime]
    _queues: WeakValueDictionary[str, ReservationQueue] = field(default_factory=WeakValueDictionary, init=False)
    """By the uid of a claim that is being written."""

    async def reserve(self, reservation: Reservation, fence: str = "") -> int:
        """Allocate a claim and reserve it for the pod; returns the claim's revision.

        A claim that seems to be reserved already is read instead of written, because the cache may be behind.

        Args:
            reservation: the goal.
            fence: the latest fence of the pod in the version that will be bound. A fenced pod's claim is written, also
                if it is reserved already.

        Raises:
            WriteRefusedError: the claim is not reserved; its assumed allocation is dropped.
            OutcomeUnknownError: it may be reserved; the assumed allocation stays until the watch shows the outcome.
        """
        queue = self._queue(reservation.uid)
        now = await queue.reserve(WaitingReservation(reservation, fence), self._claims, self.now)
        dropped = dropped_fields(reservation.allocation, now.claim.allocation)
        if dropped:
            await self.release(reservation.pod, [replace(reservation, frees=reservation.allocates)])
            key = reservation.claim.key
            raise WriteRefusedError(f"the API server dropped {', '.join(dropped)} of claim {key}")
        return revision_of(now.raw)

    async def confirm(self, reservation: Reservation) -> int:
        """Read a reserved claim to check that it is still reserved; returns its revision.

        Raises:
            WriteRefusedError: it was taken from the pod.
            OutcomeUnknownError: it may have been taken.
        """
        key = reservation.claim.key
        now = await self._read(key)
        kept = replace(reservation, allocates=False)
        if not kept.is_made(now.claim):
            raise WriteRefusedError(f"claim {key} was taken from pod {reservation.pod.key}")
        return revision_of(now.raw)

    async def release(self, pod: Pod, reservations: Iterable[Reservation], why: str = "") -> ReleaseOutcome:
        """Take claims from a pod, and deallocate new claims that no other pod uses.

        All claims are read, then the pod is fenced if one is reserved for it, then each claim is written from what was
        read. A claim that changed in between was perhaps confirmed by a bind: all three steps are done again. A claim
        that is taken from a PodGroup is marked first, and all pods of the group are fenced; a claim that one of them
        runs with stays.

        Args:
            pod: loses the claims.
            reservations: what is taken back.
            why: for the pod's condition.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the pod can't be fenced; nothing more is released.
        """
        goals = {each.uid: Released(each, self._claims) for each in reservations}
        keys = {uid: goal.reservation.claim.key for uid, goal in goals.items()}
        queues = [self._queue(uid) for uid in sorted(keys)]
        release = Release(goals)
        async with AsyncExitStack() as locks:
            for queue in queues:
                await locks.enter_async_context(queue.lock)
            for _ in range(ATTEMPTS):
                found = await release.mark(await release.read())
                is_fenced = any(goals[uid].reservation.is_reserved(now.claim) for uid, now in found.items())
                bound = await self.fence(pod, why) if is_fenced else ""
                if bound:
                    return ReleaseOutcome(bound)
                for uid, now in list(found.items()):
                    if goals[uid].reservation.group is not None and await self._bound_user(now.claim, pod):
                        release.leave(uid)
                        del found[uid]
                await release.write(found)
                if not release.waiting:
                    break
        left = (f"claim {keys[uid]} is not released: {error}" for uid, error in release.failed.items())
        return ReleaseOutcome("", tuple(left))

    async def bind(self, pod: Pod, node: str, again: Callable[[Pod, Pod], Awaitable[Pod]] | None = None) -> None:
        """Post the Binding of a pod. A pod that is bound to the node already is a success.

        Args:
            pod: in the version that is to be bound; without a version it is bound in any.
            node: its name.
            again: called with the pod's old and new state after others have changed it: checks that it may still be
                bound, and returns it in the version to bind.

        Raises:
            WriteRefusedError: the pod is not bound to the node, and why.
            OutcomeUnknownError: it may be.
        """
        unknown = None
        for _ in range(ATTEMPTS):
            try:
                await self.api.bind_pod(pod.key, node, uid=pod.uid, resource_version=pod.resource_version)
            except OutcomeUnknownError as error:
                unknown = error
            except ApiError as error:
                if not error.is_conflict:
                    # An undo fences the pod, in case an earlier Binding is still on its way.
                    raise refused(f"pod {pod.key}", error) from error
                unknown = None
            else:
                return
            now = await self.read_pod(pod.key, pod.uid)
            if now.node_name == node:
                return
            check_unbound(now)
            if again is not None and now.resource_version != pod.resource_version:
                now = await again(pod, now)
            pod = now
        raise unknown or changed_by_others(f"pod {pod.key}")

    async def fence(self, pod: Pod, why: str = "") -> str:
        """Change the pod, so that a Binding with an earlier revision that is still on its way will be refused.

        Args:
            pod: the pod.
            why: why it loses its claims; its condition says so.

        Returns:
            The node that the pod is bound to already; empty if it is not bound, and no such Binding can bind it.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the pod could not be changed.
        """

        def patch(raw: RawObject, now: Pod) -> RawObject | None:
            if now.uid != pod.uid or now.node_name:
                return None
            message = f"{printable(why)[:_LONGEST_CAUSE]}: claims are released" if why else "claims are released"
            return marking_patch(raw, RELEASED, "BindFailed", printable(message), self.now())

        now = await patch_status(self.api, pod.key, patch)
        return now.node_name if now is not None and now.uid == pod.uid else ""

    async def _bound_user(self, claim: Claim, pod: Pod) -> str:
        """Fence all pods of PodGroups that a claim is reserved for; returns one that is bound, empty if none is.

        The claim is marked. A pod that was created before the mark is known once the watch shows a change of a pod
        after the mark. A bind of a later pod reads the mark, and its write to the claim makes ours refused.

        Args:
            claim: as it was marked.
            pod: was changed after the mark.

        Raises:
            WriteRefusedError, OutcomeUnknownError: not all pods are known and fenced.
        """
        await self._hear_of(await self.read_pod(pod.key, pod.uid))
        fenced = {pod.uid}
        while waiting := {user.uid: user for user in users_of(claim, self.state.snapshot) if user.uid not in fenced}:
            for uid, user in waiting.items():
                if not user.is_finished and (user.node_name or await self.fence(user)):
                    return str(user)
                fenced.add(uid)
        return ""

    async def _hear_of(self, pod: Pod) -> None:
        try:
            async with asyncio.timeout(_HEARING_SECONDS):
                await self.state.passed(PODS, revision(pod.resource_version))
        except TimeoutError as error:
            raise WriteRefusedError(f"the watch does not show pod {pod.key} yet") from error

    async def deallocate(self, claim: ClaimObject, pod: Pod) -> None:
        """Deallocate a claim whose devices keep its pod off every node; one try, refused if the claim has changed.

        Args:
            claim: as it was known; reserved for no pod, or only for this pod or its PodGroup.
            pod: is rejected because of the claim.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the claim may still be allocated.
        """
        raw: RawObject = loads(claim.raw)
        if any(each.is_pod_group for each in claim.claim.reserved_for):
            raw = await self._taken_from_group(claim, pod)
        elif claim.claim.reserved_for:
            await self._fence_unbound(pod)
        await self._update_once(claim.key, deallocated(raw))

    async def _taken_from_group(self, claim: ClaimObject, pod: Pod) -> RawObject:
        """The claim, marked, once no pod of its PodGroups can be bound with it any more.

        Raises:
            WriteRefusedError, OutcomeUnknownError: a pod runs with it, or it has changed.
        """
        try:
            raw = (await self._claims.update(taking(await self._claims.whole(claim)))).raw
        except ApiError as error:
            raise refused(f"claim {claim.key}", error) from error
        await (self._touch(pod) if pod.node_name else self._fence_unbound(pod))
        user = await self._bound_user(claim.claim, pod)
        if user:
            raise WriteRefusedError(f"pod {user} runs with claim {claim.key}")
        return raw

    async def _fence_unbound(self, pod: Pod) -> None:
        """Fence a pod; raises WriteRefusedError if it is bound."""
        bound = await self.fence(pod)
        if bound:
            raise WriteRefusedError(f"pod {pod.key} is bound to node {bound}")

    async def _touch(self, pod: Pod) -> None:
        """Change a pod that has a node, so that the watch of pods tells how far it is."""

        def patch(raw: RawObject, now: Pod) -> RawObject | None:
            if now.uid != pod.uid:
                return None
            return marking_patch(raw, RELEASED, "ClaimTaken", printable("a claim is deallocated"), self.now())

        await patch_status(self.api, pod.key, patch)

    async def deallocate_as_known(self, claim: ClaimObject) -> None:
        """Deallocate a claim that no started pod uses; one try, refused if the claim has changed.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the claim may still be allocated.
        """
        await self._update_once(claim.key, deallocated(loads(claim.raw)))

    async def overtake(self, claim: ClaimObject, until: int) -> bool:
        """Write to a claim, so that a write of its allocation that is perhaps still on its way is refused.

        What that bind has written before is taken back: our finalizer.

        Args:
            claim: as it is known.
            until: a revision from which on the claim shows the outcome.

        Returns:
            Whether this was written; False: the claim shows the outcome, and the watch will, too.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the outcome is still unknown.
        """
        async with self._queue(claim.claim.uid).lock:
            now = await self._read(claim.key)
            is_known = now.claim.uid != claim.claim.uid or revision_of(now.raw) >= until
            if is_known or now.claim.allocation is not None:
                return False
            try:
                await self._claims.update(unprotected(now.raw))
            except ApiError as error:
                raise refused(f"claim {claim.key}", error) from error
            return True

    async def reserve_as_known(self, reservation: Reservation) -> None:
        """Reserve an allocated claim for a pod; one try, refused if the claim has changed since it was checked.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the claim may not be reserved.
        """
        if not reservation.is_made(reservation.claim.claim):
            await self._update_once(
                reservation.claim.key, reservation.written(loads(reservation.claim.raw), self.now())
            )

    async def _update_once(self, key: ObjectKey, obj: RawObject) -> None:
        try:
            await self._claims.update_status(obj)
        except ApiError as error:
            raise refused(f"claim {key}", error) from error

    async def wake(self, pod: Pod) -> None:
        """Requeue a pending pod: patch it, so that its scheduler tries it again.

        Raises:
            WriteRefusedError, OutcomeUnknownError: we have perhaps not patched it. If others have, that requeues it.
        """
        try:
            raw = await self.api.get(PODS, pod.key)
            check_unbound(same_pod(raw, pod.key, pod.uid))
            patch = marking_patch(
                raw, DEVICES_CHANGED, "DevicesChanged", printable("there may be devices now"), self.now()
            )
            await self.api.patch_status(PODS, pod.key, patch)
        except ApiError as error:
            raise refused(f"pod {pod.key}", error) from error

    async def read_pod(self, key: ObjectKey, uid: str) -> Pod:
        """The pod as the API server has it.

        Raises:
            WriteRefusedError: it is gone, or was made again.
            OutcomeUnknownError: it can't be read.
        """
        try:
            return same_pod(await self.api.get(PODS, key), key, uid)
        except ApiError as error:
            raise refused(f"pod {key}", error) from error

    @property
    def _claims(self) -> ClaimWrites:
        return ClaimWrites(self.api, self.state)

    def _queue(self, uid: str) -> ReservationQueue:
        """The reservations of a claim; the queue exists while a task uses it."""
        return self._queues.setdefault(uid, ReservationQueue())

    async def _read(self, key: ObjectKey) -> ReadClaim:
        """The claim as it is now."""
        try:
            return await self._claims.get(key)
        except ApiError as error:
            raise refused(f"claim {key}", error) from error
