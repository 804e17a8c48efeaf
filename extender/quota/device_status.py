"""The status of a DeviceQuota: what is used of each limit, and by which claims."""

from collections.abc import Sequence
from typing import Final

from allocator import Quantity
from extender.kube.api import RawObject
from extender.quota.device_usage import Meter, Taken, holdings, total
from extender.state.device_quotas import DEVICES, Amounts, DeviceLimit, DeviceQuota
from extender.state.objects import ClaimObject
from extender.state.snapshot import Snapshot

MOST_CLAIMS: Final = 20
"""Claims that are named in a status."""

_MOST_PODS: Final = 5
"""Pods that are named for a claim."""


def status_of(quota: DeviceQuota, snapshot: Snapshot, meter: Meter) -> RawObject:
    """The status, as JSON. Assumed allocations do not count: they may never be written.

    Raises:
        SearchLimitError: time is up.
    """
    held = list(holdings(quota.namespace, snapshot))
    by_limit = {limit.name: [meter.measured(limit, [taken]) for _, taken in held] for limit in quota.limits}
    used = {name: total(amounts) for name, amounts in by_limit.items()}
    users = [(claim, taken) for index, (claim, taken) in enumerate(held) if any(a[index] for a in by_limit.values())]
    users.sort(key=lambda user: (-len(user[1].allocation.results), user[0].claim.name))
    return {
        "observedGeneration": quota.generation,
        "summary": ", ".join(_summary(limit, used[limit.name]) for limit in quota.limits),
        "limits": [_limit(limit, used[limit.name]) for limit in quota.limits],
        "claims": len(users),
        "usedBy": _users(users[:MOST_CLAIMS]),
    }


def _summary(limit: DeviceLimit, used: Amounts) -> str:
    """``gpu 5/8 100Gi/160Gi memory``."""
    parts = (
        f"{used.get(name, Quantity(0))}/{hard}" + ("" if name == DEVICES else f" {_short(name)}")
        for name, hard in limit.hard.items()
    )
    return f"{limit.name} {' '.join(parts)}"


def _limit(limit: DeviceLimit, used: Amounts) -> RawObject:
    amounts = {name: used.get(name, Quantity(0)) for name in limit.hard}
    over = {name: amount - limit.hard[name] for name, amount in amounts.items() if amount > limit.hard[name]}
    found: RawObject = {"name": limit.name, "used": _texts(amounts)}
    return found | ({"borrowed": _texts(over)} if over else {})


def _users(users: Sequence[tuple[ClaimObject, Taken]]) -> list[RawObject]:
    return [
        {
            "claim": claim.claim.name,
            "devices": len(taken.allocation.results),
            "pods": [user.name for user in claim.claim.reserved_for[:_MOST_PODS]],
        }
        for claim, taken in users
    ]


def _texts(amounts: Amounts) -> dict[str, str]:
    return {_short(name): str(amount) for name, amount in amounts.items()}


def _short(counts: str) -> str:
    """A capacity by its name."""
    return counts.removeprefix("capacity[").removesuffix("]")
