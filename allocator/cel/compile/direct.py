"""Plans to closures that count nothing, for expressions whose cost has a bound within the limit.

Most device selectors are of this kind: no comprehensions, and comparisons with constants. The bound is found once,
when compiling, by the same formulas that the meter uses, so evaluation has nothing left to count. Errors are
exceptions here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, NoReturn, TypeAlias

from allocator.cel.calls import implementation
from allocator.cel.checked import (
    Choice,
    Constant,
    Input,
    Invoke,
    KnownInput,
    Logic,
    Membership,
    Path,
    Plan,
    device_input,
)
from allocator.cel.cost import FOLDED_AT_MOST, ONE, UNKNOWN_SIZE
from allocator.cel.errors import EvaluationError, StoppedError, no_such_overload
from allocator.cel.types import Type
from allocator.cel.values import Value, lookup, membership, size
from allocator.model.devices import Device

Evaluate: TypeAlias = Callable[[Device], Value]
"""Yields a value or raises `EvaluationError`."""

_MAX_DEPTH: Final = 40
_OPERATORS: Final = {"_==_": eq, "_!=_": ne, "_<_": lt, "_<=_": le, "_>_": gt, "_>=_": ge}
_SCALARS: Final = frozenset(
    {"bool", "int", "uint", "double", "null_type", "google.protobuf.Timestamp", "google.protobuf.Duration"}
    | {"kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "kubernetes.NamedFormat"}
)


@dataclass(frozen=True, slots=True)
class Direct:
    """A compiled plan: its closure, and bounds of its cost and of its value's size."""

    evaluate: Evaluate
    cost: int
    size: int = UNKNOWN_SIZE


def compile_direct(plan: Plan, depth: int = 0) -> Direct | None:
    """The closure of a plan, or None if it needs the meter."""
    if depth > _MAX_DEPTH:
        return None
    if isinstance(plan, Path):
        return _path(plan)
    if isinstance(plan, Constant):
        return _constant(plan.value)
    if isinstance(plan, KnownInput):
        return Direct(_has(plan.input), 4, 1)
    compiler = _COMPILERS.get(type(plan))
    return None if compiler is None else compiler(plan, depth)


def _constant(value: Value) -> Direct:
    return Direct(lambda _device: value, 0, size(value))


def _size_of(kind: Type) -> int:
    return 1 if kind.name in _SCALARS else UNKNOWN_SIZE


def _path(plan: Path) -> Direct | None:
    wanted = device_input(plan)
    if wanted is None or any(key.optional for key in plan.keys):
        return None
    rest = [key.value.value for key in plan.keys[wanted.keys :] if isinstance(key.value, Constant)]
    if len(rest) != len(plan.keys) - wanted.keys:
        return None
    cost = 1 + len(plan.keys)
    if plan.test:
        return None if rest else Direct(_has(wanted), cost, 1)
    read = _read(wanted)
    if not rest:
        return Direct(read, cost, _size_of(plan.type))

    def evaluate(device: Device) -> Value:
        value = read(device)
        for key in rest:
            value = lookup(value, key)
        return value

    return Direct(evaluate, cost)


def _read(wanted: Input) -> Evaluate:
    kind, name = wanted.kind, wanted.name
    if kind == "driver":
        return lambda device: device.id.driver
    if kind == "allowMultipleAllocations":
        return lambda device: device.allow_multiple_allocations

    def attribute(device: Device) -> Value:
        try:
            return device.attributes[name]
        except KeyError:
            _missing(name)

    def capacity(device: Device) -> Value:
        try:
            return device.quantities[name]
        except KeyError:
            _missing(name)

    return attribute if kind == "attributes" else capacity


def _missing(name: str) -> NoReturn:
    raise EvaluationError(f"no such key: {name.partition('/')[2]}") from None


def _has(wanted: Input) -> Evaluate:
    name = wanted.name
    if wanted.kind == "attributes":
        return lambda device: name in device.attributes
    return lambda device: name in device.quantities


def _invoke(plan: Invoke, depth: int) -> Direct | None:
    if any(overload.grows for overload in plan.candidates):
        return None
    arguments = [compile_direct(argument, depth + 1) for argument in plan.arguments]
    compiled = [argument for argument in arguments if argument is not None]
    if len(compiled) != len(arguments):
        return None
    formula = plan.function.cost
    if formula is None and len(plan.candidates) == 1:
        formula = plan.candidates[0].cost
    cost = sum(argument.cost for argument in compiled) + (formula or ONE).bound([a.size for a in compiled])
    call = implementation(plan)
    if cost <= FOLDED_AT_MOST and all(isinstance(argument, Constant) for argument in plan.arguments):
        folded = _folded(call, plan.arguments)
        if folded is not None:
            return Direct(folded, cost, _size_of(plan.type))
    evaluate = _comparison(plan, compiled, call) or _call(call, [a.evaluate for a in compiled])
    return Direct(evaluate, cost, _size_of(plan.type))


def _folded(call: Callable[..., Value], arguments: tuple[Plan, ...]) -> Evaluate | None:
    """A call of constants is computed once, unless it fails: then it fails each time."""
    try:
        value = call(*[argument.value for argument in arguments if isinstance(argument, Constant)])
    except EvaluationError:
        return None
    return lambda _device: value


