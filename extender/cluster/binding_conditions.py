"""Binding conditions: what must be true of allocated devices before their pod is bound (KEP-5007).

A driver reports conditions in ``status.devices``. A condition that is not reported is not true.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from allocator import AllocationResult, DeviceId, DeviceResult
from extender.cluster.objects.claims import ClaimObject
from extender.kube.api import RawObject
from extender.kube.encoding import loads


@dataclass(frozen=True, slots=True)
class AwaitedCondition:
    """A condition that is not true yet.

    Attributes:
        since: when the claim was allocated; None if the allocation has no timestamp: it never times out.
    """

    condition: str
    device: DeviceId
    since: datetime | None

    def lapse(self, now: datetime, timeout: timedelta) -> str:
        """Why the claim is not waited for any longer; empty while the binding timeout is not over."""
        if self.since is None or now <= self.since + timeout:
            return ""
        return f"binding timeout after {timeout.total_seconds():g} s of {self}"

    def __str__(self) -> str:
        return f"waiting for {self.condition} of {self.device}"


@dataclass(frozen=True, slots=True)
class Failed:
    """A failure condition: the device will not get ready."""

    condition: str
    device: DeviceId
    message: str

    def __str__(self) -> str:
        return f"{self.condition} of {self.device}" + (f": {self.message}" if self.message else "")


Unmet: TypeAlias = AwaitedCondition | Failed


def unmet(claim: ClaimObject) -> Unmet | None:
    """Why an allocated claim is not ready: its first failure, else its first condition that is not true.

    None for an allocation that is assumed: perhaps it was not written, and then no driver ever hears of it.
    """
    allocation = claim.claim.allocation
    if allocation is None or not any(result.binding_conditions for result in allocation.results):
        return None
    status = loads(claim.raw).get("status") or {}
    if not status.get("allocation"):
        return None
    lacking = list(_lacking(allocation, _reported(status)))
    return next((each for each in lacking if isinstance(each, Failed)), lacking[0] if lacking else None)


_Reported: TypeAlias = Mapping[tuple[DeviceId, str | None], Mapping[str, RawObject]]


def _lacking(allocation: AllocationResult, reported: _Reported) -> Iterator[Unmet]:
    since = None if allocation.timestamp is None else datetime.fromisoformat(allocation.timestamp)
    for result in allocation.results:
        if result.binding_conditions:
            yield from _of_device(result, reported.get((result.device, result.share_id), {}), since)


def _of_device(result: DeviceResult, conditions: Mapping[str, RawObject], since: datetime | None) -> Iterator[Unmet]:
    for name in result.binding_failure_conditions or ():
        if _is_true(conditions, name):
            yield Failed(name, result.device, str(conditions[name].get("message") or ""))
    for name in result.binding_conditions or ():
        if not _is_true(conditions, name):
            yield AwaitedCondition(name, result.device, since)


def _is_true(conditions: Mapping[str, RawObject], name: str) -> bool:
    return name in conditions and conditions[name].get("status") == "True"


def _reported(status: RawObject) -> _Reported:
    """What drivers report in the status of a claim: device and share to conditions by type."""
    devices = status.get("devices") or []
    return {
        (DeviceId(each["driver"], each["pool"], each["device"]), each.get("shareID")): {
            condition["type"]: condition for condition in each.get("conditions") or []
        }
        for each in devices
    }
