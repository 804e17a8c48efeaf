"""Binding conditions of a device, and binding failure conditions (KEP-5007)."""

from typing import Final

from allocator.model.field_rules import binding_conditions
from allocator.model.slices.device_fields.field import DeviceField

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
