"""Values of CEL in Python: their types, names and sizes.

| CEL | Python |
|---|---|
| bool, int, double, string, bytes, null | bool, int, float, str, bytes, None |
| uint | `UInt`, a subclass of int |
| list, map | tuple, dict (other keys than ints and strings are `Key`, because in Python ``True == 1``) |
| timestamp, duration | `Timestamp`, `Duration`, in nanoseconds |
| type, optional_type | `TypeValue`, `OptionalValue` |
| Quantity | `Quantity` of a device, `Amount` of an expression |
| Semver | `allocator.model.semver.Version` |
| IP, CIDR, URL, NamedFormat | `Address`, `Network`, `Url`, `NamedFormat` |
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final, TypeAlias

from allocator.cel.amounts import Amount, Computed
from allocator.model.quantity import Quantity
from allocator.model.semver import Version

Value: TypeAlias = Any
"""A value of CEL; see the module's table."""

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class UInt(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """Nanoseconds since 1970-01-01T00:00:00Z."""

    nanos: int


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time in nanoseconds."""

    nanos: int


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: ``type(1) == int``."""

    name: str


@dataclass(frozen=True, slots=True)
class OptionalValue:
    """``optional.of(value)``, or ``optional.none()`` where ``present`` is false."""

    present: bool
    value: Value = None


NONE: Final = OptionalValue(present=False)


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address."""

    ip: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Network:
    """A CIDR: an address as written, and the length of the prefix."""

    ip: IPv4Address | IPv6Address
    net: IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL; equal if printed alike."""

    text: str
    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: Mapping[str, tuple[str, ...]]

    def __hash__(self) -> int:
        return hash(self.text)


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A format that strings are validated against; ``regex_size`` enters the cost of doing so."""

    name: str
    regex_size: int
    problems: Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Key:
    """A value that is neither an int nor a string, as the key of a Python dict.

    Attributes:
        mark: equal marks of one type are equal keys.
        value: the value itself.
    """

    type: type
    mark: Hashable
    value: Value = field(compare=False)


class TextMap(dict[str, Value]):
    """A map of the device: it has only strings as keys, and knows no other key."""

    __slots__ = ()


class DefaultMap(TextMap):
    """A map of maps: an unknown key yields an empty map, although the key is not in the map."""

    __slots__ = ()


_NAMES: Final[Mapping[type, str]] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    tuple: "list",
    dict: "map",
    TextMap: "map",
    DefaultMap: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    TypeValue: "type",
    OptionalValue: "optional_type",
    Quantity: "kubernetes.Quantity",
    Amount: "kubernetes.Quantity",
    Computed: "kubernetes.Quantity",
    Version: "kubernetes.Semver",
    Url: "kubernetes.URL",
    Address: "net.IP",
    Network: "net.CIDR",
    NamedFormat: "kubernetes.NamedFormat",
}
NUMBERS: Final = frozenset({int, UInt, float})
"""Types whose values compare with each other."""

QUANTITIES: Final = frozenset({Quantity, Amount, Computed})
"""Quantities of devices and of expressions."""

PLAIN: Final = frozenset({int, str, float, UInt, bytes, type(None), TypeValue, Timestamp, Duration})
"""Types whose values are equal if they are equal in Python. Bools are not among them: in Python, ``True == 1``."""

_OPAQUE: Final = QUANTITIES | {Version, Url, Address, Network, NamedFormat}
_SMALL: Final = (PLAIN | _OPAQUE | {bool}) - {str, bytes}


def type_name(value: Value) -> str:
    """The name of a value's type: ``int``, ``list``, ``kubernetes.Quantity``."""
    return _NAMES[type(value)]


def is_opaque(value: Value) -> bool:
    """Whether a value is of a type that Kubernetes adds."""
    return type(value) in _OPAQUE


def size(value: Value) -> int:
    """The size of a value in cost formulas; 1 for a value without a size."""
    kind = type(value)
    if kind is str or kind is tuple or kind is bytes or isinstance(value, dict):
        return len(value)
    if kind is Address:
        return 4 if value.ip.version == 4 else 16
    if kind is Network:
        return math.ceil(int(value.net.prefixlen) / 8)
    if kind is OptionalValue and value.present:
        return size(value.value)
    return 1


def nested_size(value: Value) -> int:
    """The number of elements in all lists and maps within a list or map; a list in two places counts twice.

    Ten characters or bytes count as one element. Each shared list is visited once, because a short expression can nest
    shared lists into a number of elements that is too large to visit.
    """
    return _nested(value, {})


def _nested(value: Value, known: dict[int, int]) -> int:
    if id(value) not in known:
        parts = value if type(value) is tuple else [*value.values(), *_values_as_keys(value)]
        total = 0
        kinds = set(map(type, parts))
        if not kinds <= _SMALL:
            for part in parts:
                if type(part) is tuple or isinstance(part, dict):
                    simple = type(part) is tuple and _SMALL.issuperset(map(type, part))
                    total += len(part) + 1 + (0 if simple else _nested(part, known))
                elif type(part) is OptionalValue:
                    total += 1 + _nested((part.value,), {})
                elif type(part) is str or type(part) is bytes:
                    total += len(part) // 10
        known[id(value)] = total
    return known[id(value)]


def _values_as_keys(value: Mapping[Hashable, Value]) -> Iterator[Value]:
    return (key.value for key in value if type(key) is Key)


def shown(value: Value) -> str:
    """A value in an error message."""
    if type(value) is bool:
        return "true" if value else "false"
    return str(value)
