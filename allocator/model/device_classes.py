"""Device classes, and the objects with parameters that controllers of their devices are given."""

from dataclasses import dataclass

from allocator.model.allocations import OpaqueConfig
from allocator.model.nodes import NodeSelector


@dataclass(frozen=True, slots=True)
class ParametersRef:
    """An object with parameters for a controller (KEP-3063, ``parametersRef``).

    Attributes:
        namespace: only in a class; a claim names objects of its own namespace.
    """

    api_group: str
    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        kind = f"{self.kind}.{self.api_group}" if self.api_group else self.kind
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"


@dataclass(frozen=True, slots=True)
class GroupResource:
    """Devices of several device classes under one name (KEP-14).

    Attributes:
        members: each device class, by name, with the number of its devices.
        match_attribute: all devices have the same value of this attribute; empty: they need not.
    """

    members: tuple[tuple[str, int], ...]
    match_attribute: str = ""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass: selectors (CEL) that each of its devices passes, and configuration.

    Attributes:
        controller: the name of the controller that decides about requests of this class; empty: we do.
        suitable_nodes: where the controller may have devices; None: on any node.
        parameters: the object that is handed to the controller; None: none is.
        available_in_simulations: simulations that cannot ask the controller take it that each request can be served.
        group: what containers get that ask for the extended resource of the class; None: devices of the class.
    """

    name: str
    selectors: tuple[str, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
    extended_resource_name: str | None = None
    created: str = ""
    controller: str = ""
    suitable_nodes: NodeSelector | None = None
    parameters: ParametersRef | None = None
    available_in_simulations: bool = False
    group: GroupResource | None = None
