"""A claim's JSON before and after the writes of a bind. No I/O. Unknown fields are kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Final

from allocator import AllocationResult, Claim, Consumer, DeviceResult, allocation_to_json
from extender.cluster.consumers import own_consumer
from extender.cluster.controller_marks import asks_to_deallocate
from extender.cluster.objects.claims import CONFIRMED, MARK, TAKING, ClaimObject
from extender.cluster.objects.pods import Pod
from extender.kube.api import RawObject, WriteRefusedError, timestamp
from extender.kube.claim_rules import FINALIZER, MAX_CONSUMERS
from extender.kube.encoding import loads

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
    def raw(self) -> RawObject:
        """The claim's JSON as it was known."""
        obj: RawObject = loads(self.claim.raw)
        return obj

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

    def made(self, raw: RawObject, at: datetime) -> RawObject:
        """The claim with the reservation, and with the allocation unless it has one."""
        status, user = self._allocated(raw, at), self._consumer
        consumer = {"resource": user.resource, "name": user.name, "uid": user.uid}
        if user.api_group:
            consumer["apiGroup"] = user.api_group
        status["reservedFor"] = [*(status.get("reservedFor") or []), consumer]
        return {**raw, "status": status}

    def after(self, claim: Claim) -> Claim:
        """The claim as `made` writes it, as a value."""
        allocation = self.allocation if claim.allocation is None else claim.allocation
        return replace(claim, allocation=allocation, reserved_for=(*claim.reserved_for, self._consumer))

    @property
    def _consumer(self) -> Consumer:
        return self.group or own_consumer(self.pod)

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

    def made(self, raw: RawObject, at: datetime) -> RawObject:
        """The claim with the allocation."""
        return {**raw, "status": self._allocated(raw, at)}

    def after(self, claim: Claim) -> Claim:
        """The claim as `made` writes it, as a value."""
        return replace(claim, allocation=self.allocation)

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
