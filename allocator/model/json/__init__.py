"""API JSON (resource.k8s.io v1, v1beta2 and v1beta1; core/v1 Node) to values.

An object that can't be used is an `InvalidObjectError` that names all of its problems with their paths. What an
API server would refuse beyond that, `allocator.model.validation` tells.
"""

from allocator.model.json.allocations import allocation_or_none as allocation_or_none
from allocator.model.json.claims import SpecReader as SpecReader
from allocator.model.json.claims import read_claim_spec as read_claim_spec
from allocator.model.json.common import read_node_selector as read_node_selector
from allocator.model.json.common import read_taint as read_taint
from allocator.model.json.common import read_tolerations as read_tolerations
from allocator.model.json.device_classes import AVAILABLE as AVAILABLE
from allocator.model.json.device_classes import CONTROLLER as CONTROLLER
from allocator.model.json.device_classes import IN_SIMULATIONS as IN_SIMULATIONS
from allocator.model.json.device_classes import MATCH_ATTRIBUTE as MATCH_ATTRIBUTE
from allocator.model.json.device_classes import MEMBERS as MEMBERS
from allocator.model.json.device_classes import PARAMETERS_REF as PARAMETERS_REF
from allocator.model.json.device_classes import SUITABLE_NODES as SUITABLE_NODES
from allocator.model.json.device_classes import ParametersRefError as ParametersRefError
from allocator.model.json.device_classes import parameters_ref as parameters_ref
from allocator.model.json.device_classes import read_match_attribute as read_match_attribute
from allocator.model.json.device_classes import read_members as read_members
from allocator.model.json.interner import Interner as Interner
