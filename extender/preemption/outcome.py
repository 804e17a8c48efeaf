"""What became of a preemption that its pod has not used: whether pods of higher priority have its devices."""

from collections.abc import Collection

from allocator import DeviceId
from extender.state.objects import Pod
from extender.state.snapshot import Snapshot


def is_overtaken(pod: Pod, devices: Collection[DeviceId], snapshot: Snapshot) -> bool:
    """Whether a pod of higher priority has one of the devices, or will: those who died for the pod died for that one.

    Args:
        pod: for whom the devices were kept.
        devices: which were kept.
        snapshot: the cluster.
    """
    wanted = frozenset(devices)
    return any(
        other.priority > pod.priority and not wanted.isdisjoint(other.kept.devices)
        for node in snapshot.nominated
        for other in snapshot.nominated_to(node)
    ) or any(_highest_priority(uid, snapshot) > pod.priority for uid in _holders(wanted, snapshot))


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
    uids = [user.uid for user in claim.claim.reserved_for] if claim is not None else []
    uids += [] if assumed is None else [assumed.pod_uid]
    users = (snapshot.pod(uid) for uid in uids)
    return max((user.priority for user in users if user is not None), default=float("-inf"))
