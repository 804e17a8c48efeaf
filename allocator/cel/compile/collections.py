"""Steps that build lists and maps, also in place and element by element, as comprehensions do."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from allocator.cel.compile.frame import Frame, Step
from allocator.cel.cost import LIST_COST, MAP_COST
from allocator.cel.errors import EvaluationError, no_such_overload
from allocator.cel.keys import ABSENT, find_named, from_key, to_key
from allocator.cel.values import Key, OptionalValue, Value, shown, type_name


@dataclass(frozen=True, slots=True)
class Pending:
    """A variable that has not been used yet; its value is computed at the first use."""

    compute: Callable[[Any], Value]


class Building(dict[Hashable, Value]):
    """A map that a comprehension builds and nothing else refers to yet.

    Attributes:
        plain: whether all keys are strings and integers: then no key of another type is the same number as one of them.
    """

    __slots__ = ("plain",)

    def __init__(self, values: Mapping[Hashable, Value]) -> None:
        super().__init__(values)
        self.plain = not any(type(key) is Key for key in values)

    def knows(self, name: Hashable) -> bool:
        """Whether it has the key, or the same number of another type."""
        if type(name) is not Key and self.plain:
            return name in self
        return find_named(self, name) is not ABSENT

    def add(self, name: Hashable, value: Value) -> None:
        """Add an entry with a key that it does not know."""
        self.plain = self.plain and type(name) is not Key
        self[name] = value


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
    if building.knows(name):
        raise EvaluationError(f"map key {shown(from_key(name))} already exists")
    building.add(name, value)
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


def insert_step(accumulator: Step, entry: list[Step]) -> Step:
    """Puts an entry (a key and a value), or the entries of a map, into the accumulator.

    A failed accumulator or key ends the step of a key and a value; of the accumulator and a map, both are evaluated.
    """
    if len(entry) == 2:
        return _insert_pair(accumulator, *entry)
    [entries] = entry

    def step(frame: Frame) -> Value:
        target, added = accumulator(frame), entries(frame)
        frame.spend(1)
        if isinstance(target, EvaluationError):
            return target
        if not isinstance(added, dict):
            return added if isinstance(added, EvaluationError) else no_such_overload()
        try:
            for key, value in added.items():
                target = insert(target, key, value)
        except EvaluationError as error:
            return error.as_value()
        return target

    return step


def _insert_pair(accumulator: Step, key_part: Step, value_part: Step) -> Step:
    def step(frame: Frame) -> Value:
        target = accumulator(frame)
        if isinstance(target, EvaluationError):
            return target
        key = key_part(frame)
        if isinstance(key, EvaluationError):
            return key
        value = value_part(frame)
        frame.spend(1)
        if isinstance(value, EvaluationError):
            return value
        try:
            return insert(target, to_key(key), value)
        except EvaluationError as error:
            return error.as_value()

    return step
