"""A scenario: what nodes have and what pods ask for, as plain values. API objects and bounds are made from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Value: TypeAlias = str | int | bool

CounterKey: TypeAlias = tuple[str, str]
"""A counter set and a counter."""

_NONE: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a node.

    Attributes:
        attributes: as the driver publishes them; a name without a domain belongs to the driver's domain.
        capacity: amounts in base units, e.g. bytes.
        counters: what the device consumes.
        shared: several claims may use it at once, each a part of its capacity.
    """

    name: str
    driver: str
    attributes: Mapping[str, Value] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[CounterKey, int] = field(default_factory=dict)
    shared: bool = False

    def value(self, attribute: str) -> Value | None:
        """The value of an attribute, by its name with the domain; None: the device does not have it."""
        domain, _, own = attribute.partition("/")
        return self.attributes.get(attribute, self.attributes.get(own) if domain == self.driver else None)


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """What a node has; nodes that have the same share one machine.

    Attributes:
        devices: in the order in which the driver publishes them.
        counters: what each counter of each counter set has.
        units: how much a node counts for in percentages.
    """

    model: str
    devices: tuple[Device, ...]
    units: int
    counters: Mapping[CounterKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Class:
    """A device class: the devices of a driver, or those of one type.

    Attributes:
        kind: value of the driver's attribute ``type``; empty: any.
    """

    name: str
    driver: str
    kind: str = ""

    def has(self, device: Device) -> bool:
        """Whether a device belongs to it."""
        return device.driver == self.driver and (not self.kind or device.value(f"{self.driver}/type") == self.kind)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request of a pod's claim.

    Attributes:
        least: the least that a device must have of each capacity.
        share: what it takes of a shared device; all of a capacity that is not named.
    """

    name: str
    of: Class
    count: int = 1
    least: Mapping[str, int] = field(default_factory=dict)
    share: Mapping[str, int] = field(default_factory=dict)

    def suits(self, device: Device) -> bool:
        """Whether the request could have this device of an empty node."""
        enough = all(
            device.capacity.get(name, 0) >= amount for name, amount in (*self.least.items(), *self.share.items())
        )
        return enough and self.of.has(device)


@dataclass(frozen=True, slots=True)
class PodKind:
    """Pods that ask for the same.

    Attributes:
        weight: how often such a pod comes, beside the weights of the other kinds.
        size: how much it counts for in percentages, in the units of `Machine.units`.
        asks: the requests of its claim.
        match: an attribute, with its domain, in which all its devices agree; empty: none.
    """

    name: str
    weight: int
    size: int
    asks: tuple[Ask, ...]
    match: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Nodes and pods of a trace of ours.

    Attributes:
        machines: the nodes have them in equal shares.
    """

    name: str
    machines: tuple[Machine, ...]
    kinds: tuple[PodKind, ...]

    @property
    def classes(self) -> tuple[Class, ...]:
        """All device classes."""
        return tuple(dict.fromkeys(ask.of for kind in self.kinds for ask in kind.asks))

    @property
    def mean_size(self) -> float:
        """The mean size of a pod."""
        return sum(kind.size * kind.weight for kind in self.kinds) / sum(kind.weight for kind in self.kinds)
