"""The values that the allocator reasons about: frozen, slotted, hashable where they are keys.

Shapes follow `resource.k8s.io/v1`. Older API versions parse into the same values (`allocator.model.json`).
Names of attributes are always qualified (``domain/name``); names of capacities stay as published, because
results repeat them. All mappings are read-only by convention and may be shared between values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from allocator.model.quantity import Quantity
from allocator.model.semver import Version

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

AttributeValue: TypeAlias = (
    bool | int | str | Version | tuple[bool, ...] | tuple[int, ...] | tuple[str, ...] | tuple[Version, ...]
)
"""One attribute. Compare with `allocator.search.constraints`, never with ``==`` alone: in Python ``True == 1``."""


class PoolId(NamedTuple):
    """A pool is named within its driver."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(NamedTuple):
    """A device is named within its pool."""

    driver: str
    pool: str
    device: str

    @property
    def pool_id(self) -> PoolId:
        """The pool that holds the device."""
        return PoolId(self.driver, self.pool)

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


# --- nodes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a node selector term; ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """All requirements must hold; a term without any requirement matches nothing."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """One of the terms must match."""

    terms: tuple[NodeSelectorTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """What allocation needs to know of a node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    declared_features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Placement:
    """Where devices can be reached from: exactly one field is set in a valid object."""

    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False


# --- devices -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceTaint:
    """A taint on a device; ``effect`` may be a value that is unknown to us (then it does not block)."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration in a request; an empty ``effect`` matches all, an empty ``key`` with Exists all keys."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class ValidRange:
    """Requests are raised to ``min``, rounded up to ``min + n * step`` and refused above ``max``."""

    min: Quantity
    max: Quantity | None = None
    step: Quantity | None = None


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How much of a capacity one request takes (KEP-5075)."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: ValidRange | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """A capacity of a device."""

    value: Quantity
    policy: RequestPolicy | None = None


@dataclass(frozen=True, slots=True)
class CounterConsumption:
    """What a device takes from one counter set of its pool (KEP-4815), and with whom it may share it."""

    counter_set: str
    counters: Mapping[str, Quantity]
    compatibility_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device of a slice; two devices are the same only if they are one object.

    Attributes:
        attributes: qualified name to value; names without a domain live in the driver's domain.
        capacity: name as published to capacity.
        quantities: qualified name to the capacity's value, as CEL sees it.
        placement: set only in slices with ``perDeviceNodeSelection``.
        binding_conditions: None when the field is absent, which decides the order of pools.
    """

    id: DeviceId
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    quantities: Mapping[str, Quantity] = field(default_factory=dict)
    consumes_counters: tuple[CounterConsumption, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    placement: Placement | None = None
    allow_multiple_allocations: bool = False
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None

    @property
    def driver(self) -> str:
        """The driver's name, as CEL sees it."""
        return self.id.driver


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A ResourceSlice: part of one generation of a pool. Either devices or counter sets, in valid objects.

    Attributes:
        slice_count: how many slices the pool of this generation has (``resourceSliceCount``).
        placement: None when each device has its own (``perDeviceNodeSelection``) or nothing known is set.
        counter_sets: counter set to counter to its value (``sharedCounters``), in the order published.
        created: when it was created, RFC 3339; empty if unknown.
        revision: counts from 1 what its publisher has changed since (``metadata.generation``).
    """

    name: str
    pool: PoolId
    generation: int = 1
    slice_count: int = 1
    placement: Placement | None = None
    per_device_placement: bool = False
    devices: tuple[Device, ...] = ()
    counter_sets: tuple[tuple[str, Mapping[str, Quantity]], ...] = ()
    skip_node_operations: tuple[str, ...] = ()
    created: str = ""
    revision: int = 1


@dataclass(frozen=True, slots=True)
class OpaqueConfig:
    """Configuration for a driver, which nobody else reads. ``parameters`` is JSON text, so that it hashes.

    With an empty ``driver`` it stands for a kind of configuration that is unknown to us.
    """

    driver: str
    parameters: str


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass: selectors (CEL) that each of its devices passes, and configuration."""

    name: str
    selectors: tuple[str, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
    extended_resource_name: str | None = None
    created: str = ""


# --- claims ------------------------------------------------------------------------------------------------


class AllocationMode(Enum):
    """How many devices a request takes."""

    EXACT_COUNT = "ExactCount"
    ALL = "All"


@dataclass(frozen=True, slots=True)
class DerivedAttribute:
    """An attribute that a request computes for its constraints (KEP-6080)."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One way to satisfy a request: the ``exactly`` part, or an entry of ``firstAvailable``.

    Attributes:
        name: empty for ``exactly``, the subrequest's name otherwise.
        mode: None where the object has a value that is unknown to us.
        capacity: name of a capacity, as in the claim, to the amount; None when the field is absent.
    """

    device_class: str
    name: str = ""
    selectors: tuple[str, ...] = ()
    mode: AllocationMode | None = AllocationMode.EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: tuple[tuple[str, Quantity], ...] | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A request for devices: ``alternatives`` in order of preference, just one unless ``prioritized``.

    A request with no alternatives has neither ``exactly`` nor ``firstAvailable``: a field unknown to us.
    """

    name: str
    alternatives: tuple[DeviceRequest, ...]
    prioritized: bool = False


class ConstraintKind(Enum):
    """What a constraint demands of its attribute."""

    MATCH = "matchAttribute"
    DISTINCT = "distinctAttribute"


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """A constraint over the devices of ``requests`` (empty: all of the claim). ``kind`` None: unknown to us."""

    kind: ConstraintKind | None
    attribute: str = ""
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimConfig:
    """Configuration in a claim for ``requests`` (empty: all)."""

    opaque: OpaqueConfig
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """What a claim or a claim template asks for. Equal specs are one shape to the allocator."""

    requests: tuple[Request, ...] = ()
    constraints: tuple[ConstraintSpec, ...] = ()
    configs: tuple[ClaimConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """One device of an allocation.

    Attributes:
        request: name of the request, or ``request/subrequest``.
        admin_access: None when the field is absent.
        share_id: set for devices with ``allowMultipleAllocations``; unique per device.
        consumed_capacity: name as published to amount; None when the device is not shared.
    """

    request: str
    device: DeviceId
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    share_id: str | None = None
    consumed_capacity: Mapping[str, Quantity] | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    skip_node_operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocatedConfig:
    """Configuration that goes with an allocation; ``source`` is FromClass or FromClaim."""

    source: str
    opaque: OpaqueConfig
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocationResult:
    """What a claim got (``status.allocation``); ``node_selector`` None: usable from every node."""

    results: tuple[DeviceResult, ...] = ()
    configs: tuple[AllocatedConfig, ...] = ()
    node_selector: NodeSelector | None = None
    timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class Consumer:
    """An entry of ``status.reservedFor``."""

    resource: str
    name: str
    uid: str
    api_group: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim.

    Attributes:
        owner_uid: uid of the controlling owner (the pod, for claims made from templates).
        owner_name: its name.
        deleting: a deletionTimestamp is set.
    """

    namespace: str
    name: str
    uid: str
    spec: ClaimSpec
    allocation: AllocationResult | None = None
    reserved_for: tuple[Consumer, ...] = ()
    owner_uid: str | None = None
    deleting: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner_name: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClaimTemplate:
    """A ResourceClaimTemplate; ``labels`` and ``annotations`` are those of the claims made from it."""

    namespace: str
    name: str
    spec: ClaimSpec
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaintRule:
    """A DeviceTaintRule: ``taint`` on every device that the given names select; None selects any.

    ``selects_none``: the rule has no device selector at all, which selects nothing (an empty one selects all).
    """

    name: str
    taint: DeviceTaint
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    selects_none: bool = False