def _comparison(plan: Invoke, arguments: list[Direct], call: Callable[..., Value]) -> Evaluate | None:
    """With a constant on the right: Python's own operator does where the left has the constant's type."""
    operator = _OPERATORS.get(plan.function.name)
    if operator is None or not isinstance(plan.arguments[1], Constant):
        return None
    left, right = arguments[0].evaluate, plan.arguments[1].value
    kind = type(right)
    if kind not in (str, int, bool):
        return None
    wanted = device_input(plan.arguments[0]) if isinstance(plan.arguments[0], Path) else None
    if plan.function.name == "_==_" and wanted is not None and wanted.kind == "driver" and kind is str:
        return lambda device: bool(device.id.driver == right)

    def compared(device: Device) -> bool:
        value = left(device)
        return bool(operator(value, right)) if type(value) is kind else bool(call(value, right))

    return compared


def _call(call: Callable[..., Value], arguments: list[Evaluate]) -> Evaluate:
    match arguments:
        case [only]:
            return lambda device: call(only(device))
        case [left, right]:
            return lambda device: call(left(device), right(device))
        case _:
            return lambda device: call(*[argument(device) for argument in arguments])


def _membership(plan: Membership, depth: int) -> Direct | None:
    value = compile_direct(plan.value, depth + 1)
    if value is None:
        return None
    read, has = value.evaluate, membership(plan.elements)
    strings = frozenset(element for element in plan.elements if type(element) is str)

    def evaluate(device: Device) -> bool:
        found = read(device)
        return found in strings if type(found) is str else has(found)

    return Direct(evaluate, value.cost, 1)


def _logic(plan: Logic, depth: int) -> Direct | None:
    terms = [compile_direct(term, depth + 1) for term in plan.terms]
    compiled = [term for term in terms if term is not None]
    if len(compiled) != len(terms):
        return None
    evaluates = [term.evaluate for term in compiled]
    if len(evaluates) > 2:
        evaluate = _any_of(evaluates) if plan.decisive else _all_of(evaluates)
    else:
        evaluate = _either(*evaluates) if plan.decisive else _both(*evaluates)
    return Direct(evaluate, sum(term.cost for term in compiled), 1)


def _all_of(terms: list[Evaluate]) -> Evaluate:
    """``&&`` of many."""

    def evaluate(device: Device) -> bool:
        for index, term in enumerate(terms):
            try:
                value = term(device)
            except StoppedError:
                raise
            except EvaluationError:
                if any(_or_none(other, device) is False for other in terms[index + 1 :]):
                    return False
                raise
            if value is True:
                continue
            if value is False or any(_or_none(other, device) is False for other in terms[index + 1 :]):
                return False
            raise no_such_overload()
        return True

    return evaluate


def _any_of(terms: list[Evaluate]) -> Evaluate:
    """``||`` of many."""

    def evaluate(device: Device) -> bool:
        for index, term in enumerate(terms):
            try:
                value = term(device)
            except StoppedError:
                raise
            except EvaluationError:
                if any(_or_none(other, device) is True for other in terms[index + 1 :]):
                    return True
                raise
            if value is False:
                continue
            if value is True or any(_or_none(other, device) is True for other in terms[index + 1 :]):
                return True
            raise no_such_overload()
        return False

    return evaluate


def _both(left: Evaluate, right: Evaluate) -> Evaluate:
    """``&&``: a false on the right makes an error on the left not matter."""

    def evaluate(device: Device) -> bool:
        try:
            value = left(device)
        except StoppedError:
            raise
        except EvaluationError:
            if _or_none(right, device) is False:
                return False
            raise
        if value is True:
            return _bool(right(device))
        if value is False or _or_none(right, device) is False:
            return False
        raise no_such_overload()

    return evaluate


def _either(left: Evaluate, right: Evaluate) -> Evaluate:
    """``||``: a true on the right makes an error on the left not matter."""

    def evaluate(device: Device) -> bool:
        try:
            value = left(device)
        except StoppedError:
            raise
        except EvaluationError:
            if _or_none(right, device) is True:
                return True
            raise
        if value is False:
            return _bool(right(device))
        if value is True or _or_none(right, device) is True:
            return True
        raise no_such_overload()

    return evaluate


def _or_none(evaluate: Evaluate, device: Device) -> Value:
    """The value, if there is one: the first error is the one that counts."""
    try:
        return evaluate(device)
    except StoppedError:
        raise
    except EvaluationError:
        return None


def _bool(value: Value) -> bool:
    if value is True or value is False:
        return bool(value)
    raise no_such_overload()


def _choice(plan: Choice, depth: int) -> Direct | None:
    parts = [compile_direct(part, depth + 1) for part in (plan.condition, plan.yes, plan.no)]
    compiled = [part for part in parts if part is not None]
    if len(compiled) != len(parts):
        return None
    condition, yes, no = (part.evaluate for part in compiled)

    def evaluate(device: Device) -> Value:
        return yes(device) if _bool(condition(device)) else no(device)

    sizes = max(compiled[1].size, compiled[2].size)
    return Direct(evaluate, sum(part.cost for part in compiled), sizes)


_COMPILERS: Final[Mapping[type, Callable[[Any, int], Direct | None]]] = {
    Invoke: _invoke,
    Membership: _membership,
    Logic: _logic,
    Choice: _choice,
}
