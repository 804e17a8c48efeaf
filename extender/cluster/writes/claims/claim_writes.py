"""Reads and writes of claims, and their release: each write is made from what was read."""

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

from allocator import Claim, InvalidObjectError
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import ClaimObject, without_managers
from extender.cluster.writes.claims.claim_json import Reservation, is_protected, taking, unprotected
from extender.cluster.writes.pods.patches import changed_by_others
from extender.kube.api import Api, ObjectKey, RawObject
from extender.kube.encoding import loads
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kube.raw import key_of
from extender.kube.resources import CLAIMS


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

    async def mark_taking(self, raw: RawObject) -> ReadClaim:
        """Mark a claim that is about to be taken from a PodGroup, if it has not changed since it was read."""
        return await self.update(taking(raw))

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
                marked[uid] = await self.waiting[uid].claims.mark_taking(now.raw) if is_of_group else now
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
