"""Changes that are an administrator's: feature gates, features that nodes declare, and more devices."""

from collections.abc import Iterator
from dataclasses import replace

from allocator import GATES, Device, DeviceId, Features, Kind, Placement, PoolId, Quantity, Slice, counter_demand
from extender.explain.changes import Change
from extender.state.objects import NodeObject
from extender.state.snapshot import Snapshot


def turn_on(gate: str) -> Change:
    """Have a feature gate on that is off."""
    return Change(
        Kind.CONFIGURE,
        f"feature gate {gate}",
        f"turn on the feature gate {gate}",
        f"in the settings of dra-extender: featureGates: {{{gate}: true}}; the API server must have it on, too",
        lambda snapshot: snapshot,
        gate=gate,
    )


def declare(node: NodeObject, feature: str) -> Change:
    """Have a node declare a feature."""

    def fork(snapshot: Snapshot) -> Snapshot:
        found = snapshot.nodes[node.name]
        features = found.node.declared_features | {feature}
        return snapshot.with_node(replace(found, node=replace(found.node, declared_features=features)))

    return Change(
        Kind.CONFIGURE,
        f"node {node.name}: feature {feature}",
        f"let node {node.name} declare the feature {feature}",
        f"its kubelet does so, in status.declaredFeatures, with the feature gate {feature} on",
        fork,
    )


def closed_gates(features: Features) -> Iterator[Change]:
    """Each feature gate that is off, turned on."""
    yield from (turn_on(gate) for gate, name in GATES.items() if not getattr(features, name))


def add_devices(like: Device, node: str, count: int) -> Change:
    """Publish more devices, each in a pool of its own, with as much of counters as it needs."""

    def fork(snapshot: Snapshot) -> Snapshot:
        for number in range(count):
            for each in _pool_of_one(like, node, number):
                snapshot = snapshot.with_slice(each)
        return snapshot

    return Change(
        Kind.ADD,
        f"node {node}: devices like {like.id}",
        f"add {count} more {'device' if count == 1 else 'devices'} like {like.id} to node {node}",
        "the driver has to publish them in a ResourceSlice",
        fork,
        size=count,
    )


def _pool_of_one(like: Device, node: str, number: int) -> tuple[Slice, ...]:
    pool = PoolId(like.driver, f"{like.id.pool}-{node}-more-{number}")
    device = replace(like, id=DeviceId(*pool, "device-0"), taints=(), placement=None)
    here = Placement(node_name=node)
    parts = 2 if device.consumes_counters else 1
    slices = [Slice(f"{pool.driver}-{pool.pool}", pool, 1, parts, here, devices=(device,))]
    if device.consumes_counters:
        sets: dict[str, dict[str, Quantity]] = {}
        for (_, name, counter), nano in counter_demand(device):
            sets.setdefault(name, {})[counter] = Quantity.from_nano(nano)
        counters = f"{pool.driver}-{pool.pool}-counters"
        slices.append(Slice(counters, pool, 1, parts, here, counter_sets=tuple(sets.items())))
    return tuple(slices)
