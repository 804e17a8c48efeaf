"""Writes of special claims (KEP-5004): made once, named in the pod's status, deleted if the pod does not get there.

Their names follow from pod and requests, so that a POST whose outcome is unknown, or that is repeated, is a claim that
is there already.
"""

from dataclasses import dataclass, replace

from allocator.errors import InvalidObjectError
from extender.cluster.api import CLAIMS, PODS, Api, ApiError, OutcomeUnknownError, RawObject
from extender.cluster.encoding import loads
from extender.cluster.objects import ClaimObject, ExtendedClaim, Pod, parse_claim_object
from extender.cluster.reservation import FINALIZER, Reservation, WriteRefusedError
from extender.cluster.state import ClusterState
from extender.cluster.writer import pod_of

ATTEMPTS = 5
"""How often a write is tried while others change the object, or while its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class SpecialClaims:
    """Makes and deletes them, and tells the state under which uid their allocation is in flight."""

    api: Api
    state: ClusterState

    async def make(self, reservation: Reservation) -> Reservation:
        """Make the claim of a reservation, if it is not there yet.

        Returns:
            The reservation with the claim as the API server has it; its allocation is in flight under the claim's uid.

        Raises:
            WriteRefusedError: it is not made, or another one of that name is there; nothing is in flight any more.
        """
        wanted = reservation.claim
        try:
            made = await self._made(wanted)
        except WriteRefusedError:
            self.state.forget(reservation.uid)
            raise
        self.state.assume(made.claim.uid, reservation.allocation, reservation.pod.uid)
        self.state.forget(reservation.uid)
        return replace(reservation, claim=made)

    async def delete(self, claim: ClaimObject) -> None:
        """Delete a claim, with what it holds: our finalizer goes first.

        Raises:
            WriteRefusedError: it is still there.
            OutcomeUnknownError: it may be.
        """
        unknown = None
        for _ in range(ATTEMPTS):
            try:
                raw = await self.api.get(CLAIMS, claim.key)
                if raw["metadata"]["uid"] != claim.claim.uid:
                    return
                if FINALIZER in (raw["metadata"].get("finalizers") or []):
                    raw = await self.api.update(CLAIMS, _unprotected(raw))
                if "deletionTimestamp" in raw["metadata"]:
                    # Whatever still holds it is somebody else's.
                    return
                await self.api.delete(CLAIMS, claim.key, uid=claim.claim.uid)
            except OutcomeUnknownError as error:
                unknown = error
            except ApiError as error:
                if error.is_missing:
                    return
                if not error.is_conflict:
                    raise WriteRefusedError(f"claim {claim.key}: {error}") from error
                unknown = None
            else:
                return
        raise unknown or WriteRefusedError(f"claim {claim.key} was changed by others {ATTEMPTS} times")

    async def withdraw(self, reservation: Reservation) -> None:
        """Delete the claim of a reservation, and say so in its pod's status if that names it.

        Raises:
            WriteRefusedError, OutcomeUnknownError: not all of this is done.
        """
        claim, pod = reservation.claim, reservation.pod
        await self.delete(claim)
        try:
            now = pod_of(await self.api.get(PODS, pod.key))
        except ApiError as error:
            if error.is_missing:
                return
            raise WriteRefusedError(f"pod {pod.key}: {error}") from error
        if now.uid == pod.uid and now.extended_claim is not None and now.extended_claim.claim_name == claim.claim.name:
            await self.tell(now, None)

    async def tell(self, pod: Pod, status: ExtendedClaim | None) -> Pod:
        """Write into a pod's status which special claim it has, and who gets what of it; None: it has none.

        Returns:
            The pod as it is then.

        Raises:
            WriteRefusedError: it is not written, or the API server has dropped it.
            OutcomeUnknownError: it may be written.
        """
        field = None if status is None else status.as_json()
        patch: RawObject = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": field}}
        try:
            told = pod_of(await self.api.patch_status(PODS, pod.key, patch))
        except ApiError as error:
            raise WriteRefusedError(f"pod {pod.key}: {error}") from error
        if told.extended_claim != status:
            dropped = "status.extendedResourceClaimStatus (feature gate DRAExtendedResource)"
            raise WriteRefusedError(f"the API server dropped {dropped} of pod {pod.key}")
        return told

    async def _made(self, wanted: ClaimObject) -> ClaimObject:
        obj = _versioned(loads(wanted.raw), self.api.api_version(CLAIMS))
        unknown: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                return parse_claim_object(await self.api.create(CLAIMS, obj))
            except (OutcomeUnknownError, InvalidObjectError) as error:
                unknown = error
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise WriteRefusedError(f"claim {wanted.key}: {error}") from error
                return await self._found(wanted)
        # A claim that appears later has no allocation; the pod's next bind uses it, or it is swept.
        raise WriteRefusedError(f"claim {wanted.key} is not made: {unknown}")

    async def _found(self, wanted: ClaimObject) -> ClaimObject:
        """The claim that has the name already, if it is ours."""
        try:
            found = parse_claim_object(await self.api.get(CLAIMS, wanted.key))
        except (ApiError, OutcomeUnknownError, InvalidObjectError) as error:
            raise WriteRefusedError(f"claim {wanted.key}: {error}") from error
        if found.special_of != wanted.special_of or found.claim.spec != wanted.claim.spec:
            raise WriteRefusedError(f"claim {wanted.key} exists, and is not for the pod's extended resources")
        if found.claim.deleting:
            raise WriteRefusedError(f"claim {wanted.key} is being deleted")
        return found


def _unprotected(raw: RawObject) -> RawObject:
    metadata = raw["metadata"]
    others = [name for name in metadata["finalizers"] if name != FINALIZER]
    return {**raw, "metadata": {**metadata, "finalizers": others}}


def _versioned(obj: RawObject, api_version: str) -> RawObject:
    """A claim of v1 in another version: v1beta1 has the fields of ``exactly`` in the request itself."""
    spec = obj["spec"]
    if api_version.endswith("/v1beta1"):
        requests = [{"name": each["name"], **each["exactly"]} for each in spec["devices"]["requests"]]
        spec = {"devices": {"requests": requests}}
    return {"apiVersion": api_version, "kind": CLAIMS.kind, **obj, "spec": spec}
