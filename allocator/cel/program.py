"""Compiled expressions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from allocator.cel.checking import check
from allocator.cel.cost import LIMIT
from allocator.cel.direct import compile_direct
from allocator.cel.environment import Environment, PlainEnvironment
from allocator.cel.errors import CompileError, EvaluationError, StoppedError
from allocator.cel.frame import Frame, Step
from allocator.cel.metered import compile_plan
from allocator.cel.parsing import parse
from allocator.cel.plan import Input, inputs
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
        costly: evaluation counts its cost; else that is known to be within the limit, and nothing is counted.
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
        except StoppedError as error:
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
    costly = direct is None or direct.cost > LIMIT
    evaluate = _metered(step, checked.slots) if direct is None or costly else direct.evaluate
    return Program(expression, checked.type, reads, costly, evaluate, step, checked.slots)


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


def _reads(found: Sequence[Input | None]) -> Reads:
    known = [read for read in found if read is not None]
    if len(known) < len(found):
        return Reads(everything=True)
    names = {kind: tuple(sorted({i.name for i in known if i.kind == kind})) for kind in ("attributes", "capacity")}
    kinds = {i.kind for i in known}
    return Reads(
        driver="driver" in kinds,
        allow_multiple_allocations="allowMultipleAllocations" in kinds,
        attributes=names["attributes"],
        capacities=names["capacity"],
    )
