"""CEL over devices: expressions are compiled once, and costly ones evaluated once per combination of what they read.

Devices of one model differ only in values that selectors rarely read. So the result of a costly selector is kept by
the values that it reads. A selector that compiles to a few comparisons is faster than a look-up.
"""

from collections.abc import Callable, Hashable, Iterable, Sized
from typing import Any, Final

from allocator.cel import (
    CompileError,
    Environment,
    EvaluationError,
    Expired,
    InternalError,
    Kind,
    OutOfTimeError,
    Program,
    Reads,
    as_evaluation_error,
    compile_expression,
    never,
)
from allocator.cel.values import OptionalValue, TypeValue, Value
from allocator.model.devices import AttributeValue
from allocator.model.quantity import Quantity
from allocator.model.semver import Version
from allocator.model.slices.device import Device
from allocator.tools.recent import Recent

_ABSENT: Final = object()
_LONGEST_FAILURE: Final = 500
"""The most characters of an error that is remembered: an error can quote everything that the expression computed."""

_TYPE_NAMES: Final = {bool: "bool", int: "int", str: "string", Version: "semver"}
_GO_NAMES: Final = {**_TYPE_NAMES, int: "int64"}
_ATTRIBUTE_TYPES: Final = frozenset({"bool", "int", "string", "kubernetes.Semver", "any", "dyn"})


class Selectors:
    """Compiled expressions and results of the costly ones, both bounded. Safe to use from several threads.

    Args:
        environment: what expressions may use; None: the environment of the newest version.
        max_text: characters of the expressions whose programs are kept. A program takes up to 300 bytes per character.
        max_results: the most results that are kept, and values that they depend on, all together.
    """

    def __init__(
        self, environment: Environment | None = None, *, max_text: int = 100_000, max_results: int = 393_216
    ) -> None:
        self._environment = Environment() if environment is None else environment
        self._selectors: Recent[Program] = Recent(max_text, lambda text, _: len(text))
        self._derivations: Recent[Program] = Recent(max_text, lambda text, _: len(text))
        self._faults: Recent[tuple[int, str]] = Recent(max_text, lambda key, _: len(key[1]))
        self._results: Recent[bool | str] = Recent(max_results, _size_of_result)  # a text: why it fails

    def matches(self, expression: str, device: Device, expired: Expired = never) -> bool:
        """Whether a device satisfies a selector.

        Raises:
            CompileError: the expression does not compile, or cannot yield a bool.
            EvaluationError: the expression fails on this device, or does not yield a bool.
            OutOfTimeError: time was up; an `EvaluationError` that says nothing about the device.
        """
        program = self._selectors.get(expression)
        if program is None:
            program = self._compiled(self._selectors, expression, check_selector)
        if program.costly:
            return self._costly(program, device, expired)
        try:
            value = program.evaluate(device)
        except EvaluationError:
            raise
        except Exception as error:  # a fault of one selector must not fail other pods
            raise as_evaluation_error(expression, error) from error
        return value if value is True or value is False else as_bool(value)

    def is_costly(self, expression: str) -> bool:
        """Whether one evaluation of a selector may take long, so that its cost is counted. Raises CompileError."""
        return self._compiled(self._selectors, expression, check_selector).costly

    def cost(self, expression: str, device: Device, expired: Expired = never) -> int:
        """What one evaluation of a selector costs by upstream's formulas; 0 if it is known to be cheap.

        Raises:
            CompileError: the expression does not compile.
            OutOfTimeError: time was up.
        """
        program = self._compiled(self._selectors, expression, check_selector)
        if not program.costly:
            return 0
        measured = program.measure(device, expired)
        if isinstance(measured.error, OutOfTimeError):
            raise measured.error
        return measured.cost

    def _costly(self, program: Program, device: Device, expired: Expired) -> bool:
        if program.reads.everything:
            return as_bool(program.evaluate_until(device, expired))
        key = _key(program, device)
        found = self._results.find(key)
        if found is None:
            found = self._results.keep(key, _result(program, device, expired))
        if isinstance(found, str):
            raise EvaluationError(found)
        return found

    def derive(self, expression: str, device: Device, expired: Expired = never) -> AttributeValue:
        """The value of a derived attribute for a device.

        Raises:
            CompileError: the expression does not compile, or cannot yield an attribute.
            EvaluationError: the expression fails on this device, or does not yield an attribute.
            OutOfTimeError: time was up; an `EvaluationError` that says nothing about the device.
        """
        program = self._derivations.get(expression)
        if program is None:
            program = self._compiled(self._derivations, expression, check_derivation)
        try:
            value: Value = program.evaluate_until(device, expired)
        except EvaluationError:
            raise
        except Exception as error:  # a fault of one selector must not fail other pods
            raise as_evaluation_error(expression, error) from error
        return as_attribute(value)

    def reads(self, expression: str) -> Reads:
        """The parts of a device that a selector reads.

        Raises:
            CompileError: the expression does not compile.
        """
        return self._compiled(self._selectors, expression, check_selector).reads

    def derivation_reads(self, expression: str) -> Reads:
        """The parts of a device that the expression of a derived attribute reads.

        Raises:
            CompileError: the expression does not compile.
        """
        return self._compiled(self._derivations, expression, check_derivation).reads

    def are_quick(self, expressions: Iterable[str]) -> bool:
        """Whether all selectors are compiled already, and need no count of their cost."""
        found = (self._selectors.get(each) for each in expressions)
        return all(program is not None and not program.costly for program in found)

    def _compiled(
        self, programs: Recent[Program], expression: str, check: Callable[[Program, Environment], None]
    ) -> Program:
        found = programs.find(expression)
        if found is not None:
            return found
        fault_key = (check, expression)
        fault = self._faults.find(fault_key)
        if fault is None:
            try:
                found = compile_expression(expression, self._environment)
                check(found, self._environment)
            except CompileError as error:
                # An error that was raised holds the frames of its caller, and all that they refer to.
                fault = self._faults.keep(fault_key, (error.position, error.message))
            else:
                programs.keep(expression, found)
                return found
        raise CompileError(expression, *fault)


