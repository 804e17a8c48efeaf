"""Reservations: what a bind wants of one claim, the JSON of the claim before and after each write, and the writes.

Pods that share a claim are bound at the same time. Each write changes the version of the claim, so writes of single
pods would meet conflicts, or wait for each other. So the reservations of one claim wait in a queue, and whoever holds
the lock of the claim writes for all that wait.

A special claim (KEP-5004) is created once, and named in the status of its pod until its bind is undone. Its name
depends on the pod and the requests only. So after a POST with unknown outcome, a second POST finds the claim of the
first.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from operator import attrgetter
from typing import Final

from allocator import AllocationResult, Claim, Consumer, DeviceResult, InvalidObjectError, allocation_to_json
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import own_consumer
from extender.cluster.controller_marks import asks_to_deallocate
from extender.cluster.objects.claims import (
    ALLOCATED_FOR,
    CONFIRMED,
    MARK,
    TAKING,
    ClaimObject,
    is_immediate,
    parse_claim_object,
)
from extender.cluster.objects.extended_resources import ExtendedClaim
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.claims import ClaimWrites, ReadClaim
from extender.cluster.writes.pods import ATTEMPTS, changed_by_others, patch_status, pod_of, refused
from extender.kube.api import (
    Api,
    ApiError,
    OutcomeUnknownError,
    OverQuotaError,
    RawObject,
    WriteRefusedError,
    revision_of,
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

    def prepared(self, raw: RawObject) -> RawObject:
        """The JSON of the claim with what it must have before it is allocated: our finalizer."""
        return protected(raw)

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

    kubelet starts such a pod as soon as the claim is reserved, so the allocation is checked before. Until then, the
    claim names the pod: if it ends, nobody else knows for whom the devices are. An immediate claim is for no pod.
    """

    __slots__ = ()

    def prepared(self, raw: RawObject) -> RawObject:
        """The JSON of the claim with our finalizer and the uid of the pod."""
        raw = protected(raw)
        return raw if is_immediate(self.claim.claim) else _annotated(raw, ALLOCATED_FOR, self.pod.uid)

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
    return _annotated(raw, CONFIRMED, f"{pod.uid} {fence}")


def is_being_taken(raw: RawObject) -> bool:
    """Whether somebody is about to take the claim from a PodGroup, or has begun to and ended early."""
    return TAKING in (raw["metadata"].get("annotations") or {})


def taking(raw: RawObject) -> RawObject:
    """The claim with the mark that somebody is about to take it. No two marks of a claim are equal."""
    return _annotated(raw, TAKING, raw["metadata"]["resourceVersion"])


def without_taking(raw: RawObject) -> RawObject:
    """The claim without that mark."""
    if not is_being_taken(raw):
        return raw
    metadata = raw["metadata"]
    annotations = {name: text for name, text in metadata["annotations"].items() if name != TAKING}
    return {**raw, "metadata": {**metadata, "annotations": annotations}}


def _annotated(raw: RawObject, name: str, text: str) -> RawObject:
    """The claim with an annotation; the claim itself if it has this one."""
    metadata = raw["metadata"]
    annotations = metadata.get("annotations") or {}
    if annotations.get(name) == text:
        return raw
    return {**raw, "metadata": {**metadata, "annotations": {**annotations, name: text}}}


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


@dataclass(slots=True, eq=False)
class WaitingReservation:
    """A reservation that waits to be written.

    Attributes:
        reservation: the goal.
        fence: the latest fence of the pod in the version that will be bound; empty if there is none.
        outcome: the claim as it is then, or why it is not reserved; None while the reservation waits.
        is_left: nobody waits for the outcome any more.
    """

    reservation: Reservation
    fence: str
    outcome: ReadClaim | Exception | None = None
    is_left: bool = False

    def is_certain(self, now: ReadClaim) -> bool:
        """Whether no write that others made from older reads can still take the claim, which is reserved already.

        Whoever has fenced the pod may still write what was read before the fence. Whoever takes a claim from a PodGroup
        marks the claim first, and may not know the pod. In both cases a write to the claim makes theirs refused. A
        special claim must have the finalizer: an undo that has begun to delete it removes the finalizer first.
        """
        reservation, raw = self.reservation, now.raw
        if self.fence and not is_confirmed(raw, reservation.pod, self.fence):
            return False
        if reservation.group is not None and is_being_taken(raw):
            return False
        return is_protected(raw) or not reservation.is_special


