"""Optional node operations (KEP-5328): devices of drivers that do without some of the kubelet's calls."""

from collections.abc import Hashable, Sequence

from allocator.check import Check, Refusal
from allocator.model import Node
from allocator.outcome import Cause
from allocator.pools import Candidate, NodePool
from allocator.usage import DeviceUsage

NODE_OPERATIONS_FEATURE = "DRAOptionalNodeOperations"
"""What a node declares that can do without some of the calls to a driver."""

_REFUSAL = Refusal(Cause.NODE_OPERATIONS)


class NodeOperationsCheck(Check):
    """Can the node do without the calls that the slice skips?"""

    __slots__ = ("_is_able", "_is_declared")
    cause = Cause.NODE_OPERATIONS
    subject = NODE_OPERATIONS_FEATURE

    def __init__(self, node: Node, *, is_on: bool) -> None:
        self._is_declared = NODE_OPERATIONS_FEATURE in node.declared_features
        self._is_able = is_on and self._is_declared

    def speaks(self, candidate: Candidate, _: DeviceUsage, /) -> Refusal | None:
        """Its slice skips calls, and the node cannot do without them."""
        return _REFUSAL if candidate.slice.skip_node_operations and not self._is_able else None

    @staticmethod
    def reads(candidate: Candidate, /) -> Hashable:
        """Whether calls are skipped."""
        return bool(candidate.slice.skip_node_operations)

    def circumstances(self, view: NodePool, /) -> Sequence[Hashable]:
        """What the node declares, if devices of the pool ask for it."""
        return [self._is_declared] if any(map(self.needs_search, view.candidates)) else ()

    @staticmethod
    def needs_search(candidate: Candidate, /) -> bool:
        """Where calls are skipped, nodes with the same devices differ."""
        return bool(candidate.slice.skip_node_operations)
