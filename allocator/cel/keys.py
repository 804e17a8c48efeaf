"""Keys of maps, and values found by key or index, as cel-go finds them.

In cel-go, a map is a Go map whose keys are values of CEL. A key that is a number keeps its type, and a lookup with a
number tries the other types of numbers as well. Most types are compared by value. Lists, maps, quantities and URLs are
pointers: as a key, each is equal only to itself. Some types cannot be keys: a map literal with such a key ends the
evaluation.
"""

from collections.abc import Hashable, Iterator, Mapping
from copy import copy
from typing import Any, Final

from allocator.cel.amounts import Amount, Computed
from allocator.cel.errors import EvaluationError, GivenUpError, no_such_overload
from allocator.cel.values import (
    INT_MAX,
    INT_MIN,
    NONE,
    NUMBERS,
    UINT_MAX,
    DefaultMap,
    Key,
    NamedFormat,
    OptionalValue,
    TextMap,
    UInt,
    Url,
    Value,
    shown,
    type_name,
)
from allocator.model.quantity import Quantity
from allocator.model.semver import Version

INDEXES: Final = frozenset({bool, int, UInt, float, str})
"""Types of values that can be an index: what stands in ``container[...]``."""

UNHASHABLE: Final = frozenset({bytes, Version, NamedFormat})
"""Types that cannot be keys."""

_POINTERS: Final = frozenset({tuple, Quantity, Amount, Computed, Url})

ABSENT: Final[Any] = object()
"""The result of `find` if the map does not have the key. It is no value of CEL."""


NO_DOMAIN: Final = TextMap()
"""The value of a domain that the device does not have."""


def to_key(value: Value) -> Hashable:
    """A value as the key of a Python dict.

    Raises:
        GivenUpError: a type that cannot be a key.
    """
    kind = type(value)
    if kind is str or kind is int:
        return value  # type: ignore[no-any-return]  # its type was just looked at
    if kind in UNHASHABLE:
        raise GivenUpError
    if kind in _POINTERS or isinstance(value, dict):
        return Key(kind, id(value), value)
    if kind is OptionalValue and value is not NONE:
        return Key(kind, object(), value)  # each read of a variable makes a new optional value
    if kind is float and value != value:  # noqa: PLR0124  # NaN is no other key, not even its own
        return Key(kind, object(), value)
    return Key(kind, value, value)


def from_key(key: Hashable) -> Value:
    """The value that a key of a Python dict stands for."""
    return key.value if type(key) is Key else key


def new_key(value: Value) -> Hashable:
    """Like `to_key`, for a result or a value of the device. A list, map or URL is then equal to no other key.

    ``device.attributes`` and ``device.capacity`` are the same map each time that they are read, and so is the empty map
    of each unknown domain.

    Raises:
        GivenUpError: a type that cannot be a key.
    """
    if type(value) is tuple and not value:
        return Key(tuple, object(), value)  # Python has only one empty tuple
    if type(value) is tuple:
        return to_key((*value,))
    if type(value) is DefaultMap or value is NO_DOMAIN:
        return to_key(value)
    pointer = isinstance(value, dict) or type(value) in _POINTERS
    return to_key(copy(value) if pointer and type(value) is not Quantity else value)


def find(container: Mapping[Hashable, Value], key: Value) -> Value:
    """The value of a key of a map, or `ABSENT`.

    Raises:
        GivenUpError: a type that cannot be a key.
    """
    if type(key) is str:
        return container.get(key, ABSENT)
    if not container or isinstance(container, TextMap):
        return ABSENT
    return find_named(container, to_key(key))


def find_named(container: Mapping[Hashable, Value], name: Hashable) -> Value:
    """Like `find`, for a key of a Python dict."""
    found = container.get(name, ABSENT)
    value = from_key(name)
    if type(value) in NUMBERS:
        if value != value:  # noqa: PLR0124  # NaN is never found
            return ABSENT
        if found is ABSENT:
            return next((container[other] for other in _other_numbers(value) if other in container), ABSENT)
    return found


def _other_numbers(key: Value) -> Iterator[Hashable]:
    """Keys of other types with the same number, in the order in which cel-go tries them. An integer finds no double."""
    kind = type(key)
    if kind is float:
        if not key.is_integer():
            return
        if INT_MIN <= key <= INT_MAX:
            yield int(key)
        if 0 <= key <= UINT_MAX:
            yield to_key(UInt(key))
    elif kind is int and key >= 0:
        yield to_key(UInt(key))
    elif kind is UInt and key <= INT_MAX:
        yield int(key)


def is_container(value: Value) -> bool:
    """Whether a value has elements that are found by key or index."""
    return type(value) is tuple or isinstance(value, dict)


def lookup(container: Value, key: Value) -> Value:
    """``container[key]``; the key has one of the types in `INDEXES`.

    Raises:
        EvaluationError: no such key, index out of bounds, or not a container.
    """
    if isinstance(container, dict):
        found = find(container, key)
        if found is not ABSENT:
            return found
        if type(container) is DefaultMap:
            return NO_DOMAIN
        raise EvaluationError(f"no such key: {shown(key)}")
    if type(container) is tuple:
        if _in_bounds(container, key):
            return container[int(key)]
        raise EvaluationError(f"index out of bounds: {key}")
    raise no_such_overload()


def present(container: Value, key: Value) -> bool:
    """Whether `lookup` would yield a value; a value that is no container has none.

    Raises:
        EvaluationError: not a valid index of a list.
    """
    if isinstance(container, dict):
        return type(container) is DefaultMap or find(container, key) is not ABSENT
    return type(container) is tuple and _in_bounds(container, key)


def _in_bounds(values: tuple[Value, ...], index: Value) -> bool:
    if type(index) in (bool, str):
        raise EvaluationError(f"unsupported index type '{type_name(index)}' in list")
    if type(index) is float and not index.is_integer():
        raise EvaluationError(f"unsupported index value {index} in list")
    return bool(0 <= index < len(values))