def check_selector(program: Program, environment: Environment) -> None:
    """Check that a selector yields a bool, or an attribute, which may be a bool.

    Raises:
        CompileError: it does not.
    """
    if program.type.name not in {"bool", environment.attribute.name}:
        message = f"must evaluate to bool or the unknown type, not {program.type}"
        raise CompileError(program.expression, 0, message)


def check_derivation(program: Program, environment: Environment) -> None:
    """Check that a derived attribute has a type that attributes can have, as far as the type is known.

    Raises:
        CompileError: it has not.
    """
    kind = program.type
    lists = environment.kind is Kind.STORED or environment.list_attributes
    if kind.name == "list" and lists:
        kind = kind.parameters[0]
    if kind.name not in _ATTRIBUTE_TYPES:
        also = " or a list of these scalars" if lists else ""
        message = f"must evaluate to a primitive scalar (string, integer, boolean, semver){also}, not {program.type}"
        raise CompileError(program.expression, 0, message)


def as_bool(value: object) -> bool:
    """A selector's result.

    Raises:
        EvaluationError: not a bool.
    """
    plain = _native(value)
    if plain is True or plain is False:
        return bool(plain)
    raise EvaluationError(f"CEL result of type {_shown(value)} could not be converted to bool")


def _result(program: Program, device: Device, expired: Expired) -> bool | str:
    """A selector's result, or why it fails: a failure can cost as much as the limit allows.

    Raises:
        EvaluationError: a failure that must not be remembered: time was up, a fault of ours, or a very long text.
    """
    try:
        return as_bool(program.evaluate_until(device, expired))
    except (OutOfTimeError, InternalError):
        raise
    except EvaluationError as error:
        if len(error.message) > _LONGEST_FAILURE:
            raise
        return error.message


def as_attribute(value: Any) -> AttributeValue:  # noqa: ANN401  # a value of CEL
    """The value of a derived attribute; the first element of a list determines the type of all elements.

    Raises:
        EvaluationError: not a value that attributes can have.
    """
    if type(value) is not tuple:
        plain = _native(value)
        if type(plain) not in _TYPE_NAMES:
            raise EvaluationError(f"unsupported CEL return type: {_shown(plain)}")
        return plain  # type: ignore[no-any-return]  # its type was just looked at
    elements = tuple(map(_native, value))
    if elements and type(elements[0]) not in _TYPE_NAMES:
        raise EvaluationError(f"unsupported list element type: {_shown(elements[0])}")
    for index, element in enumerate(elements):
        if type(element) is not type(elements[0]):
            wanted = _TYPE_NAMES[type(elements[0])]
            raise EvaluationError(f"expected list element at index {index} to be {wanted}, got {_shown(element)}")
    return elements


def _native(value: Value) -> Value:
    """The value as upstream reads it: the content of an optional value, and the name of a type."""
    while type(value) is OptionalValue:
        value = value.value
    return value.name if type(value) is TypeValue else value


def _shown(value: object) -> str:
    return _GO_NAMES.get(type(value), type(value).__name__)


def _key(program: Program, device: Device) -> Hashable:
    """The program, and the values that its result depends on."""
    reads, attributes, quantities = program.reads, device.attributes, device.quantities
    return (
        program.mark,
        device.driver if reads.driver else None,
        device.allow_multiple_allocations if reads.allow_multiple_allocations else None,
        tuple([_distinct(attributes.get(name, _ABSENT)) for name in reads.attributes]),
        tuple([_distinct(quantities.get(name, _ABSENT)) for name in reads.capacities]),
    )


def _size_of_result(key: tuple[object, object, object, Sized, Sized], result: bool | str) -> int:  # noqa: FBT001
    """The result, its text as so many values of 64 characters, and the values that it depends on."""
    _, _, _, attributes, quantities = key
    return 1 + len(attributes) + len(quantities) + (len(result) // 64 if isinstance(result, str) else 0)


def _distinct(value: object) -> Hashable:
    """A value as part of a key: ``True`` differs from 1, and the format of a quantity can matter."""
    if isinstance(value, str):  # equals no value of another type
        return value
    if isinstance(value, tuple):
        return tuple([_distinct(element) for element in value])
    if isinstance(value, Quantity):
        return value.nano, value.format
    return type(value), value
