"""Structured-parameters allocation for Dynamic Resource Allocation: the mathematics, without any I/O.

This is the whole interface of the package: what is behind it may move. `allocate` decides claims on one node, `audit`
judges allocated claims, `validate` says what an API server would refuse, and the ``parse_`` functions read API JSON.
"""

from allocator.allocate import Task, allocate
from allocator.audit.cluster import Evidence, audit, device_findings
from allocator.audit.finding import Finding
from allocator.cel import CompileError, CostLimitError, Environment, Program, compile_expression
from allocator.cel.selectors import Recent, Selectors
from allocator.checks.counters import counter_demand
from allocator.checks.inspector import Inspector, Wanted, ways_to_serve
from allocator.checks.taint_rules import NO_RULES, TaintRules
from allocator.checks.taints import BLOCKING_EFFECTS, blocking_taint, taint_text, tolerates
from allocator.equivalence.fingerprint import (
    AttributeReads,
    attribute_column,
    attribute_columns,
    attribute_reads_of,
    common_values,
    device_circumstances,
    interchangeable,
    pool_structure,
    runs_of,
)
from allocator.equivalence.single_device import Found, NotFound, Single, is_single, single_of
from allocator.errors import InvalidClaimError, NodeUnsuitableError, SearchLimitError, SelectorError
from allocator.explain.conditions import (
    ABSENT,
    ReadValues,
    conditions_of,
    value_in_words,
    values_read,
    without_condition,
)
from allocator.explain.names import nearest, nearest_attribute
from allocator.explain.obstacles import Obstacle, Seen
from allocator.model import (
    JSON,
    AllocationMode,
    AllocationResult,
    AttributeValue,
    Claim,
    ClaimSpec,
    ClaimTemplate,
    ConstraintKind,
    ConstraintSpec,
    Consumer,
    CounterConsumption,
    Device,
    DeviceClass,
    DeviceId,
    DeviceRequest,
    DeviceResult,
    DeviceTaint,
    Node,
    NodeSelector,
    Placement,
    PoolId,
    Request,
    Slice,
    TaintRule,
    Toleration,
)
from allocator.model.features import GATES, Features, with_gates
from allocator.model.json import (
    Interner,
    SpecReader,
    parse_claim,
    parse_claim_template,
    parse_device_class,
    parse_node,
    parse_slice,
    parse_taint_rule,
    read_claim_spec,
    text,
)
from allocator.model.json.common import ObjectReader, raise_if_invalid, read_node_selector, read_taint, read_tolerations
from allocator.model.json.fields import Fields, shown
from allocator.model.json.render import allocation_to_json
from allocator.model.problems import AllocatorError, InvalidObjectError, Problem
from allocator.model.quantity import Format, Quantity
from allocator.model.rules import validate
from allocator.model.rules.names import label_key
from allocator.model.semver import Version
from allocator.node_selectors import selector_matches
from allocator.outcome import Allocation, Cause, Merit, Unsatisfiable
from allocator.policies import BEST_FIT, FIRST_FIT, MAX_SCORE, POLICIES, Policy
from allocator.pools import Candidate, Inventory, NodePool, Pool
from allocator.printable import printable, printable_lines
from allocator.search.constraints import constraint_covers
from allocator.search.limits import Clock, Limits, SearchBudget
from allocator.search.plan import MAX_RESULTS
from allocator.usage import FREE, NOTHING_USED, DeviceUsage, PoolUsage, Usage

__all__ = [
    "ABSENT",
    "BEST_FIT",
    "BLOCKING_EFFECTS",
    "FIRST_FIT",
    "FREE",
    "GATES",
    "JSON",
    "MAX_RESULTS",
    "MAX_SCORE",
    "NOTHING_USED",
    "NO_RULES",
    "POLICIES",
    "Allocation",
    "AllocationMode",
    "AllocationResult",
    "AllocatorError",
    "AttributeReads",
    "AttributeValue",
    "Candidate",
    "Cause",
    "Claim",
    "ClaimSpec",
    "ClaimTemplate",
    "Clock",
    "CompileError",
    "ConstraintKind",
    "ConstraintSpec",
    "Consumer",
    "CostLimitError",
    "CounterConsumption",
    "Device",
    "DeviceClass",
    "DeviceId",
    "DeviceRequest",
    "DeviceResult",
    "DeviceTaint",
    "DeviceUsage",
    "Environment",
    "Evidence",
    "Features",
    "Fields",
    "Finding",
    "Format",
    "Found",
    "Inspector",
    "Interner",
    "InvalidClaimError",
    "InvalidObjectError",
    "Inventory",
    "Limits",
    "Merit",
    "Node",
    "NodePool",
    "NodeSelector",
    "NodeUnsuitableError",
    "NotFound",
    "ObjectReader",
    "Obstacle",
    "Placement",
    "Policy",
    "Pool",
    "PoolId",
    "PoolUsage",
    "Problem",
    "Program",
    "Quantity",
    "ReadValues",
    "Recent",
    "Request",
    "SearchBudget",
    "SearchLimitError",
    "Seen",
    "SelectorError",
    "Selectors",
    "Single",
    "Slice",
    "SpecReader",
    "TaintRule",
    "TaintRules",
    "Task",
    "Toleration",
    "Unsatisfiable",
    "Usage",
    "Version",
    "Wanted",
    "allocate",
    "allocation_to_json",
    "attribute_column",
    "attribute_columns",
    "attribute_reads_of",
    "audit",
    "blocking_taint",
    "common_values",
    "compile_expression",
    "conditions_of",
    "constraint_covers",
    "counter_demand",
    "device_circumstances",
    "device_findings",
    "interchangeable",
    "is_single",
    "label_key",
    "nearest",
    "nearest_attribute",
    "parse_claim",
    "parse_claim_template",
    "parse_device_class",
    "parse_node",
    "parse_slice",
    "parse_taint_rule",
    "pool_structure",
    "printable",
    "printable_lines",
    "raise_if_invalid",
    "read_claim_spec",
    "read_node_selector",
    "read_taint",
    "read_tolerations",
    "runs_of",
    "selector_matches",
    "shown",
    "single_of",
    "taint_text",
    "text",
    "tolerates",
    "validate",
    "value_in_words",
    "values_read",
    "ways_to_serve",
    "with_gates",
    "without_condition",
]
