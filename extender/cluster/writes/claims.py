"""Reads and writes of claims, and their release: each write is made from what was read.

A special claim (KEP-5004) is created once, and named in the status of its pod until its bind is undone. Its name
depends on the pod and the requests only. So after a POST with unknown outcome, a second POST finds the claim of the
first.

The JSON of a claim before and after each write of a bind is made without I/O. Unknown fields are kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from http import HTTPStatus
from operator import attrgetter
from typing import Final, NamedTuple

from allocator import AllocationResult, Claim, Consumer, DeviceResult, InvalidObjectError, allocation_to_json
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import own_consumer
from extender.cluster.controller_marks import asks_to_deallocate
from extender.cluster.objects.claims import CONFIRMED, MARK, TAKING, ClaimObject, parse_claim_object, without_managers
from extender.cluster.objects.extended_resources import ExtendedClaim
from extender.cluster.objects.pods import Pod
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
    timestamp,
)
from extender.kube.claim_rules import FINALIZER, MAX_CONSUMERS
from extender.kube.encoding import loads
from extender.kube.resources import CLAIMS, PODS

_GATED: Final[Mapping[str, tuple[str, Callable[[DeviceResult], object]]]] = {
    "adminAccess": ("DRAAdminAccess", lambda r: r.admin_access),
    "bindingConditions": ("DRADeviceBindingConditions", lambda r: r.binding_conditions),
    "bindingFailureConditions": ("DRADeviceBindingConditions", lambda r: r.binding_failure_conditions),
    "consumedCapacity": ("DRAConsumableCapacity", lambda r: r.consumed_capacity),
    "shareID": ("DRAConsumableCapacity", lambda r: r.share_id),
    "skipNodeOperations": ("DRAOptionalNodeOperations", lambda r: r.skip_node_operations),
    "tolerations": ("DRADeviceTaints", lambda r: r.tolerations),
}
"""Fields of a result that an API server drops silently while their feature gate is off."""


class ReadClaim(NamedTuple):
    """A claim as the API server has it, or as it is to be written: its JSON without managed fields, and its value."""

    raw: RawObject
    claim: Claim


@dataclass(frozen=True, slots=True)
class Reservation:
    """The goal of a bind for one claim: it has this allocation and is reserved for the pod, or for its PodGroup.

    Attributes:
        claim: as it was known at the decision.
        allocation: the claim's present or new allocation.
        allocates: the claim had no allocation at the decision, and no controller writes it.
        frees: the allocation is for this pod alone, so an undo deallocates it unless another pod uses it by then. If
            the claim is for a PodGroup: nobody can use it, so an undo deallocates it unless a pod runs with it.
        group: the PodGroup that the claim is reserved for in place of the pod; None: the pod.
    """

    claim: ClaimObject
    pod: Pod
    allocation: AllocationResult
    allocates: bool
    frees: bool
    group: Consumer | None = None

    @property
    def uid(self) -> str:
        """The uid of the claim."""
        return self.claim.claim.uid

    @property
    def is_special(self) -> bool:
        """The claim is for the extended resources of the pod."""
        return bool(self.claim.special_of)

    @property
    def is_new(self) -> bool:
        """The claim does not exist yet."""
        return not self.claim.resource_version

    @property
    def is_to_come(self) -> bool:
        """The claim does not exist yet, and kube-controller-manager makes it from a template of the pod."""
        return self.is_new and not self.is_special

    @property
    def known(self) -> ReadClaim:
        """The claim as it was known at the decision."""
        return ReadClaim(loads(self.claim.raw), self.claim.claim)

    def is_made(self, now: Claim) -> bool:
        """Whether the claim is reserved as wanted; raises WriteRefusedError if that has become impossible."""
        if now.uid != self.uid:
            raise WriteRefusedError(f"claim {now.name} was deleted and made again")
        if now.deleting:
            raise WriteRefusedError(f"claim {now.name} is being deleted")
        if now.annotations.get(MARK) != self.claim.claim.annotations.get(MARK):
            raise WriteRefusedError(f"claim {now.name} was negotiated anew meanwhile")
        if now.allocation is None and not self.allocates:
            raise WriteRefusedError(f"claim {now.name} was deallocated meanwhile")
        if now.allocation is not None and not _same(now.allocation, self.allocation):
            raise WriteRefusedError(f"claim {now.name} was allocated otherwise meanwhile")
        if now.allocation is not None and asks_to_deallocate(now) and not self.is_reserved(now):
            # Its controller may have given the devices back already, and clears the allocation next.
            raise WriteRefusedError(f"claim {now.name} waits until its controller has deallocated it")
        return now.allocation is not None and self._has_its_reservation(now)

    def _has_its_reservation(self, now: Claim) -> bool:
        if self.is_reserved(now):
            return True
        if len(now.reserved_for) >= MAX_CONSUMERS:
            raise WriteRefusedError(f"claim {now.name} is reserved for {MAX_CONSUMERS} pods already")
        return False

    def is_reserved(self, now: Claim) -> bool:
        """Whether the claim is reserved for the pod, or for its PodGroup if it is to be."""
        return is_reserved(now, self.pod.uid) or (self.group is not None and is_reserved(now, self.group.uid))

    @property
    def user(self) -> Consumer:
        """Whom the claim is reserved for."""
        return self.group or own_consumer(self.pod)

    def made(self, claim: Claim) -> Claim:
        """The claim with the reservation, and with the allocation unless it has one."""
        allocation = self.allocation if claim.allocation is None else claim.allocation
        return replace(claim, allocation=allocation, reserved_for=(*claim.reserved_for, self.user))

    def written(self, raw: RawObject, at: datetime) -> RawObject:
        """The JSON of the claim with the reservation, and with the allocation unless it has one."""
        status, user = self._allocated(raw, at), self.user
        consumer = {"resource": user.resource, "name": user.name, "uid": user.uid}
        if user.api_group:
            consumer["apiGroup"] = user.api_group
        status["reservedFor"] = [*(status.get("reservedFor") or []), consumer]
        return {**raw, "status": status}

    def _allocated(self, raw: RawObject, at: datetime) -> RawObject:
        status = dict(raw.get("status") or {})
        if status.get("allocation") is None:
            allocation = replace(self.allocation, timestamp=timestamp(at))
            status["allocation"] = allocation_to_json(allocation)
        return status

    def is_unmade(self, now: Claim) -> bool:
        """Whether nothing of the reservation is left, or the claim is being deleted.

        A claim with another allocation was taken from us, and belongs to another bind.
        """
        if now.uid != self.uid or now.deleting:
            return True
        return not self.is_allocated(now) or not (is_reserved(now, self.pod.uid) or self._frees(now))

    def unmade(self, raw: RawObject, now: Claim) -> RawObject:
        """The claim without the reservation, and without the allocation if only this pod used it."""
        status = dict(raw.get("status") or {})
        status["reservedFor"] = [each for each in status.get("reservedFor") or [] if each["uid"] != self.pod.uid]
        if self._frees(now):
            status["reservedFor"] = []
            status = {name: value for name, value in status.items() if name not in {"allocation", "devices"}}
        return {**raw, "status": status}

    def _frees(self, now: Claim) -> bool:
        own = {self.pod.uid, "" if self.group is None else self.group.uid}
        others = [consumer for consumer in now.reserved_for if consumer.uid not in own]
        return self.frees and self.is_allocated(now) and not others

    def is_allocated(self, now: Claim) -> bool:
        """Whether the claim has this allocation; any other one belongs to another bind."""
        return now.allocation is not None and _same(now.allocation, self.allocation)


class AllocationFirst(Reservation):
    """The goal for a claim of a pod that has a node already: the allocation, without the reservation.

    kubelet starts such a pod as soon as the claim is reserved, so the allocation is checked before.
    """

    __slots__ = ()

    def made(self, claim: Claim) -> Claim:
        """The claim with the allocation."""
        return replace(claim, allocation=self.allocation)

    def written(self, raw: RawObject, at: datetime) -> RawObject:
        """The JSON of the claim with the allocation."""
        return {**raw, "status": self._allocated(raw, at)}

    def _has_its_reservation(self, _now: Claim) -> bool:
        return True


def _same(one: AllocationResult, other: AllocationResult) -> bool:
    """Whether two allocations give a claim the same devices; an API server may have dropped other fields."""
    return [(r.request, r.device) for r in one.results] == [(r.request, r.device) for r in other.results]


_UID: Final = attrgetter("uid")


def is_reserved(claim: Claim, uid: str) -> bool:
    """Whether a claim is reserved for the consumer of that uid: a pod, or a PodGroup."""
    return uid in map(_UID, claim.reserved_for)


def is_protected(raw: RawObject) -> bool:
    """Whether a claim has our finalizer."""
    return FINALIZER in (raw["metadata"].get("finalizers") or [])


def protected(raw: RawObject) -> RawObject:
    """The claim with our finalizer."""
    if is_protected(raw):
        return raw
    metadata = raw["metadata"]
    return {**raw, "metadata": {**metadata, "finalizers": [*(metadata.get("finalizers") or []), FINALIZER]}}


def unprotected(raw: RawObject) -> RawObject:
    """The claim without our finalizer."""
    metadata = raw["metadata"]
    others = [name for name in metadata.get("finalizers") or [] if name != FINALIZER]
    return {**raw, "metadata": {**metadata, "finalizers": others}}


def is_confirmed(raw: RawObject, pod: Pod, fence: str) -> bool:
    """Whether the claim was written after a fence of the pod."""
    return (raw["metadata"].get("annotations") or {}).get(CONFIRMED) == f"{pod.uid} {fence}"


def confirmed(raw: RawObject, pod: Pod, fence: str) -> RawObject:
    """The claim with the mark that it was written after a fence of the pod."""
    metadata = raw["metadata"]
    annotations = {**(metadata.get("annotations") or {}), CONFIRMED: f"{pod.uid} {fence}"}
    return {**raw, "metadata": {**metadata, "annotations": annotations}}


def is_being_taken(raw: RawObject) -> bool:
    """Whether somebody is about to take the claim from a PodGroup, or has begun to and ended early."""
    return TAKING in (raw["metadata"].get("annotations") or {})


def taking(raw: RawObject) -> RawObject:
    """The claim with the mark that somebody is about to take it. No two marks of a claim are equal."""
    metadata = raw["metadata"]
    annotations = {**(metadata.get("annotations") or {}), TAKING: metadata["resourceVersion"]}
    return {**raw, "metadata": {**metadata, "annotations": annotations}}


def without_taking(raw: RawObject) -> RawObject:
    """The claim without that mark."""
    if not is_being_taken(raw):
        return raw
    metadata = raw["metadata"]
    annotations = {name: text for name, text in metadata["annotations"].items() if name != TAKING}
    return {**raw, "metadata": {**metadata, "annotations": annotations}}


def dropped_fields(sent: AllocationResult, kept: AllocationResult | None) -> tuple[str, ...]:
    """The fields of an allocation that the API server dropped, each with its feature gate."""
    if kept is None:
        return ("status.allocation",)
    if sent.results == kept.results:
        return ()
    pairs = list(zip(sent.results, kept.results, strict=False))
    return tuple(
        f"{field} (feature gate {gate} of the API server)"
        for field, (gate, of) in _GATED.items()
        if any(of(one) and not of(other) for one, other in pairs)
    )


def deallocated(raw: RawObject) -> RawObject:
    """The claim without allocation and reservations."""
    status = raw.get("status") or {}
    gone = {"allocation", "devices", "reservedFor"}
    return {**raw, "status": {name: value for name, value in status.items() if name not in gone}}


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
