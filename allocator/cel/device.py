"""A device as CEL sees it."""

from collections.abc import Mapping

from allocator.cel.values import DefaultMap, TextMap, Value
from allocator.model.devices import Device


def domains(values: Mapping[str, Value]) -> DefaultMap:
    """Values by qualified name as a map of domains; an unknown domain is an empty map."""
    found = DefaultMap()
    for qualified, value in values.items():
        domain, _, name = qualified.partition("/")
        found.setdefault(domain, TextMap())[name] = value
    return found


def device_value(device: Device) -> dict[str, Value]:
    """The whole variable ``device``."""
    return {
        "driver": device.driver,
        "attributes": domains(device.attributes),
        "capacity": domains(device.quantities),
        "allowMultipleAllocations": device.allow_multiple_allocations,
    }
