"""The only module that writes to the API server: claim by claim, then the Binding; and back.

There may be others who write for the same pods. Whoever takes a claim from a pod reads the claim, then fences the pod,
then writes the claim as it was read. Whoever binds a pod knows the pod's version before writing its claims, and posts
the Binding with that version. docs/explanation/binding.md says why that takes no device from a bound pod.

A write that was refused with 4xx has not happened. One that timed out, was cut, or got a 5xx may have: the object is
read before anything else is done, and while that can't be, nothing is undone and what is in flight stays so. Every
status write names the revision that it was made from, so that at most one of its repetitions can happen.

Pods that share a claim are bound at the same time: here they write to it one after another, each from what the last one
left, for of writers that don't know of each other all but one meet a conflict.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple
from weakref import WeakValueDictionary

from allocator import InvalidObjectError
from extender.kube.api import CLAIMS, PODS, Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.raw import key_of, revision_of
from extender.state.objects import RELEASED, ClaimObject, Pod, parse_pod
from extender.state.state import ClusterState
from extender.writes.conditions import DEVICES_CHANGED, condition_patch
from extender.writes.goals import ATTEMPTS, Claims, Now, Release, Released, Reserved
from extender.writes.reservation import Reservation, WriteRefusedError, deallocated, dropped_fields, is_reserved


class Outcome(NamedTuple):
    """What became of claims that were to be released.

    Attributes:
        bound: the node that their pod is bound to; then they stay. Empty if it is bound to none.
        left: what could not be released, and why.
    """

    bound: str
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes reservations and Bindings, and tells the state what became of what is in flight."""

    api: Api
    state: ClusterState
    now: Callable[[], datetime]
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary, init=False)
    """By the uid of a claim, while somebody writes to it."""

    async def reserve(self, reservation: Reservation, fence: str = "") -> int:
        """Bring a claim to have its allocation and to be reserved for the pod.

        If the claim is known to be so already, it is read instead of written: what is known may be old.

        Args:
            reservation: what is wanted.
            fence: the latest fence of the pod in the version that is to be bound. If there is one, the claim is written
                to also where it is as wanted.

        Returns:
            The revision that the claim has then.

        Raises:
            WriteRefusedError: the claim is not reserved; what was in flight for it is forgotten.
            OutcomeUnknownError: it may be reserved; what is in flight stays until the watch tells.
        """
        goal = Reserved(reservation, self._claims, self.now, fence)
        key, now = reservation.claim.key, Now(reservation.raw, reservation.claim.claim)
        turn = self._turn(reservation.uid)
        is_old = turn.locked()
        try:
            async with turn:
                if is_old or reservation.is_made(now.claim):
                    now = await self._read(key)
                now = await self._reach(goal, key, now)
        except WriteRefusedError:
            self.state.forget(reservation.uid)
            raise
        except BaseException as error:
            # Whatever it is: a status write that was begun may have happened.
            if goal.written_from:
                self.state.settle(reservation.uid, goal.written_from + 1)
            else:
                self.state.forget(reservation.uid)
            if not isinstance(error, Exception) or (goal.written_from and isinstance(error, OutcomeUnknownError)):
                raise
            cause = str(error) if isinstance(error, OutcomeUnknownError) else f"{type(error).__name__}: {error}"
            if goal.written_from:
                raise OutcomeUnknownError(f"claim {key}", cause) from error
            raise WriteRefusedError(cause) from error
        revision = revision_of(now.raw)
        self.state.settle(reservation.uid, revision)
        dropped = dropped_fields(reservation.allocation, now.claim.allocation)
        if dropped:
            await self.release(reservation.pod, [reservation])
            raise WriteRefusedError(f"the API server dropped {', '.join(dropped)} of claim {key}")
        return revision

    async def confirm(self, reservation: Reservation) -> int:
        """See that a claim which was reserved still is, by reading it.

        Returns:
            The revision that the claim has then.

        Raises:
            WriteRefusedError: it was taken from the pod.
            OutcomeUnknownError: it may have been.
        """
        key = reservation.claim.key
        now = await self._read(key)
        kept = replace(reservation, allocates=False)
        if not kept.is_made(now.claim):
            raise WriteRefusedError(f"claim {key} was taken from pod {reservation.pod.key}")
        return revision_of(now.raw)

    async def release(self, pod: Pod, reservations: Iterable[Reservation]) -> Outcome:
        """Take claims from a pod, and allocations with them that are new and that nobody else has come to use.

        Each claim is read, then the pod is fenced if one is reserved for it, and then each is written from what was
        read. A claim that was changed between has been confirmed by a bind, perhaps: it is read again, and the pod
        fenced again.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the pod can't be fenced; nothing more is released.
        """
        goals = {each.uid: Released(each, self._claims) for each in reservations}
        keys = {uid: goal.reservation.claim.key for uid, goal in goals.items()}
        release = Release(goals)
        async with AsyncExitStack() as turns:
            for uid in sorted(keys):
                await turns.enter_async_context(self._turn(uid))
            for _ in range(ATTEMPTS):
                found = await release.read()
                is_fenced = any(is_reserved(now.claim, pod.uid) for now in found.values())
                bound = await self.fence(pod) if is_fenced else ""
                if bound:
                    return Outcome(bound)
                await release.write(found)
                if not release.waiting:
                    break
        left = (f"claim {keys[uid]} is not released: {error}" for uid, error in release.failed.items())
        return Outcome("", tuple(left))

    async def bind(self, pod: Pod, node: str, again: Callable[[Pod, Pod], Awaitable[Pod]] | None = None) -> None:
        """Post the Binding of a pod; a pod that is bound to the node already is as wanted.

        Args:
            pod: in the version that is to be bound; one without a version is bound in any.
            node: its name.
            again: called with the pod as it was and as it is, once it was changed by others; checks that it may still
                be bound, and returns it in the version that is to be bound then.

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
                    # Should an earlier one still be on its way, an undo fences it.
                    raise _refused(f"pod {pod.key}", error) from error
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
        raise unknown or WriteRefusedError(f"pod {pod.key} was changed by others {ATTEMPTS} times")

    async def fence(self, pod: Pod) -> str:
        """Change the pod, so that a Binding that is still on its way, with an earlier revision, will be refused.

        Returns:
            The node that the pod is bound to already; empty if it is bound to none, and will not be by such a Binding.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the pod could not be changed.
        """
        for _ in range(ATTEMPTS):
            try:
                raw = await self.api.get(PODS, pod.key)
                now = pod_of(raw)
                if now.uid != pod.uid or now.node_name:
                    return now.node_name if now.uid == pod.uid else ""
                patch = condition_patch(raw, RELEASED, "BindFailed", "claims are released", self.now())
                await self.api.patch_status(PODS, pod.key, patch)
            except ApiError as error:
                if error.is_missing:
                    return ""
                if not error.is_conflict:
                    raise WriteRefusedError(f"pod {pod.key}: {error}") from error
            else:
                return ""
        raise WriteRefusedError(f"pod {pod.key} was changed by others {ATTEMPTS} times")

    async def deallocate(self, claim: ClaimObject, pod: Pod) -> None:
        """Take a claim's devices back from a pod that can't go where they are: once, if nothing has changed meanwhile.

        Args:
            claim: as it was known; reserved for nobody, or for the pod alone.
            pod: for whom it is in the way.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the claim may still have them.
        """
        if is_reserved(claim.claim, pod.uid):
            bound = await self.fence(pod)
            if bound:
                raise WriteRefusedError(f"pod {pod.key} is bound to node {bound}")
        try:
            await self.api.update_status(CLAIMS, deallocated(claim))
        except ApiError as error:
            raise _refused(f"claim {claim.key}", error) from error

    async def wake(self, pod: Pod) -> None:
        """Change a pending pod, so that its scheduler looks at it again.

        Raises:
            WriteRefusedError, OutcomeUnknownError: it may not be changed by us. If others did so, they have woken it.
        """
        try:
            raw = await self.api.get(PODS, pod.key)
            check_unbound(_same_pod(raw, pod.key, pod.uid))
            patch = condition_patch(raw, DEVICES_CHANGED, "DevicesChanged", "there may be devices now", self.now())
            await self.api.patch_status(PODS, pod.key, patch)
        except ApiError as error:
            raise _refused(f"pod {pod.key}", error) from error

    async def read_pod(self, key: ObjectKey, uid: str) -> Pod:
        """The pod as the API server has it.

        Raises:
            WriteRefusedError: it is gone, or another pod of that name is there.
            OutcomeUnknownError: it can't be read.
        """
        try:
            return _same_pod(await self.api.get(PODS, key), key, uid)
        except ApiError as error:
            raise _refused(f"pod {key}", error) from error

    @property
    def _claims(self) -> Claims:
        return Claims(self.api, self.state)

    def _turn(self, uid: str) -> asyncio.Lock:
        """What to hold while writing to the claim; it is there as long as somebody holds it or waits for it."""
        return self._turns.setdefault(uid, asyncio.Lock())

    async def _reach(self, goal: Reserved, key: ObjectKey, now: Now) -> Now:
        """Write and read in turn until the claim is as wanted."""
        unknown = None
        for _ in range(ATTEMPTS):
            if goal.is_reached(now):
                return now
            try:
                return await goal.write(now)
            except OutcomeUnknownError as error:
                unknown = error
            except ApiError as error:
                if not error.is_conflict:
                    raise (None if error.is_missing else unknown) or _refused(f"claim {key}", error) from error
                unknown = None
            now = await self._read(key, unknown)
        if goal.is_reached(now):
            return now
        raise unknown or WriteRefusedError(f"claim {key} was changed by others {ATTEMPTS} times")

    async def _read(self, key: ObjectKey, unknown: OutcomeUnknownError | None = None) -> Now:
        """The claim as it is now; if it can't be had, an earlier write that is ``unknown`` stays so."""
        try:
            return await self._claims.get(key)
        except ApiError as error:
            raise (None if error.is_missing else unknown) or _refused(f"claim {key}", error) from error


def pod_of(raw: RawObject) -> Pod:
    """A pod that the API server has answered with.

    Raises:
        OutcomeUnknownError: it can't be read, so that it can't be told what became of a write either.
    """
    try:
        return parse_pod(raw)
    except InvalidObjectError as error:
        raise OutcomeUnknownError(f"pod {key_of(raw)}", error.summary) from error


def _same_pod(raw: RawObject, key: ObjectKey, uid: str) -> Pod:
    pod = pod_of(raw)
    if pod.uid != uid:
        raise WriteRefusedError(f"pod {key} was deleted and made again: its uid is {pod.uid}, not {uid}")
    return pod


def check_unbound(pod: Pod) -> None:
    """Check that a pod waits to be bound.

    Raises:
        WriteRefusedError: it does not.
    """
    if pod.node_name:
        raise WriteRefusedError(f"pod {pod.key} is bound to node {pod.node_name} already")
    if pod.deleting:
        raise WriteRefusedError(f"pod {pod.key} is being deleted")
    if pod.is_finished:
        raise WriteRefusedError(f"pod {pod.key} is finished")


def _refused(what: str, error: ApiError) -> WriteRefusedError:
    return WriteRefusedError(f"{what} is gone" if error.is_missing else f"{what}: {error}")
