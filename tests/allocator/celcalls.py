"""Calls of every declared function with given values, without the parser: as a plan with variables."""

from collections.abc import Iterator, Sequence
from typing import Any

from allocator import Device, DeviceId
from allocator.cel import Environment, EvaluationError, as_evaluation_error
from allocator.cel.checked import Invoke, Variable
from allocator.cel.compile.frame import Frame, Step
from allocator.cel.compile.metered import compile_plan
from allocator.cel.functions.declare import Function, Overload
from allocator.cel.types import DYN

FUNCTIONS = Environment().declarations.functions
DEVICE = Device(DeviceId("gpu.example.com", "pool", "gpu-0"), attributes={"d/text": "a"})


def signatures() -> Iterator[tuple[str, Overload]]:
    """Every overload of every function, with a name for reports."""
    for name, function in sorted(FUNCTIONS.items()):
        for overload in function.overloads:
            yield f"{name}({', '.join(map(str, overload.parameters))})", overload


def function_of(overload: Overload) -> Function:
    """The function that an overload is part of."""
    return next(function for function in FUNCTIONS.values() if overload in function.overloads)


def by_type(overload: Overload) -> Step:
    """A call whose arguments are known to have the overload's types, but for null."""
    arguments = tuple(Variable(slot, kind) for slot, kind in enumerate(overload.parameters))
    return compile_plan(Invoke(function_of(overload), (overload,), arguments, overload.result))


def by_value(function: Function, count: int, *, member: bool) -> Step | None:
    """A call with arguments of unknown type: ``dyn``."""
    fitting = tuple(o for o in function.overloads if o.member is member and len(o.parameters) == count)
    arguments = tuple(Variable(slot, DYN) for slot in range(count))
    return compile_plan(Invoke(function, fitting, arguments, DYN)) if fitting else None


class Call:
    """One evaluated call: its result or error, and its frame."""

    def __init__(self, step: Step, values: Sequence[Any]) -> None:
        self.frame = Frame(DEVICE, len(values))
        self.frame.slots = list(values)
        self.result: Any = None
        self.error: EvaluationError | None = None
        try:
            self.result = step(self.frame)
        except Exception as error:  # noqa: BLE001  # as `Program` does
            self.error = as_evaluation_error("", error)
        if isinstance(self.result, EvaluationError):
            self.error = self.result
