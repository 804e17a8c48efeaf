"""Changes that are an administrator's: of device classes, of feature gates, and of what nodes declare."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from allocator import GATES, ClaimSpec, Features, conditions_of, without_condition
from extender.explain.changes import Change, Kind
from extender.explain.edits import corrected, relaxed
from extender.state.objects import NodeObject
from extender.state.snapshot import Snapshot


def relax_class(name: str, number: int, part: int, old: str) -> Change:
    """Drop a condition of a class's selector, ``old``."""
    left = without_condition(old, part)
    instead = f", which leaves: {left}" if left else ""
    return Change(
        Kind.RELAX_CLASS,
        f"class {name}: selector {number} condition {part}",
        f"drop the condition {conditions_of(old)[part]} from device class {name}, for all who ask for it",
        f"kubectl edit deviceclass {name}, and remove it from spec.selectors[{number}]{instead}",
        lambda snapshot: _edited(snapshot, name, relaxed(snapshot.classes[name].selectors, number, old, part)),
    )


def correct_class(name: str, number: int, missing: str, meant: str, old: str) -> Change | None:
    """Write the attribute that exists into a class's selector; None where that can't be told."""
    new = corrected(old, missing, meant)
    if new == old:
        return None

    def fork(snapshot: Snapshot) -> Snapshot:
        texts = snapshot.classes[name].selectors
        now = corrected(texts[number], missing, meant)
        return _edited(snapshot, name, (*texts[:number], now, *texts[number + 1 :]))

    return Change(
        Kind.CORRECT,
        f"class {name}: selector {number} attribute {missing}",
        f"write {meant} instead of {missing} in device class {name}",
        f"kubectl edit deviceclass {name}: spec.selectors[{number}] becomes: {new}",
        fork,
        weight=1,
    )


def _edited(snapshot: Snapshot, name: str, selectors: Sequence[str]) -> Snapshot:
    return snapshot.with_class(replace(snapshot.classes[name], selectors=tuple(selectors)))


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


def idle_gates(features: Features, snapshot: Snapshot, specs: Sequence[ClaimSpec]) -> Iterator[Change]:
    """Feature gates that are off although slices or the claims make use of them, in ways that no device shows."""
    slices, pools = snapshot.inventory.slices.values(), snapshot.inventory.pools.values()
    ways = [way for spec in specs for request in spec.requests for way in request.alternatives]
    used: Mapping[str, Callable[[], bool]] = {
        "DRAPartitionableDevices": lambda: any(s.per_device_placement or s.counter_sets for s in slices),
        "DRADeviceCompatibilityGroups": lambda: any(len(p.ungrouped) < len(p.slices) for p in pools),
        "DRAPrioritizedList": lambda: any(request.prioritized for spec in specs for request in spec.requests),
        "DRAListTypeAttributes": lambda: any(spec.constraints for spec in specs),
        "DRAConsumableCapacity": lambda: any(way.capacity is not None for way in ways),
        "DRADerivedAttributes": lambda: any(way.derived_attributes for way in ways),
        "DRAAdminAccess": lambda: any(way.admin_access for way in ways),
    }
    yield from (turn_on(gate) for gate, is_used in used.items() if is_off(gate, features) and is_used())


def is_off(gate: str, features: Features) -> bool:
    """Whether a feature gate, by Kubernetes' name, is off."""
    return not getattr(features, GATES[gate])
