"""Steps that build lists and maps, also in place and element by element, as comprehensions do."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from allocator.cel.compile.frame import Frame, Step
from allocator.cel.cost import LIST_COST, MAP_COST
from allocator.cel.errors import EvaluationError, no_such_overload
from allocator.cel.keys import ABSENT, find_named, from_key, to_key
from allocator.cel.values import OptionalValue, Value, shown, type_name


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


def make_list(parts: list[tuple[Step, bool]]) -> Step:
    """A list; each element may be optional."""

    def build(frame: Frame) -> Value:
        values: list[Value] = []
        for part, optional in parts:
            value = part(frame)
            if isinstance(value, EvaluationError):
                return value
            if optional:
                if type(value) is not OptionalValue:
                    return EvaluationError("cannot initialize optional list element from non-optional value")
                if not value.present:
                    continue
                value = value.value
            values.append(value)
        return tuple(values)

    def step(frame: Frame) -> Value:
        value = build(frame)
        frame.spend(LIST_COST)
        return value

    return step


def make_map(parts: list[tuple[Step, Callable[[Value], Hashable], Step, bool]]) -> Step:
    """A map. If several entries have equal keys, the last entry counts, even if its value is absent.

    Args:
        parts: for each entry: the key, a function that makes a key of Python from it, the value, and whether the value
            is optional.
    """

    def build(frame: Frame) -> Value:
        values: dict[Hashable, Value] = {}
        for key_part, named, value_part, optional in parts:
            key = key_part(frame)
            value = key if isinstance(key, EvaluationError) else value_part(frame)
            if isinstance(value, EvaluationError):
                return value
            if optional and type(value) is not OptionalValue:
                return EvaluationError("cannot initialize optional entry from non-optional value")
            name = named(key)
            if not optional or value.present:
                values[name] = value.value if optional else value
            else:
                values.pop(name, None)
        return values

    def step(frame: Frame) -> Value:
        value = build(frame)
        frame.spend(MAP_COST)
        return value

    return step


def append_step(accumulator: Step, element: Step, *, constant: bool) -> Step:
    """``accumulator + [element]`` in place, for the same cost; a constant list costs nothing to make."""
    making = 0 if constant else LIST_COST

    def step(frame: Frame) -> Value:
        values, value = accumulator(frame), element(frame)
        frame.spend(making)
        frame.spend(1)
        if isinstance(values, EvaluationError):
            return values
        return value if isinstance(value, EvaluationError) else append(values, value)

    return step


def insert_step(parts: list[Step]) -> Step:
    """Puts an entry, or the entries of a map, into the accumulator, which is the first part."""

    def step(frame: Frame) -> Value:
        values = []
        for part in parts:
            value = part(frame)
            values.append(value)
            if len(values) < len(parts) > 2 and isinstance(value, EvaluationError):
                return value
        frame.spend(1)
        failed = next((value for value in values if isinstance(value, EvaluationError)), None)
        if failed is not None:
            return failed
        try:
            return _inserted(*values)
        except EvaluationError as error:
            return error.with_traceback(None)

    return step


def _inserted(target: Value, *entry: Value) -> Value:
    if len(entry) == 2:
        return insert(target, to_key(entry[0]), entry[1])
    if not isinstance(entry[0], dict):
        raise no_such_overload()
    for key, value in entry[0].items():
        target = insert(target, key, value)
    return target
