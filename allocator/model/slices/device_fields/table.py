"""The table of a device's optional fields.

A new field of devices needs an attribute of `allocator.model.devices.Device` with its default, a module here that reads
and validates it, and its name in this table. `allocator/model/validation/fields.json`, which is made from Kubernetes'
OpenAPI, has to know the field, or manifests with it are refused. If the field can speak against a device, it also needs
a check (`allocator.checks.table`). If the result of a claim carries the field, it needs its place in
`model.json.allocations` and `model.json.render`.
"""

from typing import Any, Final

from allocator.model.json.interner import Interner
from allocator.model.slices.device_fields.binding_conditions import BINDING_CONDITIONS, FAILURE_CONDITIONS
from allocator.model.slices.device_fields.counters import CONSUMES_COUNTERS
from allocator.model.slices.device_fields.flags import BINDS_TO_NODE, SHARED
from allocator.model.slices.device_fields.node_resources import NODE_RESOURCES
from allocator.model.slices.device_fields.taints import TAINTS
from allocator.tools.fields import Fields

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
