"""Optional node operations (KEP-5328): devices of drivers that do without some of the kubelet's calls."""

from collections.abc import Hashable, Sequence
from typing import Final

from allocator.checks.check import Asked, Check, Refusal, Situation
from allocator.model.devices import Node
from allocator.outcome import Cause
from allocator.pools import Candidate, NodePool
from allocator.usage import DeviceUsage

NODE_OPERATIONS_FEATURE: Final = "DRAOptionalNodeOperations"
"""What a node declares that can do without some of the calls to a driver."""

_REFUSAL: Final = Refusal(Cause.NODE_OPERATIONS)


def _skips(candidate: Candidate) -> bool:
    return bool(candidate.slice.skip_node_operations)


def _speaks(situation: Situation, _: Asked, candidate: Candidate, __: DeviceUsage) -> Refusal | None:
    if not candidate.slice.skip_node_operations:
        return None
    is_on, declared = situation.features.optional_node_operations, situation.node.declared_features
    return None if is_on and NODE_OPERATIONS_FEATURE in declared else _REFUSAL


def _circumstances(view: NodePool, node: Node, _: object) -> Sequence[Hashable]:
    """What the node declares, if devices of the pool ask for it."""
    return [NODE_OPERATIONS_FEATURE in node.declared_features] if "skip_node_operations" in view.fields else ()


NODE_OPERATIONS: Final = Check(
    Cause.NODE_OPERATIONS,
    _speaks,
    fields=("skip_node_operations",),
    subject=NODE_OPERATIONS_FEATURE,
    reads=_skips,
    circumstances=_circumstances,
    needs_search=_skips,
)
