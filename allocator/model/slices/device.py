"""A device as a value; how each of its optional fields is read, and what the API server validates of it (`FIELDS`).

Optional fields are counters that a device consumes of its pool (KEP-4815), the CPU, memory and huge pages that it
takes of its node (KEP-5517), taints (KEP-5055), binding conditions (KEP-5007), and flags: whether claims share it
(KEP-5075), and whether an allocation binds its claim to the node.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from allocator.model import field_rules as rules
from allocator.model.devices import (
    AttributeValue,
    Capacity,
    CounterConsumption,
    DeviceId,
    DeviceTaint,
    NodeResource,
    Placement,
)
from allocator.model.field_rules import binding_conditions
from allocator.model.json.common import read_taint
from allocator.model.json.interner import Interner
from allocator.model.quantity import Quantity
from allocator.tools.fields import Fields
from allocator.tools.names import dns_label


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device of a slice; compared by identity.

    The attributes that are not described here are optional fields, each with its `DeviceField` below.

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


def anything(_: Fields) -> None:
    """The API server validates nothing but the type."""


@dataclass(frozen=True, slots=True)
class DeviceField:
    """A field of a device, with its reader and its rules.

    Attributes:
        name: of the attribute of `Device`. Its default stands for a field that is absent.
        key: of the field in JSON.
        read: the value, from the fields of the device. It is called only if the key is there; the field may be null.
        check: notes what the API server would refuse. It is called as `read` is.
    """

    name: str
    key: str
    read: Callable[[Fields, Interner], object]
    check: Callable[[Fields], None] = anything


BINDING_CONDITIONS: Final = DeviceField(
    "binding_conditions",
    "bindingConditions",
    lambda device, _: device.texts_or_none("bindingConditions"),
    binding_conditions,
)
FAILURE_CONDITIONS: Final = DeviceField(
    "binding_failure_conditions",
    "bindingFailureConditions",
    lambda device, _: device.texts_or_none("bindingFailureConditions"),
    binding_conditions,
)


_MAX_COUNTERS: Final = 32
_MAX_CONSUMED_SETS: Final = 2
_MAX_GROUPS: Final = 2


def read_counters(fields: Fields, interner: Interner) -> Mapping[str, Quantity]:
    """Counter to amount, of a counter set or of what is consumed of one."""
    found = {interner.text(name): interner.read(each, "value") for name, each in fields.entries("counters", "value")}
    return interner.counters.setdefault(tuple(found.items()), found)


def check_counters(fields: Fields) -> None:
    """The counters of a counter set, or of what is consumed of one."""
    counters = fields.mapping("counters")
    if not counters:
        fields.problem("counters", "is required")
    if rules.sized(fields, "counters", len(counters), _MAX_COUNTERS):
        for name in counters:
            rules.told(fields, f"counters[{name}]", name, dns_label(name))


def _read_counters(device: Fields, interner: Interner) -> tuple[CounterConsumption, ...]:
    return tuple(_consumption(each, interner) for each in device.children("consumesCounters"))


def _consumption(fields: Fields, interner: Interner) -> CounterConsumption:
    return CounterConsumption(
        interner.text(fields.required_text("counterSet")),
        read_counters(fields, interner),
        fields.texts("compatibilityGroups"),
    )


def _check_counters(device: Fields) -> None:
    for each in rules.children(device, "consumesCounters", _MAX_CONSUMED_SETS, key="counterSet"):
        rules.text(each, "counterSet", dns_label)
        check_counters(each)
        rules.distinct_texts(each, "compatibilityGroups", _MAX_GROUPS, dns_label)


CONSUMES_COUNTERS: Final = DeviceField("consumes_counters", "consumesCounters", _read_counters, _check_counters)


SHARED: Final = DeviceField(
    "allow_multiple_allocations",
    "allowMultipleAllocations",
    lambda device, _: device.flag("allowMultipleAllocations"),
)
BINDS_TO_NODE: Final = DeviceField("binds_to_node", "bindsToNode", lambda device, _: device.flag("bindsToNode"))


HUGE_PAGES: Final = "hugepages-"
"""The prefix of a resource of huge pages; their size follows."""

_PLAIN: Final = frozenset({"cpu", "memory"})


def is_node_resource(name: str) -> bool:
    """Whether a device may take a resource of this name from its node."""
    return name in _PLAIN or name.startswith(HUGE_PAGES)


def _read_node_resources(device: Fields, interner: Interner) -> tuple[NodeResource, ...]:
    """The resources of a node that a device takes, by name."""
    found = []
    for name, each in device.entries("nodeAllocatableResources"):
        mapping, overhead = each.child("mapping"), each.child("overhead")
        capacity = mapping.text("capacityKey") or None
        found.append(
            NodeResource(
                interner.text(name),
                capacity,
                interner.read_or_none(mapping, "capacityMultiplier" if capacity else "deviceMultiplier"),
                interner.read_or_none(overhead, "perPod"),
                interner.read_or_none(overhead, "perContainer"),
            )
        )
    return tuple(sorted(found, key=lambda each: each.name))


def _check_node_resources(device: Fields) -> None:
    for name, fields in device.entries("nodeAllocatableResources"):
        if not is_node_resource(name):
            device.problem(f"nodeAllocatableResources[{name}]", "must be cpu, memory or hugepages-<size>")
        mapping, overhead = fields.child_or_none("mapping"), fields.child_or_none("overhead")
        if mapping is None and overhead is None:
            fields.problem("", "at least one of mapping and overhead is required")
        if mapping is not None:
            _mapping(mapping, device)
        if overhead is not None:
            _overhead(overhead)


def _mapping(mapping: Fields, device: Fields) -> None:
    if mapping.has("capacityKey") == mapping.has("deviceMultiplier"):
        mapping.problem("", "exactly one of capacityKey and deviceMultiplier is required")
    if mapping.has("capacityKey") != mapping.has("capacityMultiplier"):
        absent = "capacityMultiplier" if mapping.has("capacityKey") else "capacityKey"
        mapping.problem(absent, "is required: capacityKey and capacityMultiplier belong together")
    key = mapping.text("capacityKey")
    if mapping.has("capacityKey") and key not in device.mapping("capacity"):
        mapping.problem("capacityKey", f'"{key}" is not a capacity of the device')
    for name in ("capacityMultiplier", "deviceMultiplier"):
        _amount(mapping, name, lambda nano: nano > 0, "must be greater than zero")


def _overhead(overhead: Fields) -> None:
    if not overhead.has("perPod") and not overhead.has("perContainer"):
        overhead.problem("", "at least one of perPod and perContainer is required")
    for name in ("perPod", "perContainer"):
        _amount(overhead, name, lambda nano: nano >= 0, "must not be negative")


def _amount(fields: Fields, name: str, holds: Callable[[int], bool], wrong: str) -> None:
    amount = Interner().read_or_none(fields, name)
    if amount is not None and not holds(amount.nano):
        fields.problem(name, wrong)


NODE_RESOURCES: Final = DeviceField(
    "node_resources", "nodeAllocatableResources", _read_node_resources, _check_node_resources
)


_MAX_TAINTS: Final = 16


def _read_taints(device: Fields, _: object) -> tuple[DeviceTaint, ...]:
    return tuple(read_taint(each) for each in device.children("taints"))


def _check_taints(device: Fields) -> None:
    for taint in rules.children(device, "taints", _MAX_TAINTS):
        rules.taint(taint)


TAINTS: Final = DeviceField("taints", "taints", _read_taints, _check_taints)


FIELDS: Final = (
    TAINTS,
    CONSUMES_COUNTERS,
    SHARED,
    BINDS_TO_NODE,
    BINDING_CONDITIONS,
    FAILURE_CONDITIONS,
    NODE_RESOURCES,
)
"""In the order in which problems are told."""

_KEYS: Final = frozenset(each.key for each in FIELDS)


def read_fields(device: Fields, interner: Interner) -> dict[str, Any]:
    """The attributes of `Device` that a device sets; most devices set none."""
    if _KEYS.isdisjoint(device.data):
        return {}
    return {each.name: each.read(device, interner) for each in FIELDS if each.key in device.data}


def check_fields(device: Fields) -> None:
    """Note what the API server would refuse."""
    if _KEYS.isdisjoint(device.data):
        return
    for check in dict.fromkeys(each.check for each in FIELDS if each.key in device.data):
        check(device)
