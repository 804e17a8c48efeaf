"""Slices as drivers publish them: devices, attributes, capacities, counters, taints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from allocator.model.nodes import NodeSelector
from allocator.model.quantity import Quantity
from allocator.model.semver import Version

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


@dataclass(frozen=True, slots=True)
class Placement:
    """Where devices can be reached from: exactly one field is set in a valid object."""

    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False


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
    """What a device consumes of one counter set of its pool (KEP-4815), and its compatibility groups there."""

    counter_set: str
    counters: Mapping[str, Quantity]
    compatibility_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeResource:
    """What a device takes of a resource of its node, such as its CPU (KEP-5517).

    Attributes:
        name: of the resource.
        capacity: the capacity of the device that is a part of the resource; None: the device as a whole is.
        multiplier: the amount for each unit of the capacity, or for the device; None: the device is no such part.
        per_pod: what each pod with the device takes besides; None: nothing.
        per_container: what each container with the device takes besides; None: nothing.
    """

    name: str
    capacity: str | None = None
    multiplier: Quantity | None = None
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device of a slice; compared by identity.

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
    node_resources: tuple[NodeResource, ...] = ()

    @property
    def driver(self) -> str:
        """The driver's name, as CEL sees it."""
        return self.id.driver


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A ResourceSlice: part of one generation of a pool. Either devices or counter sets, in valid objects.

    Attributes:
        slice_count: how many slices the pool of this generation has (``resourceSliceCount``).
        placement: None if each device has its own (``perDeviceNodeSelection``), or no known field is set.
        counter_sets: each counter set with its counters and their values (``sharedCounters``), in the order published.
        partition_type: the attribute that groups the partitions of the slice (``partitionTypeAttribute``); empty: none.
        created: when it was created, RFC 3339; empty if unknown.
        revision: ``metadata.generation``: 1, and 1 more for each change by its publisher.
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
    partition_type: str = ""
    created: str = ""
    revision: int = 1

    def placement_of(self, device: Device) -> Placement:
        """Where a device of the slice can be reached from."""
        return (device.placement if self.per_device_placement else self.placement) or Placement()
