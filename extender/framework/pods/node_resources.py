"""Devices that take CPU, memory or huge pages of their node (KEP-5517), and one pod on one node.

kube-scheduler counts what the containers request. What a pod takes by its claims is known when its devices are, so it
is compared here: after the allocation, which is not made anew if the node has too little, as upstream has it.

Source: pkg/scheduler/framework/plugins/dynamicresources/nodeallocatabledynamicresources.go, Kubernetes 1.37.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from allocator import (
    HUGE_PAGES,
    AllocationResult,
    Device,
    DeviceId,
    DeviceResult,
    Features,
    NodeResource,
    PoolId,
    Quantity,
    Reason,
)
from allocator.reason import Cause
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.resources import Amounts, ClaimResources, Envelope, added, counted
from extender.cluster.snapshot import Snapshot

INSUFFICIENT: Final = Cause("node-resources", "too little {detail} for the pod and its devices")
_OF_EXTENDED: Final = Cause(
    "extended-takes-resources", "a device takes {detail} of its node, and cannot serve an extended resource"
)
_SHARED: Final = Cause("shared-takes-resources", "claim {claim} takes {detail} of its node: only one pod can use it")
_UNCOUNTED: Final = Cause("uncounted-resource", "claim {claim}, device {detail}")
_UNCOVERED: Final = Cause(
    "pod-resources", "spec.resources.{detail} of the pod does not cover its containers and devices"
)

_NANO: Final = 10**9


class ShortageError(Exception):
    """The pod cannot run on the node with these devices, for a reason."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason.in_words())


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim of a pod with the devices that it has, or would get.

    Attributes:
        is_special: the claim is for extended resources.
    """

    claim: ClaimObject
    allocation: AllocationResult
    is_special: bool = False


def is_counted(snapshot: Snapshot, features: Features) -> bool:
    """Whether devices that take resources of their node are looked for at all: the cluster has such devices."""
    return features.node_resources and snapshot.node_requests is not None and bool(snapshot.inventory.taking)


def taken(
    pod: Pod, node: NodeObject, held: Iterable[HeldClaim], snapshot: Snapshot, features: Features
) -> tuple[ClaimResources, ...]:
    """What a pod takes of its node by its claims, sorted by the names of the claims; checked.

    Raises:
        ShortageError: the pod cannot run on the node with these devices.
    """
    claims = _by_claim(pod, node, held, snapshot, features)
    if not claims or snapshot.node_requests is None:
        return ()
    if pod.resources.envelope is not None:
        _check_envelope(pod, pod.resources.envelope, claims)
    wanted, used = counted(pod.resources.with_claims(claims)), snapshot.node_requests.on(node.name, pod.key)
    names = sorted({name for each in claims for name in each.of_pod if wanted[name]})
    lacking = [name for name in names if wanted[name] + used.get(name, 0) > node.resources.get(name, 0)]
    if lacking and node.resources:
        raise ShortageError(Reason(INSUFFICIENT, detail=_listed(lacking)))
    return claims


def _by_claim(
    pod: Pod, node: NodeObject, held: Iterable[HeldClaim], snapshot: Snapshot, features: Features
) -> tuple[ClaimResources, ...]:
    views = {
        view.id: {each.device.id: each.device for each in view.candidates if each.device.node_resources}
        for view in snapshot.inventory.for_node(node.node, features)
        if "node_resources" in view.fields
    }
    found = [_resources_of_claim(pod, each, views) for each in held] if any(views.values()) else []
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.claim))


def _resources_of_claim(
    pod: Pod, held: HeldClaim, views: Mapping[PoolId, Mapping[DeviceId, Device]]
) -> ClaimResources | None:
    """What a pod takes by one claim; None if that is nothing."""
    tally, claim = _Tally(held.claim.claim.name), held.claim.claim
    for result in held.allocation.results:
        device = views.get(result.device.pool_id, {}).get(result.device)
        for each in () if device is None else device.node_resources:
            tally.add(each, result)
    if not tally.names:
        return None
    if held.is_special:
        raise ShortageError(Reason(_OF_EXTENDED, detail=_listed(tally.names)))
    if tally.mapping and claim.reserved_for and not claim.is_reserved_for(pod.uid, pod.pod_group):
        raise ShortageError(Reason(_SHARED, detail=_listed(tally.mapping), claim=claim.name))
    return ClaimResources(claim.name, _containers(pod, claim.name), tally.mapping, tally.per_pod, tally.per_container)


def _containers(pod: Pod, claim: str) -> tuple[str, ...]:
    """The containers with a claim."""
    names = {each.name for each in pod.claims if (each.claim_name or pod.claim_statuses.get(each.name)) == claim}
    return tuple(name for name, entries in pod.resources.users if not names.isdisjoint(entries))


@dataclass(slots=True)
class _Tally:
    """The sum of what the devices of one claim take.

    Attributes:
        names: the resources that a device has an entry for.
    """

    claim: str
    names: set[str] = field(default_factory=set)
    mapping: dict[str, Quantity] = field(default_factory=dict)
    per_pod: dict[str, Quantity] = field(default_factory=dict)
    per_container: dict[str, Quantity] = field(default_factory=dict)

    def add(self, entry: NodeResource, result: DeviceResult) -> None:
        """Add an entry of a device.

        Raises:
            ShortageError: the entry counts a capacity, and it is not known how much of it the claim has.
        """
        self.names.add(entry.name)
        parts = ((self.mapping, self._mapped(entry, result)), (self.per_pod, entry.per_pod))
        for sums, amount in (*parts, (self.per_container, entry.per_container)):
            if amount is not None:
                sums[entry.name] = sums[entry.name] + amount if entry.name in sums else amount

    def _mapped(self, entry: NodeResource, result: DeviceResult) -> Quantity | None:
        if entry.capacity is None or entry.multiplier is None:
            return entry.multiplier
        if not result.consumed_capacity:
            lacking = f"capacity {entry.capacity}, but the claim consumes no part of that capacity"
            text = f"{result.device.device}: its {entry.name} follows {lacking}"
            raise ShortageError(Reason(_UNCOUNTED, detail=text, claim=self.claim))
        used = result.consumed_capacity.get(entry.capacity)
        return None if used is None else Quantity(-(-used.nano * entry.multiplier.nano // _NANO), used.format)


def _check_envelope(pod: Pod, envelope: Envelope, claims: Sequence[ClaimResources]) -> None:
    """Check that the resources of the whole pod cover its containers and its devices.

    Raises:
        ShortageError: they don't.
    """
    by_claims = added(*(each.of_pod for each in claims))
    needed = added(pod.resources.containers, by_claims)
    _cover("requests", envelope.requests, needed)
    pages = {name: nano for name, nano in added(envelope.container_limits, by_claims).items() if _is_huge(name)}
    _cover("limits", envelope.limits, pages)
    for container, limits in envelope.limits_of:
        own = added(limits, *(each.of_container for each in claims if container in each.containers))
        _cover("limits", envelope.limits, {name: own[name] for name in limits if not _is_huge(name)})


def _cover(kind: str, of_pod: Amounts, needed: Amounts) -> None:
    for name in sorted(of_pod.keys() & needed.keys()):
        if needed[name] > of_pod[name]:
            raise ShortageError(Reason(_UNCOVERED, detail=f"{kind}[{name}]"))


def _is_huge(name: str) -> bool:
    return name.startswith(HUGE_PAGES)


def _listed(names: Iterable[str]) -> str:
    return " and ".join(sorted(names))
