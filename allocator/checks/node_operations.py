"""Optional node operations (KEP-5328): devices whose driver does not need some calls of the kubelet."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from allocator.checks.check import Asked, Check, Refusal, Situation, gate_off
from allocator.model.nodes import Node
from allocator.node_selectors import NODE_OPERATIONS_FEATURE
from allocator.obstacles.obstacle import Obstacle, Seen
from allocator.pools import Candidate, NodePool
from allocator.reason import Cause
from allocator.usage import DeviceUsage

_CAUSE: Final = Cause("node-operations", "node lacks a feature for the devices of {request}", rank=90)
_REFUSAL: Final = Refusal(_CAUSE)


def _skips(candidate: Candidate) -> bool:
    return bool(candidate.slice.skip_node_operations)


def _speaks(situation: Situation, _: Asked, candidate: Candidate, __: DeviceUsage) -> Refusal | None:
    if not candidate.slice.skip_node_operations:
        return None
    is_on, declared = situation.features.optional_node_operations, situation.node.declared_features
    return None if is_on and NODE_OPERATIONS_FEATURE in declared else _REFUSAL


def _obstacles(
    situation: Situation, asked: Asked, candidate: Candidate, used: DeviceUsage, _: object
) -> Iterator[Seen]:
    """The feature gate that is off, the feature that the node does not declare, or both."""
    if _speaks(situation, asked, candidate, used) is not None:
        is_declared = NODE_OPERATIONS_FEATURE in situation.node.declared_features
        yield Seen(
            Obstacle(
                _CAUSE,
                f"that need a node which declares the feature {NODE_OPERATIONS_FEATURE}",
                gate="" if situation.features.optional_node_operations else NODE_OPERATIONS_FEATURE,
                node_feature="" if is_declared else NODE_OPERATIONS_FEATURE,
            )
        )


def _words(situation: Situation, _: Candidate, __: Refusal) -> str:
    is_on = situation.features.optional_node_operations
    lacking = f"no node that reaches it declares {NODE_OPERATIONS_FEATURE}"
    return lacking if is_on else gate_off(NODE_OPERATIONS_FEATURE)


def _circumstances(view: NodePool, node: Node, _: object) -> Sequence[Hashable]:
    """Whether the node declares the feature, if devices of the pool need it."""
    return [NODE_OPERATIONS_FEATURE in node.declared_features] if "skip_node_operations" in view.fields else ()


NODE_OPERATIONS: Final = Check(
    _CAUSE,
    _speaks,
    fields=("skip_node_operations",),
    words=_words,
    obstacles=_obstacles,
    reads=_skips,
    circumstances=_circumstances,
    needs_search=_skips,
)
