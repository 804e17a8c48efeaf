"""Parts of devices: their names, attributes, capacities, counters, taints (with rules for them), and places."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from allocator.model.nodes import NodeSelector
from allocator.model.quantity import Quantity
from allocator.model.semver import Version

AttributeValue: TypeAlias = (
    bool | int | str | Version | tuple[bool, ...] | tuple[int, ...] | tuple[str, ...] | tuple[Version, ...]
)
"""One attribute. Compare with `allocator.search.constraints`, never with ``==`` alone: in Python ``True == 1``."""


class PoolId(NamedTuple):
    """A pool is named within its driver."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(NamedTuple):
    """A device is named within its pool."""

    driver: str
    pool: str
    device: str

    @property
    def pool_id(self) -> PoolId:
        """The pool that holds the device."""
        return PoolId(self.driver, self.pool)

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclass(frozen=True, slots=True)
class Placement:
    """The nodes from which devices can be reached: exactly one field is set in a valid object."""

    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False


@dataclass(frozen=True, slots=True)
class DeviceTaint:
    """A taint on a device; ``effect`` may be a value that is unknown to us (then it does not block)."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration in a request; an empty ``effect`` matches all, an empty ``key`` with Exists all keys."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class ValidRange:
    """Requests are raised to ``min``, rounded up to ``min + n * step`` and refused above ``max``."""

    min: Quantity
    max: Quantity | None = None
    step: Quantity | None = None


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """The rule for how much of a capacity one request takes (KEP-5075)."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: ValidRange | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """A capacity of a device."""

    value: Quantity
    policy: RequestPolicy | None = None


@dataclass(frozen=True, slots=True)
class CounterConsumption:
    """The consumption of one counter set of a device's pool (KEP-4815), and the device's compatibility groups there."""

    counter_set: str
    counters: Mapping[str, Quantity]
    compatibility_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeResource:
    """The part of a resource of its node, such as CPU, that a device takes (KEP-5517).

    Attributes:
        name: of the resource.
        capacity: the capacity of the device that is a part of the resource; None: the device as a whole is.
        multiplier: the amount for each unit of the capacity, or for the device; None: the device is no such part.
        per_pod: what each pod with the device takes besides; None: nothing.
        per_container: what each container with the device takes besides; None: nothing.
    """

    name: str
    capacity: str | None = None
    multiplier: Quantity | None = None
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


@dataclass(frozen=True, slots=True)
class TaintRule:
    """A DeviceTaintRule: ``taint`` on every device with the given names; None selects any.

    ``selects_none``: the rule has no device selector, which selects nothing (an empty selector selects all).
    """

    name: str
    taint: DeviceTaint
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    selects_none: bool = False
