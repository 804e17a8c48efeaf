"""API JSON (resource.k8s.io v1, v1beta2 and v1beta1; core/v1 Node) to values.

An object that can't be used is an `InvalidObjectError` that names all of its problems with their paths. What an
API server would refuse beyond that, `allocator.model.rules` tells.
"""

from allocator.model.json.allocations import parse_allocation_result
from allocator.model.json.claims import (
    SpecReader,
    parse_claim,
    parse_claim_spec,
    parse_claim_template,
    parse_device_class,
    parse_taint_rule,
    read_claim_spec,
)
from allocator.model.json.common import parse_node
from allocator.model.json.interner import Interner
from allocator.model.json.slices import parse_slice

__all__ = [
    "Interner",
    "SpecReader",
    "parse_allocation_result",
    "parse_claim",
    "parse_claim_spec",
    "parse_claim_template",
    "parse_device_class",
    "parse_node",
    "parse_slice",
    "parse_taint_rule",
    "read_claim_spec",
]
