"""What a claim holds, and the pods that use it: whole devices, and shares of those that several claims may have."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from allocator import DeviceId, DeviceResult, Quantity
from extender.kube.api import ObjectKey
from extender.state.objects import ClaimObject
from extender.state.snapshot import Snapshot

Amounts = Mapping[str, Quantity]
"""Capacity to how much of it."""

MAX_NAMED: Final = 3
"""Devices named in one line."""


def held_by(claim: ClaimObject, snapshot: Snapshot) -> tuple[DeviceId, ...]:
    """The devices that a claim holds, or has a share of."""
    return tuple(dict.fromkeys(r.device for r in _results(claim, snapshot)))


def share_of(device: DeviceId, claim: ClaimObject, snapshot: Snapshot) -> Amounts:
    """What a claim has of a device's capacities, all its shares together; nothing, if it has the device as a whole."""
    total: dict[str, Quantity] = {}
    for result in _results(claim, snapshot):
        if result.device == device:
            for name, amount in (result.consumed_capacity or {}).items():
                total[name] = total[name] + amount if name in total else amount
    return total


def users(claim: ClaimObject, snapshot: Snapshot) -> tuple[ObjectKey, ...]:
    """The pods that a claim is reserved for, or that it is just being allocated for."""
    names = {ObjectKey(claim.key.namespace, each.name) for each in claim.claim.reserved_for if each.resource == "pods"}
    assumed_allocation = snapshot.assumed.get(claim.claim.uid)
    pod = snapshot.pod(assumed_allocation.pod_uid) if assumed_allocation else None
    return tuple(sorted(names | ({pod.key} if pod else set())))


def in_words(claim: ClaimObject, snapshot: Snapshot) -> str:
    """What a claim holds, by name."""
    devices = held_by(claim, snapshot)
    more = f" and {len(devices) - MAX_NAMED} more" if len(devices) > MAX_NAMED else ""
    return ", ".join(_part(device, share_of(device, claim, snapshot)) for device in devices[:MAX_NAMED]) + more


def amounts_text(amounts: Iterable[tuple[str, object]]) -> str:
    """``7G of bandwidth and 2Gi of memory``."""
    return " and ".join(f"{amount} of {name}" for name, amount in amounts)


def _part(device: DeviceId, share: Amounts) -> str:
    return f"{amounts_text(share.items())} on {device}" if share else str(device)


def _results(claim: ClaimObject, snapshot: Snapshot) -> Iterator[DeviceResult]:
    return (r for a in snapshot.held_by(claim.claim.uid) for r in a.results if not r.admin_access)
