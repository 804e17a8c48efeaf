"""Changes that are an administrator's: feature gates, and features that nodes declare."""

from collections.abc import Iterator
from dataclasses import replace

from allocator import GATES, Features, RemedyKind
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.explain.change import ProposedChange


def turn_on(gate: str) -> ProposedChange:
    """Have a feature gate on that is off."""
    return ProposedChange(
        RemedyKind.CONFIGURE,
        f"feature gate {gate}",
        f"turn on the feature gate {gate}",
        f"in the settings of dra-extender: featureGates: {{{gate}: true}}; the API server must have it on, too",
        lambda snapshot: snapshot,
        gate=gate,
    )


def declare(node: NodeObject, feature: str) -> ProposedChange:
    """Have a node declare a feature."""

    def fork(snapshot: Snapshot) -> Snapshot:
        found = snapshot.nodes[node.name]
        features = found.node.declared_features | {feature}
        return snapshot.with_node(replace(found, node=replace(found.node, declared_features=features)))

    return ProposedChange(
        RemedyKind.CONFIGURE,
        f"node {node.name}: feature {feature}",
        f"let node {node.name} declare the feature {feature}",
        f"in Node {node.name}, status.declaredFeatures: its kubelet adds {feature}, with this feature gate on",
        fork,
    )


def closed_gates(features: Features) -> Iterator[ProposedChange]:
    """Each feature gate that is off, turned on."""
    yield from (turn_on(gate) for gate, name in GATES.items() if not getattr(features, name))
