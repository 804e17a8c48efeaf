"""Allocation results, as in the status of a claim; the same in all versions."""

from allocator.model.allocations import AllocationResult, DeviceResult
from allocator.model.configuration import AllocatedConfig
from allocator.model.devices import DeviceId
from allocator.model.json.common import node_selector_or_none, opaque, read_tolerations
from allocator.model.json.interner import Interner
from allocator.tools.fields import Fields


def allocation_or_none(status: Fields, name: str) -> AllocationResult | None:
    """The result in a field, or None if it is absent."""
    fields = status.child_or_none(name)
    return None if fields is None else _allocation(fields)


def _allocation(fields: Fields) -> AllocationResult:
    devices, interner = fields.child("devices"), Interner()
    return AllocationResult(
        results=tuple(_result(result, interner) for result in devices.children("results")),
        configs=tuple(
            AllocatedConfig(config.required_text("source"), opaque(config), config.texts("requests"))
            for config in devices.children("config")
        ),
        node_selector=node_selector_or_none(fields, "nodeSelector"),
        timestamp=fields.time_or_none("allocationTimestamp"),
    )


def _result(fields: Fields, interner: Interner) -> DeviceResult:
    return DeviceResult(
        request=fields.required_text("request"),
        device=DeviceId(*(fields.required_text(part) for part in ("driver", "pool", "device"))),
        admin_access=fields.flag_or_none("adminAccess"),
        tolerations=read_tolerations(fields),
        share_id=fields.text_or_none("shareID"),
        consumed_capacity=interner.read_map(fields, "consumedCapacity") if fields.has("consumedCapacity") else None,
        binding_conditions=fields.texts_or_none("bindingConditions"),
        binding_failure_conditions=fields.texts_or_none("bindingFailureConditions"),
        skip_node_operations=fields.texts("skipNodeOperations"),
    )
