"""Upstream's feature gates that change what may be allocated; each can be switched by its own name."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Features:
    """Which features are on. Defaults are those of Kubernetes 1.37."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    fractional_capacity_range: bool = True
    list_type_attributes: bool = False
    derived_attributes: bool = False
    compatibility_groups: bool = False
    optional_node_operations: bool = False
    extended_resource: bool = True


ALL_FEATURES = Features(**{field.name: True for field in fields(Features)})
"""Everything that this allocator knows."""

NO_FEATURES = Features(**{field.name: False for field in fields(Features)})
"""Core only, as Kubernetes 1.34 with every gate off."""

GATES: Mapping[str, str] = {
    "DRAAdminAccess": "admin_access",
    "DRAPrioritizedList": "prioritized_list",
    "DRAPartitionableDevices": "partitionable_devices",
    "DRADeviceTaints": "device_taints",
    "DRADeviceBindingConditions": "binding_conditions",
    "DRAConsumableCapacity": "consumable_capacity",
    "DRAFractionalCapacityRange": "fractional_capacity_range",
    "DRAListTypeAttributes": "list_type_attributes",
    "DRADerivedAttributes": "derived_attributes",
    "DRADeviceCompatibilityGroups": "compatibility_groups",
    "DRAOptionalNodeOperations": "optional_node_operations",
    "DRAExtendedResource": "extended_resource",
}
"""Kubernetes' name of each gate."""


def with_gates(features: Features, gates: Mapping[str, bool]) -> Features:
    """The features with some gates set by their Kubernetes names.

    Raises:
        KeyError: a gate that is not in `GATES`.
    """
    return replace(features, **{GATES[name]: on for name, on in gates.items()})
