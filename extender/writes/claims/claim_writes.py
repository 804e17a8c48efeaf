"""Goals of writes: a claim is reserved, or released. A goal writes from what was read."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import NamedTuple

from allocator import Claim, InvalidObjectError
from extender.kube.api import Api, ObjectKey, RawObject
from extender.kube.encoding import loads
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kube.raw import key_of, revision_of
from extender.kube.resources import CLAIMS
from extender.state.cluster_state import ClusterState
from extender.state.objects.claims import ClaimObject, without_managers
from extender.writes.claims.claim_json import (
    Reservation,
    confirmed,
    is_confirmed,
    is_protected,
    protected,
    unprotected,
)
from extender.writes.pods.patches import changed_by_others


class ReadClaim(NamedTuple):
    """A claim as the API server has it: its JSON without managed fields, and its value."""

    raw: RawObject
    claim: Claim


@dataclass(frozen=True, slots=True)
class ClaimWrites:
    """The claims of an API server. Answers go into the mutation cache until the watch shows them."""

    api: Api
    state: ClusterState

    async def get(self, key: ObjectKey) -> ReadClaim:
        """The claim as it is."""
        return self._read(key, await self.api.get(CLAIMS, key))

    async def whole(self, claim: ClaimObject) -> RawObject:
        """All of a claim's JSON, to replace it by. What the cache has not kept of it is read.

        Raises:
            ApiError: the claim cannot be read, or has changed since it was known (a conflict).
            OutcomeUnknownError: there is no answer.
        """
        if claim.is_whole:
            known: RawObject = loads(claim.raw)
            return known
        now = await self.get(claim.key)
        if now.raw["metadata"].get("resourceVersion") != claim.resource_version:
            raise ApiError(HTTPStatus.CONFLICT, "Conflict", f"claim {claim.key} has changed")
        return now.raw

    async def update(self, obj: RawObject) -> ReadClaim:
        """Replace all but the status."""
        return self._read(key_of(obj), await self.api.update(CLAIMS, obj))

    async def update_status(self, obj: RawObject) -> ReadClaim:
        """Replace the status."""
        return self._read(key_of(obj), await self.api.update_status(CLAIMS, obj))

    async def delete(self, now: ReadClaim) -> None:
        """Delete the claim, if it has not changed since it was read."""
        key, metadata = key_of(now.raw), now.raw["metadata"]
        await self.api.delete(CLAIMS, key, uid=now.claim.uid, resource_version=metadata["resourceVersion"])

    def _read(self, key: ObjectKey, raw: RawObject) -> ReadClaim:
        try:
            return ReadClaim(without_managers(raw), self.state.answered(raw).claim)
        except InvalidObjectError as error:
            # This is no answer of an API server: the call may have had its effect.
            raise OutcomeUnknownError(f"claim {key}", error.summary) from error


@dataclass(slots=True)
class Reserved:
    """Finalizer first, so that an allocated claim is always protected; then allocation and reservation in one write.

    The API server refuses a reservation without an allocation. `claim_json.AllocationFirst` is for claims of a pod that
    has its node already: reserved in a write of its own.

    If the pod was fenced, a claim that is reserved already is written as well: the writer that fenced the pod may still
    take the claim away with what it read before the fence. This write makes the API server refuse that. A claim of a
    PodGroup is written in any case: the writer that takes it away may not know the pod yet.
    """

    reservation: Reservation
    claims: ClaimWrites
    clock: Callable[[], datetime]
    fence: str
    written_from: int = 0
    """Revision that the last status write was made from; 0 without such a write."""

    def is_reached(self, now: ReadClaim) -> bool:
        """A special claim must have the finalizer: an undo that has begun to delete it removes the finalizer first."""
        is_made = self.reservation.is_made(now.claim)
        is_certain = not self._confirms or is_confirmed(now.raw, self.reservation.pod, self.fence)
        return is_made and is_certain and (is_protected(now.raw) or not self.reservation.is_special)

    async def write(self, now: ReadClaim) -> ReadClaim:
        """Write from what was read; returns the claim as it is then."""
        is_made = self.reservation.is_made(now.claim)
        if is_made or not is_protected(now.raw):
            raw = confirmed(now.raw, self.reservation.pod, self.fence) if is_made and self._confirms else now.raw
            now = await self.claims.update(protected(raw))
            if self.reservation.is_made(now.claim):
                return now
        self.written_from = revision_of(now.raw)
        return await self.claims.update_status(self.reservation.made(now.raw, self.clock()))

    @property
    def _confirms(self) -> bool:
        return bool(self.fence) or self.reservation.group is not None


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

    def leave(self, uid: str) -> None:
        """Do not release a claim that another pod runs with."""
        del self.waiting[uid]
        self.failed.pop(uid, None)

    def _note(self, uid: str, error: Exception) -> None:
        if isinstance(error, ApiError) and error.is_missing:
            self.failed.pop(uid, None)
        else:
            self.failed[uid] = error
