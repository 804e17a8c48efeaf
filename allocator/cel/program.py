"""Compiled expressions."""

from collections.abc import Callable
from dataclasses import dataclass

from allocator.cel.checking import check
from allocator.cel.cost import LIMIT
from allocator.cel.direct import compile_direct
from allocator.cel.environment import Environment, PlainEnvironment
from allocator.cel.errors import CompileError, CostLimitError, EvaluationError
from allocator.cel.metered import Frame, Step, compile_plan
from allocator.cel.parsing import parse
from allocator.cel.plan import inputs
from allocator.cel.types import Type
from allocator.cel.values import Value
from allocator.model import Device


@dataclass(frozen=True, slots=True)
class Reads:
    """What of a device an expression reads, and nothing else.

    Attributes:
        everything: it cannot be told: any part of the device may matter.
        attributes, capacities: qualified names.
    """

    everything: bool = False
    driver: bool = False
    allow_multiple_allocations: bool = False
    attributes: tuple[str, ...] = ()
    capacities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """One evaluation with its cost: a value, or an error."""

    value: Value
    error: EvaluationError | None
    cost: int


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A compiled expression. Safe to use from several threads.

    Attributes:
        type: of the result, as far as it is known.
        reads: what the result depends on.
        costly: evaluation counts its cost; else the cost is known to be within the limit, and there is nothing to count.
        evaluate: the result for a device (None in an environment without one).
            Raises `EvaluationError`; `CostLimitError` if it becomes too expensive.
    """

    expression: str
    type: Type
    reads: Reads
    costly: bool
    evaluate: Callable[[Device], Value]
    _step: Step
    _slots: int

    def measure(self, device: Device | None) -> Measured:
        """Evaluate step by step and say what it cost, by upstream's formulas."""
        frame = Frame(device, self._slots)
        try:
            value = self._step(frame)
        except CostLimitError as error:
            return Measured(None, error, frame.cost)
        except RecursionError:
            return Measured(None, EvaluationError("expression nests too deep"), frame.cost)
        if isinstance(value, EvaluationError):
            return Measured(None, value, frame.cost)
        return Measured(value, None, frame.cost)


def compile_expression(expression: str, environment: Environment | PlainEnvironment) -> Program:
    """Compile an expression.

    Raises:
        CompileError: it does not parse or check, or is beyond the limits of length and nesting.
    """
    try:
        node = parse(expression, environment.macros)
        checked = check(expression, node, environment.declarations)
        step = compile_plan(checked.plan)
        direct = compile_direct(checked.plan)
    except RecursionError:
        raise CompileError(expression, 0, "expression nests too deep") from None
    reads = _reads(list(inputs(checked.plan)))
    if direct is not None and direct.cost <= LIMIT:
        return Program(expression, checked.type, reads, False, direct.evaluate, step, checked.slots)
    return Program(expression, checked.type, reads, True, _metered(step, checked.slots), step, checked.slots)


def _metered(step: Step, slots: int) -> Callable[[Device], Value]:
    def evaluate(device: Device) -> Value:
        try:
            value = step(Frame(device, slots))
        except RecursionError:
            raise EvaluationError("expression nests too deep") from None
        if isinstance(value, EvaluationError):
            raise value
        return value

    return evaluate


def _reads(found: list[object]) -> Reads:
    if None in found:
        return Reads(everything=True)
    names = {kind: tuple(sorted({i.name for i in found if i.kind == kind})) for kind in ("attributes", "capacity")}
    kinds = {i.kind for i in found}
    return Reads(
        driver="driver" in kinds,
        allow_multiple_allocations="allowMultipleAllocations" in kinds,
        attributes=names["attributes"],
        capacities=names["capacity"],
    )
