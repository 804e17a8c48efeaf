"""Upstream's feature gates that change what may be allocated."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

DEFAULTS_OF: Final = (1, 37)
"""The version of Kubernetes whose defaults `Features` has: major and minor."""


def _gate(name: str, *, on: bool) -> bool:
    """A field of `Features`: the gate's name in Kubernetes, and its default there."""
    return field(default=on, metadata={"gate": name})


@dataclass(frozen=True, slots=True)
class Features:
    """Which features are on. Defaults are those of Kubernetes `DEFAULTS_OF`."""

    admin_access: bool = _gate("DRAAdminAccess", on=True)
    prioritized_list: bool = _gate("DRAPrioritizedList", on=True)
    partitionable_devices: bool = _gate("DRAPartitionableDevices", on=True)
    device_taints: bool = _gate("DRADeviceTaints", on=True)
    binding_conditions: bool = _gate("DRADeviceBindingConditions", on=True)
    consumable_capacity: bool = _gate("DRAConsumableCapacity", on=True)
    fractional_capacity_range: bool = _gate("DRAFractionalCapacityRange", on=True)
    list_type_attributes: bool = _gate("DRAListTypeAttributes", on=False)
    derived_attributes: bool = _gate("DRADerivedAttributes", on=False)
    compatibility_groups: bool = _gate("DRADeviceCompatibilityGroups", on=False)
    optional_node_operations: bool = _gate("DRAOptionalNodeOperations", on=False)
    extended_resource: bool = _gate("DRAExtendedResource", on=True)
    node_resources: bool = _gate("DRANodeAllocatableResources", on=False)
    group_claims: bool = _gate("DRAWorkloadResourceClaims", on=False)


ALL_FEATURES = Features(**{each.name: True for each in fields(Features)})
"""Everything that this allocator knows."""

NO_FEATURES = Features(**{each.name: False for each in fields(Features)})
"""Core only, as Kubernetes 1.34 with every gate off."""

GATES: Mapping[str, str] = {each.metadata["gate"]: each.name for each in fields(Features)}
"""Kubernetes' name of each gate, to the field."""


def with_gates(features: Features, gates: Mapping[str, bool]) -> Features:
    """The features with some gates set by their Kubernetes names.

    Raises:
        KeyError: a gate that is not in `GATES`.
    """
    return replace(features, **{GATES[name]: on for name, on in gates.items()})
