"""Elements of comprehensions, and lists and maps that comprehensions build in place."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from allocator.cel.errors import EvaluationError
from allocator.cel.keys import ABSENT, find_named, from_key
from allocator.cel.values import Value, shown, type_name


@dataclass(frozen=True, slots=True)
class Pending:
    """A variable that has not been used yet; its value is computed at the first use."""

    compute: Callable[[Any], Value]


class Building(dict[Hashable, Value]):
    """A map that a comprehension builds and nothing else refers to yet."""

    __slots__ = ()


def elements(values: Value, *, pairs: bool) -> Iterable[tuple[Value, Value]]:
    """The values of the variables of a comprehension, for each element; with one variable, the second is None.

    Raises:
        EvaluationError: neither list nor map.
    """
    if type(values) is tuple:
        return enumerate(values) if pairs else ((value, None) for value in values)
    if isinstance(values, dict):
        return ((from_key(key), value) for key, value in values.items())
    raise EvaluationError(f"got '{type_name(values)}', expected iterable type")


def append(values: Value, value: Value) -> list[Value]:
    """Append in place to the list that is being built; the initial list, a constant, is copied first."""
    building: list[Value] = values if type(values) is list else list(values)
    building.append(value)
    return building


def insert(values: Value, name: Hashable, value: Value) -> Value:
    """Insert in place into a map that is being built; the initial map, a constant, is copied first.

    Args:
        values: the map.
        name: the key, as a key of a Python dict.
        value: the value.

    Raises:
        EvaluationError: the key exists already.
    """
    building = Building(values) if type(values) is dict else values
    if find_named(building, name) is not ABSENT:
        raise EvaluationError(f"map key {shown(from_key(name))} already exists")
    building[name] = value
    return building


def frozen(value: Value) -> Value:
    """The finished list or map."""
    if type(value) is list:
        return tuple(value)
    return dict(value) if type(value) is Building else value
