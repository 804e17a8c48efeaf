"""Claims, claim templates, device classes, taint rules, and the allocations of claims."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from allocator.model.devices import DeviceId, DeviceTaint, NodeSelector, Toleration
from allocator.model.quantity import Quantity

MAX_RESULTS: Final = 32
"""Devices in one claim (``resource.k8s.io`` AllocationResultsMaxSize); as many requests (DeviceRequestsMaxSize)."""

MAX_CONSTRAINTS: Final = 32
"""Of one claim (DeviceConstraintsMaxSize)."""

SCHEDULING_GROUP: Final = "scheduling.k8s.io"
POD_GROUPS: Final = "podgroups"
"""The API group of PodGroups, and their name as a resource."""

FROM_CLASS: Final = "FromClass"
FROM_CLAIM: Final = "FromClaim"
"""The sources of the configuration that goes with an allocation."""


@dataclass(frozen=True, slots=True)
class OpaqueConfig:
    """Configuration that only the driver reads; ``parameters`` is JSON text.

    An empty ``driver`` stands for an unknown kind of configuration.
    """

    driver: str
    parameters: str


@dataclass(frozen=True, slots=True)
class GroupResource:
    """Devices of several device classes under one name (KEP-14).

    Attributes:
        members: each device class, by name, with the number of its devices.
        match_attribute: all devices have the same value of this attribute; empty: they need not.
    """

    members: tuple[tuple[str, int], ...]
    match_attribute: str = ""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass: selectors (CEL) that each of its devices passes, and configuration.

    Attributes:
        controller: the name of the controller that decides about requests of this class; empty: we do.
        suitable_nodes: where the controller may have devices; None: on any node.
        parameters: the object that is handed to the controller; None: none is.
        group: what containers get that ask for the extended resource of the class; None: devices of the class.
    """

    name: str
    selectors: tuple[str, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
    extended_resource_name: str | None = None
    created: str = ""
    controller: str = ""
    suitable_nodes: NodeSelector | None = None
    parameters: "ParametersRef | None" = None
    group: GroupResource | None = None


@dataclass(frozen=True, slots=True)
class ParametersRef:
    """An object with parameters for a controller (KEP-3063, ``parametersRef``).

    Attributes:
        namespace: only in a class; a claim names objects of its own namespace.
    """

    api_group: str
    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        kind = f"{self.kind}.{self.api_group}" if self.api_group else self.kind
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"


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
        mode: None for an unknown value.
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
    """A request for devices: ``alternatives`` in order of preference, only one unless ``prioritized``.

    A request without alternatives has neither ``exactly`` nor ``firstAvailable``, but an unknown field.
    """

    name: str
    alternatives: tuple[DeviceRequest, ...]
    prioritized: bool = False

    def label(self, alternative: DeviceRequest) -> str:
        """What results call one of the alternatives: ``request``, or ``request/subrequest``."""
        return f"{self.name}/{alternative.name}" if self.prioritized else self.name


class ConstraintKind(Enum):
    """What a constraint demands of its attribute."""

    MATCH = "matchAttribute"
    DISTINCT = "distinctAttribute"


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """A constraint over the devices of ``requests`` (empty: all of the claim); ``kind`` is None if it is unknown."""

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
    """What a claim or a claim template asks for.

    Attributes:
        optional: the names of optional requests, as an annotation has them, the most wanted first
            (`allocator.model.optional`).
    """

    requests: tuple[Request, ...] = ()
    constraints: tuple[ConstraintSpec, ...] = ()
    configs: tuple[ClaimConfig, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def asked(self) -> tuple[tuple[Request, ...], tuple[ConstraintSpec, ...], tuple[str, ...]]:
        """What decides about devices: all but the configuration."""
        return self.requests, self.constraints, self.optional


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
    """Configuration that goes with an allocation; ``source`` is `FROM_CLASS` or `FROM_CLAIM`."""

    source: str
    opaque: OpaqueConfig
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocationResult:
    """What a claim is allocated (``status.allocation``); without ``node_selector`` it can be used on every node."""

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

    @property
    def is_pod_group(self) -> bool:
        """A PodGroup: all its pods that name the claim use it."""
        return self.resource == POD_GROUPS and self.api_group == SCHEDULING_GROUP

    def __str__(self) -> str:
        return f"{'PodGroup' if self.is_pod_group else self.resource} {self.name}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim.

    Attributes:
        owner_uid: uid of the controlling owner (the pod, for claims made from templates). None for claims of PodGroups.
        owner_name: its name.
        pod_group: the PodGroup that it was made for; its pods share it. Empty for other claims.
        deleting: a deletionTimestamp is set.
        finalizers: those who have something to do before it is gone.
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
    pod_group: str = ""
    finalizers: tuple[str, ...] = ()

    def is_reserved_for(self, pod_uid: str, pod_group: str) -> bool:
        """Whether it is reserved for a pod, or for the PodGroup of the pod: pods know only the name of their group."""
        return any(
            consumer.uid == pod_uid or (consumer.is_pod_group and consumer.name == pod_group)
            for consumer in self.reserved_for
        )

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
    """A DeviceTaintRule: ``taint`` on every device with the given names; None selects any.

    ``selects_none``: the rule has no device selector, which selects nothing (an empty selector selects all).
    """

    name: str
    taint: DeviceTaint
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    selects_none: bool = False
