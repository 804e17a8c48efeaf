"""The status of a DeviceQuota: what is used of each limit, and by which claims."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from allocator import Claim
from extender.cluster.consumers import pods_of
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.device_quotas import DEVICES, Amounts, DeviceLimit, DeviceQuota, counted_name
from extender.cluster.snapshot import Snapshot
from extender.kube.api import RawObject
from extender.quota.device_quotas.overrun import excess
from extender.quota.device_quotas.totals import Total
from extender.quota.device_quotas.usage import Taken, total

MOST_CLAIMS: Final = 20
"""The most claims that a status names."""

_MOST_PODS: Final = 5
"""The most pods that a status names for a claim."""


def status_of(
    quota: DeviceQuota, totals: Mapping[str, Total], kept: Mapping[str, Amounts], snapshot: Snapshot
) -> RawObject:
    """The status, as JSON. Assumed allocations do not count: they may never be written.

    Args:
        quota: of a namespace.
        totals: what the namespace is allocated, by the name of the limit.
        kept: what is kept for pods of the namespace, in the same way.
        snapshot: the snapshot that the totals were counted on.
    """
    counted = {uid for total in totals.values() for uid, part in total.parts.items() if part.amounts}
    users = [claim for uid in counted if (claim := snapshot.claim(uid)) is not None]
    users.sort(key=lambda claim: (-_devices(claim), claim.claim.name))
    return {
        "observedGeneration": quota.generation,
        "summary": ", ".join(_summary(limit, totals[limit.name].amounts, kept[limit.name]) for limit in quota.limits),
        "limits": [_limit(limit, totals[limit.name].amounts, kept[limit.name]) for limit in quota.limits],
        "claims": len(users),
        "usedBy": _users(users[:MOST_CLAIMS], snapshot),
    }


def _summary(limit: DeviceLimit, allocated: Amounts, kept: Amounts) -> str:
    """``gpu 5/8 100Gi/160Gi memory``, or ``gpu 5/8 (2 kept)``."""
    used = total((allocated, kept))
    parts = (
        f"{used[name]}/{hard}"
        + ("" if name == DEVICES else f" {counted_name(name)}")
        + (f" ({kept[name]} kept)" if name in kept and kept[name].nano else "")
        for name, hard in limit.hard.items()
    )
    return f"{limit.name} {' '.join(parts)}"


def _limit(limit: DeviceLimit, allocated: Amounts, kept: Amounts) -> RawObject:
    used = total((allocated, kept))
    over, waiting = excess(limit, used), {name: amount for name, amount in kept.items() if amount.nano}
    found: RawObject = {"name": limit.name, "used": _texts(used)}
    found |= {"kept": _texts(waiting)} if waiting else {}
    return found | ({"borrowed": _texts(over)} if over else {})


def _users(users: Sequence[ClaimObject], snapshot: Snapshot) -> list[RawObject]:
    return [
        {
            "claim": claim.claim.name,
            "devices": _devices(claim),
            "pods": list(islice(_pods(claim.claim, snapshot), _MOST_PODS)),
        }
        for claim in users
    ]


def _pods(claim: Claim, snapshot: Snapshot) -> Iterator[str]:
    """The names of the pods for which a claim is reserved, by themselves or by their PodGroup."""
    yield from (user.name for user in claim.reserved_for if not user.is_pod_group)
    yield from (pod.name for user in claim.reserved_for if user.is_pod_group for pod in pods_of(user, claim, snapshot))


def _devices(claim: ClaimObject) -> int:
    """The devices of a claim, and those that it has asked a controller for that names none."""
    if claim.claim.allocation is None:
        return 0
    taken = Taken(claim.claim.spec, claim.claim.allocation)
    return len(taken.allocation.results) + sum(each.alternatives[0].count for each in taken.unlisted)


def _texts(amounts: Amounts) -> dict[str, str]:
    return {counted_name(name): str(amount) for name, amount in amounts.items()}
