"""Flags of a device: whether claims share it (KEP-5075), and whether an allocation binds its claim to the node."""

from typing import Final

from allocator.model.slices.device_fields.field import DeviceField

SHARED: Final = DeviceField(
    "allow_multiple_allocations",
    "allowMultipleAllocations",
    lambda device, _: device.flag("allowMultipleAllocations"),
)
BINDS_TO_NODE: Final = DeviceField("binds_to_node", "bindsToNode", lambda device, _: device.flag("bindsToNode"))
