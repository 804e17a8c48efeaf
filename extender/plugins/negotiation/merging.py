"""One allocation of a claim from two: what our search has found, and what its controller has allocated."""

from dataclasses import replace
from itertools import product

from allocator import AllocationResult, Node, NodeSelector, NodeSelectorTerm, Requirement, allocation_reaches


def merged(ours: AllocationResult, theirs: AllocationResult) -> AllocationResult:
    """The devices and the configuration of both. The claim can be used on the nodes that both selectors match."""
    return replace(
        ours,
        results=(*ours.results, *theirs.results),
        configs=(*ours.configs, *theirs.configs),
        node_selector=_both(ours.node_selector, theirs.node_selector),
    )


def only_on(node: Node, allocation: AllocationResult) -> AllocationResult:
    """The allocation while the controller is asked: for one node only."""
    here = NodeSelectorTerm(match_fields=(Requirement("metadata.name", "In", (node.name,)),))
    return replace(allocation, node_selector=NodeSelector((here,)))


def is_for(allocation: AllocationResult, node: Node) -> bool:
    """Whether a node can use an allocation."""
    return allocation_reaches(allocation, node)


def _both(one: NodeSelector | None, other: NodeSelector | None) -> NodeSelector | None:
    if one is None or other is None:
        return one or other
    # A term without requirements matches no node, and so does its combination with another term.
    terms = [pair for pair in product(one.terms, other.terms) if all(map(_is_open, pair))]
    return NodeSelector(
        tuple(
            NodeSelectorTerm(
                tuple(dict.fromkeys((*a.match_expressions, *b.match_expressions))),
                tuple(dict.fromkeys((*a.match_fields, *b.match_fields))),
            )
            for a, b in terms
        )
    )


def _is_open(term: NodeSelectorTerm) -> bool:
    return bool(term.match_expressions or term.match_fields)