class ReservationQueue:
    """The reservations of one claim; it exists while somebody writes the claim or waits for it.

    Attributes:
        lock: of the claim, in this process.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._waiting: list[WaitingReservation] = []
        self._writing: list[WaitingReservation] = []
        self._last: ReadClaim | None = None

    async def reserve(
        self, waiting: WaitingReservation, claims: ClaimWrites, clock: Callable[[], datetime]
    ) -> ReadClaim:
        """Wait until a reservation is written; returns the claim as it is then.

        Args:
            waiting: the reservation.
            claims: where it is written.
            clock: the time of an allocation.

        Raises:
            WriteRefusedError: the claim is not reserved; its assumed allocation is dropped.
            OutcomeUnknownError: it may be reserved; the assumed allocation stays until the watch shows the outcome.
        """
        self._waiting.append(waiting)
        try:
            async with self.lock:
                while waiting.outcome is None:
                    await self._write_all(waiting, claims, clock)
        finally:
            waiting.is_left = True
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._leave(waiting.reservation, claims.state)
        if isinstance(waiting.outcome, Exception):
            raise waiting.outcome
        return waiting.outcome

    async def _write_all(self, own: WaitingReservation, claims: ClaimWrites, clock: Callable[[], datetime]) -> None:
        """Write all reservations that wait now, and note the outcome of each and of the assumed allocation.

        If the bind of the ``own`` one is cancelled meanwhile, the others wait for the next writer.
        """
        batch, self._waiting = self._waiting, []
        self._writing = batch
        reserved, state, uid = Reserved(list(batch), claims, clock), claims.state, batch[0].reservation.uid
        try:
            try:
                self._last = now = await reserved.reach(self._newest(batch))
            finally:
                self._writing = []
        except WriteRefusedError as error:
            self._drop_allocation(uid, state)
            reserved.fail(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, a status write that was begun may have happened
            self._settle(reserved, uid, state)
            reserved.fail(reserved.reported(error))
        except BaseException:
            own.is_left = True
            again = (each for each in batch if each.outcome is None and not each.is_left)
            self._waiting = [*again, *self._waiting]
            self._settle(reserved, uid, state)
            raise
        else:
            if reserved.waiting:
                state.settle(uid, revision_of(now.raw))
            else:
                self._drop_allocation(uid, state)
            for each in reserved.waiting:
                each.outcome = now

    def _settle(self, reserved: "Reserved", uid: str, state: ClusterState) -> None:
        """Note what an error says of the assumed allocation: a status write that was begun may have happened."""
        if reserved.written_from:
            state.settle(uid, reserved.written_from + 1)
        else:
            self._drop_allocation(uid, state)

    def _leave(self, reservation: Reservation, state: ClusterState) -> None:
        """A bind has ended before its reservation was written. What others have written ends by itself."""
        assumed = state.snapshot.assumed.get(reservation.uid)
        if reservation.allocates and assumed is not None and assumed.ends_at is None:
            self._drop_allocation(reservation.uid, state)

    def _drop_allocation(self, uid: str, state: ClusterState) -> None:
        """Drop the assumed allocation of the claim, unless a bind writes it or waits to: then it is of that bind."""
        waiting = (each.reservation for each in (*self._writing, *self._waiting) if each.reservation.allocates)
        if (successor := next(waiting, None)) is None:
            state.forget(uid)
        else:
            state.assume(uid, successor.allocation, successor.pod.uid, successor.claim.claim.spec)

    def _newest(self, batch: list[WaitingReservation]) -> ReadClaim | None:
        """The claim as it is known best: what our last write returned, or what one of the binds has seen.

        None: the cache has not kept all of the claim, so it is read before it is replaced.
        """
        best = max((each.reservation for each in batch), key=lambda each: each.claim.revision)
        if self._last is not None and revision_of(self._last.raw) >= best.claim.revision:
            return self._last
        return best.known if best.claim.is_whole else None


@dataclass(slots=True)
class Reserved:
    """The goal of one write for several binds: the claim is allocated, and reserved for the pod of each.

    Finalizer first, so that an allocated claim is always protected; then allocation and reservations in one write. The
    API server refuses a reservation without an allocation. `AllocationFirst` is for claims of a pod that has
    its node already: reserved in a write of its own.

    Attributes:
        waiting: the reservations that are still possible. Others get their refusal as outcome.
        written_from: the revision that the last status write was made from; 0 without such a write.
    """

    waiting: list[WaitingReservation]
    claims: ClaimWrites
    clock: Callable[[], datetime]
    written_from: int = 0
    _key: str = field(init=False)

    def __post_init__(self) -> None:
        self._key = f"claim {self.waiting[0].reservation.claim.key}"

    async def reach(self, known: ReadClaim | None) -> ReadClaim:
        """Write and read in turn until the goal is reached; returns the claim as it is then.

        A claim that seems to need no write is read, because what was known may be old. After a write nothing is read.

        Args:
            known: the claim as it was known; None: it is read first.

        Raises:
            WriteRefusedError, OutcomeUnknownError, ApiError: the goal is not reached, or perhaps not. An allocation is
                not written again if others may have undone it.
        """
        unknown, is_fresh = None, known is None
        now = await self._read(None) if known is None else known
        for _ in range(ATTEMPTS):
            missing = self._missing(now.claim)
            is_reached = self._is_certain(now, missing)
            if is_reached and (is_fresh or not self.waiting):
                return now
            if not is_reached:
                if unknown is not None and self._was_undone(now):
                    raise WriteRefusedError(f"{self._key} was changed by others while it was written") from unknown
                try:
                    return await self._write(now, missing)
                except OutcomeUnknownError as error:
                    unknown = error
                except ApiError as error:
                    if not error.is_conflict:
                        raise (None if error.is_missing else unknown) or refused(self._key, error) from error
                    unknown = None
            now, is_fresh = await self._read(unknown), True
        if self._is_certain(now, self._missing(now.claim)):
            return now
        raise unknown or changed_by_others(self._key)

    def _was_undone(self, now: ReadClaim) -> bool:
        """Whether others may have undone the status write that has no answer: the claim is newer, and not allocated.

        They may have given the devices away since, which a process that stood still does not know yet.
        """
        return now.claim.allocation is None and 0 < self.written_from < revision_of(now.raw)

    def fail(self, error: Exception) -> None:
        """Give the outcome to all that still wait."""
        for each in self.waiting:
            each.outcome = error

    def reported(self, error: Exception) -> Exception:
        """An error as binds are told it: if no status write was begun, nothing has happened."""
        cause = str(error) if isinstance(error, OutcomeUnknownError) else f"{type(error).__name__}: {error}"
        if not self.written_from:
            return WriteRefusedError(cause)
        return error if isinstance(error, OutcomeUnknownError) else OutcomeUnknownError(self._key, cause)

    def _is_certain(self, now: ReadClaim, missing: Sequence[Reservation]) -> bool:
        """Whether the goal is reached: nothing is missing, and no write of others can take it away."""
        return not missing and all(each.is_certain(now) for each in self.waiting)

    def _missing(self, claim: Claim) -> Sequence[Reservation]:
        """The reservations that the claim lacks. What has become impossible waits no more."""
        missing = []
        for each in list(self.waiting):
            try:
                is_made = each.reservation.is_made(claim)
            except WriteRefusedError as refusal:
                each.outcome = refusal
                self.waiting.remove(each)
                continue
            if not is_made:
                claim = each.reservation.made(claim)
                missing.append(each.reservation)
        return missing

    async def _write(self, now: ReadClaim, missing: Sequence[Reservation]) -> ReadClaim:
        """Write from what was known. A write of any kind makes older writes of others refused.

        Args:
            now: the claim as it was known.
            missing: the reservations that it lacks.
        """
        raw = reduce(lambda raw, each: each.prepared(raw), missing, now.raw)
        if not missing or raw is not now.raw:
            now = await self.claims.update(without_taking(raw) if missing else protected(self._certain(raw)))
            missing = self._missing(now.claim)
        if not missing:
            return now
        self.written_from = revision_of(now.raw)
        raw, at = now.raw, self.clock()
        for each in missing:
            raw = each.written(raw, at)
        return await self.claims.update_status(raw)

    def _certain(self, raw: RawObject) -> RawObject:
        """The claim with a change that makes older writes of others refused, if one is needed.

        The mark names one of the pods. If the outcome of the write is unknown, it is certain for this pod only.
        """
        for each in self.waiting:
            if each.fence and not is_confirmed(raw, each.reservation.pod, each.fence):
                raw = confirmed(raw, each.reservation.pod, each.fence)
                break
        return without_taking(raw)

    async def _read(self, unknown: OutcomeUnknownError | None) -> ReadClaim:
        """The claim as it is now; if it can't be read, the earlier error ``unknown`` is raised."""
        try:
            return await self.claims.get(self.waiting[0].reservation.claim.key)
        except ApiError as error:
            raise (None if error.is_missing else unknown) or refused(self._key, error) from error


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
