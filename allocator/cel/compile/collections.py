"""Steps that build lists and maps."""

from collections.abc import Callable, Hashable

from allocator.cel.compile.frame import Frame, Step
from allocator.cel.compile.loops import append, insert
from allocator.cel.cost import LIST_COST, MAP_COST
from allocator.cel.errors import EvaluationError, no_such_overload
from allocator.cel.keys import to_key
from allocator.cel.values import OptionalValue, Value


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
