"""Values of CEL in Python: equality, order, size, type names.

| CEL | Python |
|---|---|
| bool, int, double, string, bytes, null | bool, int, float, str, bytes, None |
| uint | `UInt`, a subclass of int |
| list, map | tuple, dict (keys by `to_key`, because in Python ``True == 1``) |
| timestamp, duration | `Timestamp`, `Duration`, in nanoseconds |
| type, optional_type | `TypeValue`, `OptionalValue` |
| Quantity | `Quantity` of a device, `Amount` of an expression |
| Semver | `allocator.model.semver.Version` |
| IP, CIDR, URL, NamedFormat | `Address`, `Network`, `Url`, `NamedFormat` |
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final, TypeAlias

from allocator.cel.amounts import Amount, Computed
from allocator.cel.errors import EvaluationError, no_such_overload
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


class BoolKey(Enum):
    """A bool as the key of a map."""

    FALSE = False
    TRUE = True


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


class DefaultMap(dict[str, Value]):
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
_QUANTITIES: Final = frozenset({Quantity, Amount, Computed})
_OPAQUE: Final = _QUANTITIES | {Version, Url, Address, Network, NamedFormat}
_PLAIN: Final = frozenset({int, str, float, UInt, bytes, type(None), TypeValue, Timestamp, Duration})
_NUMBERS: Final = frozenset({int, UInt, float})
_SMALL: Final = (_PLAIN | _OPAQUE | {bool}) - {str, bytes}
_ORDERED: Final = frozenset({bool, int, UInt, float, str, bytes, Timestamp, Duration})


def type_name(value: Value) -> str:
    """The name of a value's type: ``int``, ``list``, ``kubernetes.Quantity``."""
    return _NAMES[type(value)]


def is_opaque(value: Value) -> bool:
    """Whether a value is of a type that Kubernetes adds."""
    return type(value) in _OPAQUE


def equal(left: Value, right: Value) -> bool:
    """CEL's ``==``: numbers compare across types, other types differ.

    Raises:
        EvaluationError: the left value has a type of Kubernetes, and the right value has another (as upstream).
    """
    kind, other = type(left), type(right)
    if kind is other:
        if kind in _PLAIN or kind is bool:
            return bool(left == right)
        if kind is tuple:
            return len(left) == len(right) and all(map(_same, left, right))
        if kind is OptionalValue:
            return left.present == right.present and (not left.present or equal(left.value, right.value))
        if kind is Computed:
            raise no_such_overload()
    elif kind in _QUANTITIES and other in _QUANTITIES and other is not Computed:
        return bool(left == right)
    elif kind in _OPAQUE and right is not None:
        raise no_such_overload()
    elif kind in _NUMBERS and other in _NUMBERS:
        return compare(left, right) == 0
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(k in right and _same(v, right[k]) for k, v in left.items())
    return bool(kind is other and left == right)


def _same(left: Value, right: Value) -> bool:
    """Equality within lists and maps, where values that cannot be compared count as equal."""
    try:
        return equal(left, right)
    except EvaluationError:
        return True


def membership(values: tuple[Value, ...]) -> Callable[[Value], bool]:
    """`contains` for one list of strings, bools and numbers, prepared for many calls.

    An integer that meets a double is compared as a double.
    """
    strings = frozenset(value for value in values if type(value) is str)
    bools = frozenset(value for value in values if type(value) is bool)
    whole = frozenset(int(value) for value in values if type(value) in (int, UInt))
    doubles = frozenset(value for value in values if type(value) is float and not math.isnan(value))
    rounded = doubles | frozenset(map(float, whole))

    def has(wanted: Value) -> bool:
        kind = type(wanted)
        if kind is str:
            return wanted in strings
        if kind is bool:
            return wanted in bools
        if kind is float:
            return wanted in rounded
        return (kind is int or kind is UInt) and (wanted in whole or (bool(doubles) and float(wanted) in doubles))

    return has


