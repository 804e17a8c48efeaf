"""What is kept for members of a gang, and what they can't get any more: others have it, or it is gone."""

from collections.abc import Iterable
from operator import attrgetter

from allocator import DeviceId
from allocator.usage import FREE
from extender.cluster.consumers import claim_keys
from extender.cluster.indexes import is_live
from extender.cluster.objects.pods import GangKey, Pod
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ObjectKey


def lost_members(key: GangKey, snapshot: Snapshot) -> tuple[Pod, ...]:
    """The members of a gang that can't get what is kept for them any more.

    The node is gone, another claim holds a kept device, or the device is kept for an earlier member as well. Looks only
    at members whose node is gone, and at those that others may be in the way of.
    """
    gone = (uid for name, uids in snapshot.nominated.items() if name not in snapshot.nodes for uid in uids)
    found = (pod for uid in {*gone, *snapshot.kept.rivals()} if (pod := snapshot.pod(uid)) is not None)
    members = (pod for pod in found if pod.gang_key == key and pod.kept.node and is_live(pod))
    pods = sorted(members, key=attrgetter("order"))
    twice = _kept_twice(pods, snapshot)
    return tuple(pod for pod in pods if pod.uid in twice or _has_lost(pod, snapshot))


def _has_lost(pod: Pod, snapshot: Snapshot) -> bool:
    is_there = pod.kept.node in snapshot.nodes
    return not is_there or any(_is_taken(device, pod, snapshot) for device in pod.kept.devices)


def _kept_twice(pods: Iterable[Pod], snapshot: Snapshot) -> frozenset[str]:
    """The uids of pods for which a whole device is kept that is kept for an earlier pod with other claims, too.

    Two processes that plan one gang at once write this, each a part of its plan.
    """
    users: dict[DeviceId, frozenset[ObjectKey]] = {}
    found = set()
    for pod in pods:
        own = frozenset(claim_keys(pod))
        for device in pod.kept.devices:
            before = users.get(device)
            if before is not None and before.isdisjoint(own) and not _may_share(pod, device, snapshot):
                found.add(pod.uid)
            users[device] = own if before is None else before | own
    return frozenset(found)


def _may_share(pod: Pod, device: DeviceId, snapshot: Snapshot) -> bool:
    """Whether several claims may have the device, or a claim of the pod has admin access."""
    claims = (snapshot.claims.get(key) for key in claim_keys(pod))
    ways = (way for each in claims if each for request in each.claim.spec.requests for way in request.alternatives)
    pool = snapshot.inventory.pools.get(device.pool_id)
    devices = (each for part in (pool.newest if pool else ()) for each in part.devices)
    return any(way.admin_access for way in ways) or any(
        each.id == device and each.allow_multiple_allocations for each in devices
    )


def _is_taken(device: DeviceId, pod: Pod, snapshot: Snapshot) -> bool:
    """Whether a claim that is not the pod's holds the whole device."""
    if snapshot.usage.device(device) == FREE:
        return False
    own = claim_keys(pod)
    for uid in snapshot.holders.get(device.pool_id, ()):
        claim = snapshot.claim(uid)
        if claim is not None and (claim.key in own or claim.special_of == pod.uid):
            continue
        for held in snapshot.held_by(uid):
            if any(each.device == device and each.share_id is None and not each.admin_access for each in held.results):
                return True
    return False
