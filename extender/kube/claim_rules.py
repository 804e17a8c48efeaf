"""The API server's rules for creating and changing a ResourceClaim, and for CEL expressions over devices.

Source: validation of ResourceClaim and its status in Kubernetes 1.37.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from allocator.cel import CompileError, Environment, compile_expression
from extender.kube.api import RawObject
from extender.kube.resources import TEMPLATES

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Finalizer of allocated claims: their deletion waits until they are released."""

MAX_CONSUMERS: Final = 256
"""Most entries of ``status.reservedFor``."""

ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
"""With this label set to "true", a namespace may have claims with adminAccess."""

CREATION_FAILED: Final = "FailedResourceClaimCreation"
"""Reason of the Event on a pod that kube-controller-manager can't make a claim for."""


def admin_problems(obj: RawObject, labels: Mapping[str, str]) -> list[str]:
    """The problems that forbid a new claim or claim template in a namespace with these labels."""
    is_template = obj["kind"] == TEMPLATES.kind
    spec = obj.get("spec") or {}
    spec = spec.get("spec") or {} if is_template else spec
    path = "spec.spec" if is_template else "spec"
    found = []
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or []):
        # v1beta1 has no exactly.
        inner = "exactly." if "exactly" in request else ""
        if (request.get("exactly") or request).get("adminAccess"):
            found.append(f"{path}.devices.requests[{index}].{inner}adminAccess")
    return _without_label(found, labels)


def admin_status_problems(new: RawObject, old: RawObject, labels: Mapping[str, str]) -> list[str]:
    """The problems that forbid a new allocation of a claim in a namespace with these labels."""
    had = (old.get("status") or {}).get("allocation")
    results = _results(new.get("status") or {}) if had is None else []
    paths = (
        f"status.allocation.devices.results[{i}].adminAccess" for i, r in enumerate(results) if r.get("adminAccess")
    )
    return _without_label(paths, labels)


def _without_label(paths: Iterable[str], labels: Mapping[str, str]) -> list[str]:
    if labels.get(ADMIN_LABEL) == "true":
        return []
    return [f'{path}: needs the label {ADMIN_LABEL}: "true" on the namespace' for path in paths]


def spec_problems(new: RawObject, old: RawObject) -> list[str]:
    """The problems that forbid an update of all but the status."""
    if new.get("spec") != old.get("spec"):
        return ["spec: field is immutable"]
    return []


def status_problems(new: RawObject, old: RawObject) -> list[str]:
    """The problems that forbid an update of the status."""
    status, before = new.get("status") or {}, old.get("status") or {}
    consumers = status.get("reservedFor") or []
    uids = [consumer.get("uid") for consumer in consumers]
    allocation, had = status.get("allocation"), before.get("allocation")
    problems = []
    if len(consumers) > MAX_CONSUMERS:
        problems.append(f"status.reservedFor: {len(consumers)} entries, at most {MAX_CONSUMERS} are allowed")
    if len(set(uids)) < len(uids):
        problems.append("status.reservedFor: duplicate uid")
    if consumers and allocation is None:
        problems.append("status.reservedFor: may not be set without an allocation")
    added = set(uids) - {consumer.get("uid") for consumer in before.get("reservedFor") or []}
    if added and (old["metadata"].get("deletionTimestamp") or before.get("deallocationRequested")):
        problems.append("status.reservedFor: new entries may not be added while the claim is being deleted")
    if allocation is not None and had is not None and allocation != had:
        problems.append("status.allocation: field is immutable")
    if allocation is not None and had is None:
        problems += _result_problems(allocation, new["spec"])
    return [*problems, *_device_status_problems(status)]


def drop_freed_devices(new: RawObject, old: RawObject) -> None:
    """Remove device statuses whose devices are no longer allocated, whatever was sent."""
    status = new.get("status") or {}
    freed = _allocated(old.get("status") or {}) - _allocated(status)
    if status.get("devices"):
        status["devices"] = [device for device in status["devices"] if _device(device) not in freed]


def _result_problems(allocation: RawObject, spec: RawObject) -> list[str]:
    """A new result must name a request of the claim, or an alternative (``request/alternative``)."""
    names = set()
    for request in spec.get("devices", {}).get("requests") or []:
        names.add(request["name"])
        names.update(f"{request['name']}/{each['name']}" for each in request.get("firstAvailable") or [])
    results = (allocation.get("devices") or {}).get("results") or []
    return [
        f"status.allocation.devices.results[{index}].request: {result.get('request')!r} is no request of the claim"
        for index, result in enumerate(results)
        if result.get("request") not in names
    ]


def _device_status_problems(status: RawObject) -> list[str]:
    """A device status needs an allocated device."""
    allocated = _allocated(status)
    return [
        f"status.devices[{index}]: must be an allocated device of the claim"
        for index, device in enumerate(status.get("devices") or [])
        if _device(device) not in allocated
    ]


def _allocated(status: RawObject) -> set[tuple[object, ...]]:
    return {_device(result) for result in _results(status)}


def _results(status: RawObject) -> list[RawObject]:
    return ((status.get("allocation") or {}).get("devices") or {}).get("results") or []


def _device(entry: RawObject) -> tuple[object, ...]:
    return tuple(entry.get(name) for name in ("driver", "pool", "device", "shareID"))


_DEVICE_EXPRESSIONS: Final = Environment()


def check_expression(expression: str) -> str | None:
    """The error of a CEL expression over devices, by the rules of an API server; None if it has none."""
    try:
        compile_expression(expression, _DEVICE_EXPRESSIONS)
    except CompileError as error:
        return f"{error.line}:{error.column}: {error.message}"
    except Exception as error:  # noqa: BLE001  # the error concerns one object, and is told with its place
        return f"internal error: {type(error).__name__}: {error}"
    return None
