"""Taints of a device (KEP-5055)."""

from typing import Final

from allocator.model import field_rules as rules
from allocator.model.devices import DeviceTaint
from allocator.model.json.common import read_taint
from allocator.model.slices.device_fields.field import DeviceField
from allocator.tools.fields import Fields

_MAX_TAINTS: Final = 16


def _read(device: Fields, _: object) -> tuple[DeviceTaint, ...]:
    return tuple(read_taint(each) for each in device.children("taints"))


def _check(device: Fields) -> None:
    for taint in rules.children(device, "taints", _MAX_TAINTS):
        rules.taint(taint)


TAINTS: Final = DeviceField("taints", "taints", _read, _check)
