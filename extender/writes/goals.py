"""What a claim is to be brought to, reserved or released, and the write that brings it there from what was read."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from allocator import Claim, InvalidObjectError
from extender.kube.api import CLAIMS, Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.raw import key_of, revision_of
from extender.state.objects import without_managers
from extender.state.state import ClusterState
from extender.writes.pods import changed_by_others
from extender.writes.reservation import (
    Reservation,
    confirmed,
    is_confirmed,
    is_protected,
    protected,
    unprotected,
)


class ReadClaim(NamedTuple):
    """A claim as the API server has it: its JSON without managed fields, and its value."""

    raw: RawObject
    claim: Claim


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of an API server, whose answers are read as they will be known once the watch shows them."""

    api: Api
    state: ClusterState

    async def get(self, key: ObjectKey) -> ReadClaim:
        """The claim as it is."""
        return self._read(key, await self.api.get(CLAIMS, key))

    async def update(self, obj: RawObject) -> ReadClaim:
        """Replace all but the status."""
        return self._read(key_of(obj), await self.api.update(CLAIMS, obj))

    async def update_status(self, obj: RawObject) -> ReadClaim:
        """Replace the status."""
        return self._read(key_of(obj), await self.api.update_status(CLAIMS, obj))

    async def delete(self, now: ReadClaim) -> None:
        """Delete the claim, if it is still as it was read."""
        key, metadata = key_of(now.raw), now.raw["metadata"]
        await self.api.delete(CLAIMS, key, uid=now.claim.uid, resource_version=metadata["resourceVersion"])

    def _read(self, key: ObjectKey, raw: RawObject) -> ReadClaim:
        try:
            return ReadClaim(without_managers(raw), self.state.answered(raw).claim)
        except InvalidObjectError as error:
            # No answer of an API server: whatever it was asked for may have happened.
            raise OutcomeUnknownError(f"claim {key}", error.summary) from error


@dataclass(slots=True)
class Reserved:
    """Finalizer first, so that an allocated claim is never unprotected; then allocation and reservation at once.

    A claim that is so already is written to nevertheless if its pod was fenced: whoever fenced it may be about to write
    what takes the claim away, from what it read before the fence, and is to be refused.
    """

    reservation: Reservation
    claims: Claims
    clock: Callable[[], datetime]
    fence: str
    written_from: int = 0
    """Revision from which the last status write was made; 0 if there was none."""

    def is_reached(self, now: ReadClaim) -> bool:
        """A special claim that an undo has begun to delete lacks the finalizer; others' may never have had it."""
        is_made = self.reservation.is_made(now.claim)
        is_certain = not self.fence or is_confirmed(now.raw, self.reservation.pod, self.fence)
        return is_made and is_certain and (is_protected(now.raw) or not self.reservation.is_special)

    async def write(self, now: ReadClaim) -> ReadClaim:
        """Write from what was read; returns the claim as it is then."""
        is_made = self.reservation.is_made(now.claim)
        if is_made or not is_protected(now.raw):
            raw = confirmed(now.raw, self.reservation.pod, self.fence) if is_made and self.fence else now.raw
            now = await self.claims.update(protected(raw))
            if self.reservation.is_made(now.claim):
                return now
        self.written_from = revision_of(now.raw)
        return await self.claims.update_status(self.reservation.made(now.raw, self.clock()))


@dataclass(frozen=True, slots=True)
class Released:
    """Without the reservation, and without the allocation if that was for the pod alone; a special claim is deleted."""

    reservation: Reservation
    claims: Claims

    def is_reached(self, now: ReadClaim) -> bool:
        """Whether nothing is left to be written."""
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
        # Whatever still holds one that is being deleted is somebody else's.
        if not now.claim.deleting:
            await self.claims.delete(now)


@dataclass(slots=True)
class Release:
    """Claims on their way out of a pod's hands.

    Attributes:
        waiting: those that are still to be released, by uid.
        failed: by uid, what went wrong last.
    """

    waiting: dict[str, Released]
    failed: dict[str, Exception] = field(default_factory=dict)

    async def read(self) -> dict[str, ReadClaim]:
        """What is still to be written, as it is now."""
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

    async def write(self, found: dict[str, ReadClaim]) -> None:
        """Write from what was read."""
        for uid, now in found.items():
            try:
                await self.waiting[uid].write(now)
            except OutcomeUnknownError as error:
                self.failed[uid] = error
            except ApiError as error:
                if error.is_conflict:
                    self.failed[uid] = changed_by_others("it")
                    continue
                del self.waiting[uid]
                self._note(uid, error)
            else:
                del self.waiting[uid]
                self.failed.pop(uid, None)

    def _note(self, uid: str, error: Exception) -> None:
        if isinstance(error, ApiError) and error.is_missing:
            self.failed.pop(uid, None)
        else:
            self.failed[uid] = error
