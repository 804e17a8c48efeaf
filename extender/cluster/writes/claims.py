"""Reads and writes of claims, each write made from what was read. Unknown fields are kept."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from allocator import Claim, InvalidObjectError
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import ClaimObject, without_managers
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject, key_of
from extender.kube.encoding import loads
from extender.kube.resources import CLAIMS


class ReadClaim(NamedTuple):
    """A claim as the API server has it, or as it is to be written: its JSON without managed fields, and its value."""

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
