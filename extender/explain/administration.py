"""Changes that are an administrator's: of device classes, of feature gates, and of what nodes declare."""

from collections.abc import Iterator
from dataclasses import replace

from allocator import GATES, Features
from extender.explain.changes import Change, Kind
from extender.explain.edits import corrected
from extender.state.objects import NodeObject
from extender.state.snapshot import Snapshot


def correct_class(name: str, number: int, missing: str, meant: str, old: str) -> Change | None:
    """Write the attribute that exists into a class's selector; None where that can't be told."""
    new = corrected(old, missing, meant)
    if new == old:
        return None

    def fork(snapshot: Snapshot) -> Snapshot:
        texts = snapshot.classes[name].selectors
        now = corrected(texts[number], missing, meant)
        return snapshot.with_class(
            replace(snapshot.classes[name], selectors=(*texts[:number], now, *texts[number + 1 :]))
        )

    return Change(
        Kind.CORRECT,
        f"class {name}: selector {number} attribute {missing}",
        f"write {meant} instead of {missing} in device class {name}",
        f"kubectl edit deviceclass {name}: spec.selectors[{number}] becomes: {new}",
        fork,
        weight=1,
    )


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
    yield from (turn_on(gate) for gate in GATES if is_off(gate, features))


def is_off(gate: str, features: Features) -> bool:
    """Whether a feature gate, by Kubernetes' name, is off."""
    return not getattr(features, GATES[gate])
