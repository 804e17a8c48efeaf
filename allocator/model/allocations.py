"""The allocation of a claim: its devices, the nodes where they can be used, and the configuration that goes with them.

Configuration is that of classes, claims and allocations. Only drivers read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from allocator.model.devices import DeviceId, Toleration
from allocator.model.nodes import NodeSelector
from allocator.model.quantity import Quantity

FROM_CLASS: Final = "FromClass"
FROM_CLAIM: Final = "FromClaim"
"""The sources of the configuration that goes with an allocation."""


@dataclass(frozen=True, slots=True)
class OpaqueConfig:
    """Configuration that only the driver reads; ``parameters`` is JSON text.

    An empty ``driver`` stands for an unknown kind of configuration.
    """

    driver: str
    parameters: str


@dataclass(frozen=True, slots=True)
class ClaimConfig:
    """Configuration in a claim for ``requests`` (empty: all)."""

    opaque: OpaqueConfig
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocatedConfig:
    """Configuration that goes with an allocation; ``source`` is `FROM_CLASS` or `FROM_CLAIM`."""

    source: str
    opaque: OpaqueConfig
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """One device of an allocation.

    Attributes:
        request: name of the request, or ``request/subrequest``.
        admin_access: None when the field is absent.
        share_id: set for devices with ``allowMultipleAllocations``; unique per device.
        consumed_capacity: name as published to amount; None when the device is not shared.
    """

    request: str
    device: DeviceId
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    share_id: str | None = None
    consumed_capacity: Mapping[str, Quantity] | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    skip_node_operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocationResult:
    """The allocation of a claim (``status.allocation``); without ``node_selector`` it can be used on every node."""

    results: tuple[DeviceResult, ...] = ()
    configs: tuple[AllocatedConfig, ...] = ()
    node_selector: NodeSelector | None = None
    timestamp: str | None = None
