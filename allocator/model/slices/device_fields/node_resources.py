"""The CPU, memory and huge pages that a device takes of its node (KEP-5517).

Source of the rules: pkg/apis/resource/validation, Kubernetes 1.37.
"""

from collections.abc import Callable
from typing import Final

from allocator.model.devices import NodeResource
from allocator.model.json.interner import Interner
from allocator.model.slices.device_fields.field import DeviceField
from allocator.tools.fields import Fields

HUGE_PAGES: Final = "hugepages-"
"""The prefix of a resource of huge pages; their size follows."""

_PLAIN: Final = frozenset({"cpu", "memory"})


def is_node_resource(name: str) -> bool:
    """Whether a device may take a resource of this name from its node."""
    return name in _PLAIN or name.startswith(HUGE_PAGES)


def _read(device: Fields, interner: Interner) -> tuple[NodeResource, ...]:
    """By the name of the resource."""
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


def _check(device: Fields) -> None:
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


NODE_RESOURCES: Final = DeviceField("node_resources", "nodeAllocatableResources", _read, _check)
