"""The number of devices that a node has left, and the number that claims need. No search begins if too few are left."""

import math

from allocator import AllocationMode, ClaimSpec, DeviceRequest, Features
from allocator.model.optional import required
from allocator.usage import NOTHING_USED
from extender.cluster.snapshot import Snapshot


def free_devices(snapshot: Snapshot, node: str, features: Features) -> float:
    """The most devices that pods may still get on a node; infinite if some can be shared."""
    views = snapshot.inventory.for_node(snapshot.nodes[node].node, features)
    if any(each.device.allow_multiple_allocations for view in views for each in view.candidates):
        return math.inf
    held = [snapshot.usage.pools.get(view.id, NOTHING_USED) for view in views]
    pairs = ((each.device, used) for view, used in zip(views, held, strict=True) for each in view.candidates)
    return sum(device.id.device not in used for device, used in pairs)


def stranded_devices(snapshot: Snapshot, node: str, features: Features) -> int:
    """The number of a node's own devices of which nothing is taken. Partitions count once, by their counters."""
    stranded = 0
    for pool in snapshot.inventory.local.get(node, ()):
        view = snapshot.inventory.pools[pool].at(snapshot.nodes[node].node, features)
        if view is None:
            continue
        used = snapshot.usage.pools.get(pool, NOTHING_USED)
        devices = [each.device for each in view.candidates]
        parted = {
            each.counter_set for device in devices if device.id.device in used for each in device.consumes_counters
        }
        whole = (device for device in devices if not device.consumes_counters)
        stranded += sum(device.id.device not in used for device in whole) + len(view.counter_sets.keys() - parted)
    return stranded


def least_devices(spec: ClaimSpec) -> int:
    """The number of devices that a claim can't do without. Those that it gets for admin access may be in use."""
    return sum(min((_least(each) for each in request.alternatives), default=0) for request in required(spec).requests)


def typical_devices(spec: ClaimSpec) -> int:
    """The number of devices that a claim asks for, about."""
    return sum(request.alternatives[0].count for request in spec.requests if request.alternatives)


def _least(request: DeviceRequest) -> int:
    if request.admin_access:
        return 0
    return 1 if request.mode is AllocationMode.ALL else request.count
