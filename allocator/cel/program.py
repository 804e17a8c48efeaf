"""Compiled expressions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from allocator.cel.check import check
from allocator.cel.checked import Input, inputs
from allocator.cel.compile.direct import compile_direct
from allocator.cel.compile.frame import Expired, Frame, Step, never
from allocator.cel.compile.metered import compile_plan
from allocator.cel.cost import UNCOUNTED_AT_MOST
from allocator.cel.environment import Environment
from allocator.cel.errors import CompileError, EvaluationError, as_evaluation_error
from allocator.cel.parse import parse
from allocator.cel.types import Type
from allocator.cel.values import Value
from allocator.model.slices.device import Device


@dataclass(frozen=True, slots=True)
class Reads:
    """The parts of a device that an expression reads.

    Attributes:
        everything: the parts are not known, so any part of the device may matter.
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
        type: the type of the result, as far as it is known.
        reads: the parts of a device that the result depends on.
        costly: the evaluation counts its cost. Otherwise the cost is known to be within the limit.
        evaluate: the result for a device.
            Raises `EvaluationError`, and `CostLimitError` if the evaluation becomes too expensive. If nothing is
            counted, an exception from a fault of this package is not converted; `Selectors` converts it.
        mark: stands for the program in keys, and does not keep it alive.
    """

    expression: str
    type: Type
    reads: Reads
    costly: bool
    evaluate: Callable[[Device], Value]
    _step: Step
    _slots: int
    mark: object = field(default_factory=object)

    def evaluate_until(self, device: Device, expired: Expired) -> Value:
        """Like `evaluate`, but a costly expression looks at the clock while it runs.

        Raises:
            OutOfTimeError: time was up.
        """
        if not self.costly:
            return self.evaluate(device)
        return _run(self.expression, self._step, Frame(device, self._slots, expired))

    def measure(self, device: Device, expired: Expired = never) -> Measured:
        """Evaluate step by step, with the cost by upstream's formulas."""
        frame = Frame(device, self._slots, expired)
        try:
            return Measured(_run(self.expression, self._step, frame), None, frame.cost)
        except EvaluationError as error:
            return Measured(None, error, frame.cost)


def compile_expression(expression: str, environment: Environment) -> Program:
    """Compile an expression.

    Raises:
        CompileError: the expression does not parse or check, or is beyond the limits of length and nesting.
    """
    try:
        node = parse(expression)
        checked = check(expression, node, environment.declarations)
        step = compile_plan(checked.plan)
        direct = compile_direct(checked.plan)
        reads = _reads(list(inputs(checked.plan)))
    except (CompileError, MemoryError):
        raise
    except RecursionError:
        raise CompileError(expression, 0, "expression nests too deep") from None
    except Exception as error:  # any user may have written the text; a fault concerns this expression alone
        message = f"internal error in selector compilation: {type(error).__name__}: {error}"
        raise CompileError(expression, 0, message) from error
    costly = direct is None or direct.cost > UNCOUNTED_AT_MOST
    evaluate = _metered(expression, step, checked.slots) if direct is None or costly else direct.evaluate
    return Program(expression, checked.type, reads, costly, evaluate, step, checked.slots)


def _metered(expression: str, step: Step, slots: int) -> Callable[[Device], Value]:
    return lambda device: _run(expression, step, Frame(device, slots))


def _run(expression: str, step: Step, frame: Frame) -> Value:
    try:
        value = step(frame)
    except EvaluationError:
        raise
    except Exception as error:  # a fault of one selector must not fail other pods
        raise as_evaluation_error(expression, error) from error
    if isinstance(value, EvaluationError):
        try:
            raise value
        finally:
            del value, frame  # both may have the error, whose traceback has this call from now on
    return value


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
