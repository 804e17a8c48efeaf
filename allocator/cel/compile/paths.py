"""Evaluation of ``root.field[index]?...`` with cost, absence and optional values as upstream has them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from allocator.cel.checked import Input
from allocator.cel.errors import EvaluationError
from allocator.cel.keys import INDEXES, is_container, lookup, present
from allocator.cel.values import NONE, OptionalValue, Value, type_name
from allocator.model.slices.device import Device


class Meter(Protocol):
    """The part of an evaluation that walking needs."""

    device: Device

    def spend(self, cost: int) -> None:
        """Charge for one step."""


class PathStep(NamedTuple):
    """One step: its key, and whether a missing value is allowed."""

    key: Callable[[Any], Value]
    optional: bool
    constant: bool


def known_input(wanted: Input, *, optional: bool, test: bool) -> Callable[[Meter], Value]:
    """Reads one part of the device directly, for the cost of the steps that lead to it."""
    kind, name, keys = wanted.kind, wanted.name, wanted.keys

    def step(frame: Meter) -> Value:
        device = frame.device
        for _ in range(keys - 1):
            frame.spend(1)
        if kind in {"driver", "allowMultipleAllocations"}:
            frame.spend(1)
            return device.driver if kind == "driver" else device.allow_multiple_allocations
        values = device.attributes if kind == "attributes" else device.quantities
        found = name in values
        if found or not optional:
            frame.spend(1)
        if test:
            return found
        if not found:
            return NONE if optional else EvaluationError(f"no such key: {name.partition('/')[2]}")
        return values[name]

    return step


def walk(frame: Meter, value: Value, steps: Sequence[PathStep], *, test: bool, optional: bool) -> Value:
    """Follow the steps from a value.

    Args:
        frame: the evaluation to charge.
        value: where to start.
        steps: the steps.
        test: yield whether the last step finds a value.
        optional: an earlier step was optional, so a missing value is no error, and the result is an optional value.
    """
    if type(value) is OptionalValue:
        if not value.present:
            return False if test else NONE
        value, optional = value.value, True
    try:
        for number, step in enumerate(steps):
            key, optional = step.key(frame), optional or step.optional
            if isinstance(key, EvaluationError) or type(key) not in INDEXES:
                frame.spend(0 if optional else 1)
                return key if isinstance(key, EvaluationError) else _invalid(key)
            if test and number == len(steps) - 1:
                return _has_last_step(frame, value, key, optional=optional)
            # Upstream does not fail if a value without elements is asked for one here.
            if optional and not (is_container(value) and present(value, key)):
                return False if test else NONE
            frame.spend(1)
            value = lookup(value, key)
    except EvaluationError as error:
        if error.__class__ is EvaluationError:
            return error.as_value()
        raise
    return OptionalValue(present=True, value=value) if optional else value


def _has_last_step(frame: Meter, value: Value, key: Value, *, optional: bool) -> bool:
    """Whether the last step of a test finds a value. After an optional step, only a value that is found costs."""
    if optional:
        found = present(value, key)
        frame.spend(1 if found else 0)
        return found
    frame.spend(1)
    return present(value, key)


def _invalid(key: Value) -> EvaluationError:
    return EvaluationError(f"invalid qualifier type: {type_name(key)}")
