"""Whether victims were evicted in vain: the pod for which they were evicted does not use their devices."""

from collections.abc import Collection

from allocator import DeviceId
from extender.cluster.consumers import users_of
from extender.cluster.objects.pods import Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.planning.kube_scheduler import rejection


def is_in_vain(pod: Pod, keeping: Keeping, snapshot: Snapshot) -> bool:
    """Whether the victims of a preemption were evicted in vain.

    Victims do not count if a pod of higher priority has one of the devices, or will have one: they were evicted for
    that pod. Victims do not count if kube-scheduler rejects the node now, for example because the node is drained, or
    if one of the devices is not published any more: dra-extender did not decide this.

    Args:
        pod: a pod that does not use the devices that were kept for it.
        keeping: these devices, and their node.
        snapshot: the cluster.
    """
    node = snapshot.nodes.get(keeping.node)
    if node is None or rejection(pod.requirements, node):
        return False
    devices = frozenset(keeping.devices)
    return _are_published(devices, snapshot) and not _is_overtaken(pod, devices, snapshot)


def _are_published(devices: frozenset[DeviceId], snapshot: Snapshot) -> bool:
    pools = (snapshot.inventory.pools.get(pool) for pool in {device.pool_id for device in devices})
    return devices <= {device.id for pool in pools if pool for part in pool.newest for device in part.devices}


def _is_overtaken(pod: Pod, devices: frozenset[DeviceId], snapshot: Snapshot) -> bool:
    waiting = (other for node in snapshot.nominated for other in snapshot.nominated_to(node))
    will = any(other.priority > pod.priority and not devices.isdisjoint(other.kept.devices) for other in waiting)
    return will or any(_highest_priority(uid, snapshot) > pod.priority for uid in _holders(devices, snapshot))


def _holders(devices: Collection[DeviceId], snapshot: Snapshot) -> set[str]:
    """The uids of the claims that hold one of the devices."""
    claims = {uid for device in devices for uid in snapshot.holders.get(device.pool_id, ())}
    return {
        uid
        for uid in claims
        if any(result.device in devices for allocation in snapshot.held_by(uid) for result in allocation.results)
    }


def _highest_priority(claim_uid: str, snapshot: Snapshot) -> float:
    """The highest priority of the pods that use a claim, or for which it is being allocated."""
    claim, assumed = snapshot.claim(claim_uid), snapshot.assumed.get(claim_uid)
    users = [] if claim is None else list(users_of(claim.claim, snapshot))
    other = None if assumed is None else snapshot.pod(assumed.pod_uid)
    return max((user.priority for user in (*users, *filter(None, [other]))), default=float("-inf"))
