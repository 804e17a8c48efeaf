"""Holders of devices: claims, the pods that use them, and nominated pods for which devices are kept."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from allocator import DeviceId, DeviceResult, PoolId, Quantity
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ObjectKey

Amounts = Mapping[str, Quantity]
"""Capacity to how much of it."""

MAX_NAMED: Final = 3
"""Devices named in one line."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a device: a claim and the pods that use it, or (claim empty) a pod for which it is kept.

    Attributes:
        share: of a device that several may have: capacity to how much of it, as (name, amount).
    """

    claim: str
    pods: tuple[str, ...] = ()
    note: str = ""
    share: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        pods = f"{'pod' if len(self.pods) == 1 else 'pods'} {', '.join(self.pods)}" if self.pods else "used by no pod"
        has = f" has {amounts_text(self.share)}" if self.share else ""
        text = f"claim {self.claim} ({pods}){has}" if self.claim else pods
        return f"{text}, {self.note}" if self.note else text


class Holders:
    """Looks up holders, pool by pool, and only where it is asked."""

    def __init__(self, snapshot: Snapshot, pod: Pod) -> None:
        self._snapshot = snapshot
        self._pod = pod
        self._pools: dict[PoolId, dict[str, list[ClaimObject]]] = {}

    def of(self, device: DeviceId) -> tuple[Holder, ...]:
        """The holders of a device, exclusive and shared."""
        claims = self.claims(device)
        return tuple(self._holder(claim, device) for claim in claims) or self._nominees_of(device)

    def sharing(self, device: DeviceId, capacity: str, consumed: int) -> tuple[Holder, ...]:
        """Who consumes a capacity (in units of 10**-9) of a device, those first that have most of it."""
        shares = [(share_of(device, claim, self._snapshot).get(capacity), claim) for claim in self.claims(device)]
        known = sorted(((amount.nano, claim) for amount, claim in shares if amount), key=lambda each: -each[0])
        kept = self._nominees_of(device, "a share of it") if consumed > sum(amount for amount, _ in known) else ()
        return (*(self._holder(claim, device) for _, claim in known), *kept)

    def claims(self, device: DeviceId) -> list[ClaimObject]:
        """The claims that hold a device or a share of it."""
        return self._pool(device.pool_id).get(device.device, [])

    def _pool(self, pool: PoolId) -> dict[str, list[ClaimObject]]:
        if pool not in self._pools:
            found: dict[str, list[ClaimObject]] = {}
            for uid in sorted(self._snapshot.holders.get(pool, ())):
                claim = self._snapshot.claim(uid)
                results = (r for a in self._snapshot.held_by(uid) for r in a.results if not r.admin_access)
                for device in dict.fromkeys(r.device for r in results if r.device.pool_id == pool):
                    if claim is not None:
                        found.setdefault(device.device, []).append(claim)
            self._pools[pool] = found
        return self._pools[pool]

    def _holder(self, claim: ClaimObject, device: DeviceId) -> Holder:
        assumed = claim.claim.uid in self._snapshot.assumed
        pods = tuple(str(pod) for pod in users(claim, self._snapshot))
        share = tuple((name, str(amount)) for name, amount in share_of(device, claim, self._snapshot).items())
        others = [str(each) for each in claim.claim.reserved_for if each.resource != "pods"]
        note = f"reserved for {', '.join(others)}" if others else ""
        return Holder(str(claim.key), pods, "being allocated now" if assumed else note, share)

    def _nominees_of(self, device: DeviceId, what: str = "it") -> tuple[Holder, ...]:
        """Nobody holds it, and yet it is not free: it is kept for pods that are nominated for their nodes."""
        nodes = self._snapshot.nominated
        others = [pod for node in nodes for pod in self._snapshot.nominated_to(node) if pod.uid != self._pod.uid]
        named: dict[str, list[str]] = {}
        for pod in sorted((pod for pod in others if device in pod.kept.devices), key=str):
            named.setdefault(self._why_kept(pod), []).append(str(pod))
        if named:
            return tuple(Holder("", tuple(each), f"{why}: {what} is kept free") for why, each in named.items())
        pods = sorted(str(pod) for pod in others if pod.priority >= self._pod.priority)
        return (Holder("", tuple(pods), f"nominated, with no lower priority: {what} is kept free"),) if pods else ()

    def _why_kept(self, pod: Pod) -> str:
        """Why devices are kept by name for a pod."""
        if pod.uid in self._snapshot.woken:
            return "woken for it"
        return "for which others were evicted" if pod.gang is None else "which gets it together with its group"


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
