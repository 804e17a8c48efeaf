"""Node selectors, with the semantics of kube-scheduler, and where devices and allocations can be reached from."""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Final

from allocator.model.allocations import AllocationResult
from allocator.model.devices import Placement
from allocator.model.nodes import Node, NodeSelector, NodeSelectorTerm, Requirement
from allocator.model.slices.device import Device
from allocator.model.slices.slice import Slice

NODE_OPERATIONS_FEATURE: Final = "DRAOptionalNodeOperations"
"""The feature that a node declares if its kubelet can skip calls to a driver. The feature gate has the same name."""

_INTEGER = re.compile(r"([-+]?)0*([0-9]{1,19})")
_TOO_LARGE = 2**63


def placement_of(origin: Slice, device: Device) -> Placement:
    """The nodes from which a device of a slice can be reached."""
    return (device.placement if origin.per_device_placement else origin.placement) or Placement()


def placement_matches(placement: Placement, node: Node) -> bool:
    """Whether the node can reach the devices. A node name goes before all nodes, all nodes before a selector."""
    if placement.node_name:
        return placement.node_name == node.name
    if placement.all_nodes:
        return True
    return placement.node_selector is not None and selector_matches(placement.node_selector, node)


def selector_matches(selector: NodeSelector, node: Node) -> bool:
    """Whether one of the selector's terms matches the node. An empty term matches no node."""
    return any(_term_matches(term, node) for term in selector.terms)


def allocation_reaches(allocation: AllocationResult, node: Node) -> bool:
    """Whether pods on the node can use what is allocated: its selector matches, and kubelet can skip what has to be."""
    if allocation.node_selector is not None and not selector_matches(allocation.node_selector, node):
        return False
    return NODE_OPERATIONS_FEATURE in node.declared_features or not _skips_operations(allocation)


def allocation_reaches_all(allocation: AllocationResult) -> bool:
    """Whether pods on any node can use what is allocated."""
    return allocation.node_selector is None and not _skips_operations(allocation)


def _skips_operations(allocation: AllocationResult) -> bool:
    return any(each.skip_node_operations for each in allocation.results)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_requirement_matches(r, node.labels) for r in term.match_expressions) and all(
        _requirement_matches(r, fields) for r in term.match_fields
    )


def _requirement_matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """An absent label satisfies NotIn and DoesNotExist only; no label satisfies an unknown operator."""
    test = _OPERATORS.get(requirement.operator)
    return test is not None and test(labels.get(requirement.key), requirement.values)


def _integer(text: str) -> int | None:
    """A decimal number of 64 bits, as Go reads it."""
    match = _INTEGER.fullmatch(text)
    number = int(match[1] + match[2]) if match else _TOO_LARGE
    return number if -_TOO_LARGE <= number < _TOO_LARGE else None


def _compares(value: str | None, bounds: tuple[str, ...], compare: Callable[[int, int], bool]) -> bool:
    if value is None or len(bounds) != 1:
        return False
    left, right = _integer(value), _integer(bounds[0])
    return left is not None and right is not None and compare(left, right)


_OPERATORS: Mapping[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compares(value, values, operator.gt),
    "Lt": lambda value, values: _compares(value, values, operator.lt),
}
