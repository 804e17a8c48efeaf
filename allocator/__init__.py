"""Structured-parameters allocation for Dynamic Resource Allocation: the mathematics, without any I/O.

`allocate` decides claims on one node; the ``parse_`` functions read API JSON. Besides these names, some rooms are open:
`audit` judges allocated claims, `model.validation` says what an API server would refuse, `policies` and `cel` have what
their names say, and the others serve those who decide about many nodes or explain decisions. What is behind these doors
may move.
"""

from allocator.allocate import Task as Task
from allocator.allocate import allocate as allocate
from allocator.cel.selectors import Selectors as Selectors
from allocator.class_members import ClassMembers as ClassMembers
from allocator.errors import STOPPED as STOPPED
from allocator.errors import InvalidClaimError as InvalidClaimError
from allocator.errors import NodeUnsuitableError as NodeUnsuitableError
from allocator.errors import SearchLimitError as SearchLimitError
from allocator.errors import SelectorError as SelectorError
from allocator.errors import missing_class as missing_class
from allocator.model.allocations import FROM_CLAIM as FROM_CLAIM
from allocator.model.allocations import FROM_CLASS as FROM_CLASS
from allocator.model.allocations import AllocatedConfig as AllocatedConfig
from allocator.model.allocations import AllocationResult as AllocationResult
from allocator.model.allocations import DeviceResult as DeviceResult
from allocator.model.claims import MAX_CONSTRAINTS as MAX_CONSTRAINTS
from allocator.model.claims import MAX_RESULTS as MAX_RESULTS
from allocator.model.claims import AllocationMode as AllocationMode
from allocator.model.claims import Claim as Claim
from allocator.model.claims import ClaimSpec as ClaimSpec
from allocator.model.claims import ClaimTemplate as ClaimTemplate
from allocator.model.claims import ConstraintKind as ConstraintKind
from allocator.model.claims import ConstraintSpec as ConstraintSpec
from allocator.model.claims import Consumer as Consumer
from allocator.model.claims import DeviceRequest as DeviceRequest
from allocator.model.claims import Request as Request
from allocator.model.device_classes import DeviceClass as DeviceClass
from allocator.model.device_classes import GroupResource as GroupResource
from allocator.model.device_classes import ParametersRef as ParametersRef
from allocator.model.devices import AttributeValue as AttributeValue
from allocator.model.devices import CounterConsumption as CounterConsumption
from allocator.model.devices import DeviceId as DeviceId
from allocator.model.devices import DeviceTaint as DeviceTaint
from allocator.model.devices import NodeResource as NodeResource
from allocator.model.devices import Placement as Placement
from allocator.model.devices import PoolId as PoolId
from allocator.model.devices import TaintRule as TaintRule
from allocator.model.devices import Toleration as Toleration
from allocator.model.features import DEFAULTS_OF as DEFAULTS_OF
from allocator.model.features import GATES as GATES
from allocator.model.features import NO_FEATURES as NO_FEATURES
from allocator.model.features import Features as Features
from allocator.model.features import with_gates as with_gates
from allocator.model.json.allocations import allocation_to_json as allocation_to_json
from allocator.model.json.claims import parse_claim as parse_claim
from allocator.model.json.claims import parse_claim_template as parse_claim_template
from allocator.model.json.common import parse_node as parse_node
from allocator.model.json.device_classes import parse_device_class as parse_device_class
from allocator.model.json.device_classes import parse_taint_rule as parse_taint_rule
from allocator.model.nodes import Node as Node
from allocator.model.nodes import NodeSelector as NodeSelector
from allocator.model.nodes import NodeSelectorTerm as NodeSelectorTerm
from allocator.model.nodes import Requirement as Requirement
from allocator.model.quantity import Quantity as Quantity
from allocator.model.semver import Version as Version
from allocator.model.slices.device import HUGE_PAGES as HUGE_PAGES
from allocator.model.slices.device import Device as Device
from allocator.model.slices.device import is_node_resource as is_node_resource
from allocator.model.slices.reading import parse_slice as parse_slice
from allocator.model.slices.slice import Slice as Slice
from allocator.node_selectors import allocation_reaches as allocation_reaches
from allocator.node_selectors import allocation_reaches_all as allocation_reaches_all
from allocator.node_selectors import selector_matches as selector_matches
from allocator.outcome import Allocation as Allocation
from allocator.outcome import LeftOut as LeftOut
from allocator.outcome import Unsatisfiable as Unsatisfiable
from allocator.pools import Inventory as Inventory
from allocator.reason import Reason as Reason
from allocator.search.limits import Clock as Clock
from allocator.search.limits import Limits as Limits
from allocator.tools.fields import AllocatorError as AllocatorError
from allocator.tools.fields import InvalidObjectError as InvalidObjectError
from allocator.tools.fields import Problem as Problem
from allocator.usage import Usage as Usage
