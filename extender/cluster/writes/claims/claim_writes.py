"""Reads and writes of claims, and their release: each write is made from what was read.

A special claim (KEP-5004) is created once, and named in the status of its pod until its bind is undone. Its name
depends on the pod and the requests only. So after a POST with unknown outcome, a second POST finds the claim of the
first.
"""

from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import NamedTuple

from allocator import Claim, InvalidObjectError
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import ClaimObject, parse_claim_object, without_managers
from extender.cluster.objects.pods import ExtendedClaim, Pod
from extender.cluster.writes.claims.claim_json import Reservation, is_protected, taking, unprotected
from extender.cluster.writes.pods import ATTEMPTS, changed_by_others, patch_status, pod_of
from extender.kube.api import (
    Api,
    ApiError,
    ObjectKey,
    OutcomeUnknownError,
    OverQuotaError,
    RawObject,
    WriteRefusedError,
    key_of,
)
from extender.kube.encoding import loads
from extender.kube.resources import CLAIMS, PODS


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


@dataclass(frozen=True, slots=True)
class SpecialClaims:
    """Creates special claims, and tells the state for which uid their allocation is assumed."""

    api: Api
    state: ClusterState

    async def make(self, reservation: Reservation) -> Reservation:
        """Create the claim of a reservation, unless it exists.

        Returns:
            The reservation with the claim of the API server; the allocation is assumed for the claim's uid.

        Raises:
            WriteRefusedError: it is not created, or the name is taken; the allocation is no longer assumed.
            OverQuotaError: it is not created because of a quota; likewise.
        """
        wanted = reservation.claim
        try:
            made = await self._made(wanted)
        except WriteRefusedError:
            self.state.forget(reservation.uid)
            raise
        self.state.assume(made.claim.uid, reservation.allocation, reservation.pod.uid, made.claim.spec)
        self.state.forget(reservation.uid)
        return replace(reservation, claim=made)

    async def withdraw(self, reservation: Reservation) -> None:
        """Remove the special claim from the status of its pod, if the pod is not bound and names this claim.

        An API server since Kubernetes 1.37 keeps the name. The next bind of the pod makes a claim of this name again.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the pod may still name it.
        """
        pod, name = reservation.pod, reservation.claim.claim.name

        def patch(_raw: RawObject, now: Pod) -> RawObject | None:
            is_named = now.extended_claim is not None and now.extended_claim.claim_name == name
            if now.uid != pod.uid or now.node_name or not is_named:
                return None
            return _status_patch(now, None, now.resource_version)

        await patch_status(self.api, pod.key, patch)

    async def tell(self, pod: Pod, status: ExtendedClaim | None) -> Pod:
        """Write a pod's special claim into its status (None: no claim); returns the pod after the write.

        Raises:
            WriteRefusedError: it is not written, or the API server has dropped the field, or keeps it: since Kubernetes
                1.37, the field can be replaced and not be removed.
            OutcomeUnknownError: it may be written.
        """
        try:
            told = pod_of(await self.api.patch_status(PODS, pod.key, _status_patch(pod, status)))
        except ApiError as error:
            raise WriteRefusedError(f"pod {pod.key}: {error}") from error
        if status is None and told.extended_claim is not None:
            keeps = f"the API server keeps status.extendedResourceClaimStatus of pod {pod.key}"
            claim = told.extended_claim.claim_name
            raise WriteRefusedError(f"{keeps}: kubelet would look for claim {claim}; make the pod again")
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
                if error.is_over_quota:
                    raise OverQuotaError(f"claim {wanted.key} is not made: {error}") from error
                if error.reason != "AlreadyExists":
                    raise WriteRefusedError(f"claim {wanted.key}: {error}") from error
                return await self._found(wanted)
        # A claim that appears later has no allocation: the pod's next bind uses it, or orphan collection deletes it.
        raise WriteRefusedError(f"claim {wanted.key} is not made: {unknown}")

    async def _found(self, wanted: ClaimObject) -> ClaimObject:
        """The existing claim of that name, if it is ours."""
        try:
            found = parse_claim_object(await self.api.get(CLAIMS, wanted.key))
        except (ApiError, OutcomeUnknownError, InvalidObjectError) as error:
            raise WriteRefusedError(f"claim {wanted.key}: {error}") from error
        if found.special_of != wanted.special_of or found.claim.spec != wanted.claim.spec:
            raise WriteRefusedError(f"claim {wanted.key} exists, and is not for the pod's extended resources")
        if found.claim.deleting:
            raise WriteRefusedError(f"claim {wanted.key} is being deleted")
        return found


def _status_patch(pod: Pod, status: ExtendedClaim | None, version: str = "") -> RawObject:
    """A patch of the pod's status; with a version, it is refused if the pod has changed."""
    field = None if status is None else status.as_json()
    preconditions = {"uid": pod.uid} | ({"resourceVersion": version} if version else {})
    return {"metadata": preconditions, "status": {"extendedResourceClaimStatus": field}}


def _versioned(obj: RawObject, api_version: str) -> RawObject:
    """A claim of v1 in another version: v1beta1 has the fields of ``exactly`` in the request itself."""
    spec = obj["spec"]
    if api_version.endswith("/v1beta1"):
        requests = [{"name": each["name"], **each["exactly"]} for each in spec["devices"]["requests"]]
        spec = {"devices": {"requests": requests}}
    return {"apiVersion": api_version, "kind": CLAIMS.kind, **obj, "spec": spec}