def contains(values: tuple[Value, ...], wanted: Value) -> bool:
    """Whether a list has an equal element."""
    for value in values:
        try:
            if equal(value, wanted):
                return True
        except EvaluationError:
            continue
    return False


def compare(left: Value, right: Value) -> int | None:
    """-1, 0 or 1; None if a NaN is compared.

    As in cel-go, an integer that is compared with a double is rounded to a double.

    Raises:
        EvaluationError: the types have no order, or are different.
    """
    kind, other = type(left), type(right)
    if kind not in _ORDERED or (kind is not other and not (kind in _NUMBERS and other in _NUMBERS)):
        raise no_such_overload()
    if kind is not other and float in (kind, other):
        left, right = float(left), float(right)
    if left == right:
        return 0
    return -1 if left < right else 1 if left > right else None


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
        parts = value if type(value) is tuple else value.values()
        total = 0
        kinds = set(map(type, parts))
        if not kinds <= _SMALL:
            for part in parts:
                if type(part) is tuple or isinstance(part, dict):
                    simple = _SMALL.issuperset(map(type, part.values() if isinstance(part, dict) else part))
                    total += len(part) + 1 + (0 if simple else _nested(part, known))
                elif type(part) is OptionalValue:
                    total += 1 + _nested((part.value,), {})
                elif type(part) is str or type(part) is bytes:
                    total += len(part) // 10
        known[id(value)] = total
    return known[id(value)]


def to_key(value: Value) -> Hashable:
    """A value as the key of a Python dict.

    Raises:
        EvaluationError: a type that is not allowed for keys.
    """
    kind = type(value)
    if kind is bool:
        return BoolKey(value)
    if kind is str or kind is int or kind is UInt:
        return value  # type: ignore[no-any-return]  # its type was just looked at
    if kind is float and value.is_integer():
        return int(value)
    raise EvaluationError(f"unsupported key type: {type_name(value)}")


def from_key(key: Hashable) -> Value:
    """The value that a key of a Python dict stands for."""
    return key.value if type(key) is BoolKey else key


def lookup(container: Value, key: Value) -> Value:
    """``container[key]``.

    Raises:
        EvaluationError: no such key, index out of bounds, or not a container.
    """
    if isinstance(container, dict):
        return _from_map(container, key)
    if type(container) is tuple:
        kind = type(key)
        if kind is float and key.is_integer():
            key = int(key)
        elif kind is not int and kind is not UInt:
            raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")
        if 0 <= key < len(container):
            return container[key]
        raise EvaluationError(f"index out of bounds: {key}")
    raise no_such_overload()


def _from_map(container: dict[Hashable, Value], key: Value) -> Value:
    try:
        return container[to_key(key)]
    except KeyError:
        if type(container) is DefaultMap:
            return {}
        raise EvaluationError(f"no such key: {shown(key)}") from None
    except EvaluationError:
        if type(key) is float:
            raise EvaluationError(f"no such key: {key}") from None
        raise


def is_container(value: Value) -> bool:
    """Whether a value has elements that are found by key or index."""
    return type(value) is tuple or isinstance(value, dict)


def present(container: Value, key: Value) -> bool:
    """Whether ``container[key]`` would yield a value; a value that is no container has none.

    Raises:
        EvaluationError: not a valid index of a list.
    """
    if isinstance(container, dict):
        return type(container) is DefaultMap or has_key(container, key)
    if type(container) is tuple:
        if type(key) not in _NUMBERS:
            raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")
        if type(key) is float and not key.is_integer():
            raise EvaluationError(f"unsupported index value {key} in list")
        return bool(0 <= key < len(container))
    return False


def has_key(container: Mapping[Hashable, Value], key: Value) -> bool:
    """Whether a map has a key.

    Raises:
        EvaluationError: a type that is not allowed for keys.
    """
    return (type(key) is not float or key.is_integer()) and to_key(key) in container


def shown(value: Value) -> str:
    """A value in an error message."""
    if type(value) is bool:
        return "true" if value else "false"
    return str(value)
