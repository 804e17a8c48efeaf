"""Plans to closures that count no cost: for expressions whose cost has a bound within the limit.

Most device selectors are of this kind: comparisons with constants, no comprehensions. The bound is computed once, at
compile time, by the formulas of the meter, so an evaluation has nothing to count. Errors are exceptions here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, NoReturn, TypeAlias

from allocator.cel.calls import cost_of, folded, implementation
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
from allocator.cel.cost import UNKNOWN_SIZE
from allocator.cel.equality import membership
from allocator.cel.errors import EvaluationError, StoppedError, no_such_overload
from allocator.cel.keys import lookup
from allocator.cel.types import Type
from allocator.cel.values import Value, size
from allocator.model.slices.device import Device

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
    """A compiled plan: its closure, and upper bounds of its cost and of the size of its value."""

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


def _compiled(plans: Iterable[Plan], depth: int) -> list[Direct] | None:
    """The parts of a plan, or None if one of them needs the meter."""
    found: list[Direct] = []
    for plan in plans:
        direct = compile_direct(plan, depth + 1)
        if direct is None:
            return None
        found.append(direct)
    return found


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
    arguments = _compiled(plan.arguments, depth)
    if arguments is None:
        return None
    cost = sum(argument.cost for argument in arguments) + cost_of(plan).bound([a.size for a in arguments])
    result = folded(plan)
    if result is not None:
        return Direct(_constant(result.value).evaluate, cost, _size_of(plan.type))
    call = implementation(plan)
    evaluate = _comparison(plan, arguments, call) or _call(call, [a.evaluate for a in arguments])
    return Direct(evaluate, cost, _size_of(plan.type))


def _comparison(plan: Invoke, arguments: list[Direct], call: Callable[..., Value]) -> Evaluate | None:
    """A comparison with a constant on the right: Python's operator, if the left value has the constant's type."""
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
    terms = _compiled(plan.terms, depth)
    if terms is None:
        return None
    evaluates, decisive = [term.evaluate for term in terms], plan.decisive
    evaluate = _of_two(*evaluates, decisive=decisive) if len(terms) == 2 else _of_many(evaluates, decisive=decisive)
    return Direct(evaluate, sum(term.cost for term in terms), 1)


def _of_many(terms: list[Evaluate], *, decisive: bool) -> Evaluate:
    """``&&`` (decisive: false) or ``||`` (true): a decisive term absorbs the error of an earlier term."""
    neutral = not decisive

    def evaluate(device: Device) -> bool:
        for index, term in enumerate(terms):
            try:
                value = term(device)
            except StoppedError:
                raise
            except EvaluationError:
                if any(_or_none(other, device) is decisive for other in terms[index + 1 :]):
                    return decisive
                raise
            if value is neutral:
                continue
            if value is decisive or any(_or_none(other, device) is decisive for other in terms[index + 1 :]):
                return decisive
            raise no_such_overload()
        return neutral

    return evaluate


def _of_two(left: Evaluate, right: Evaluate, *, decisive: bool) -> Evaluate:
    """Like `_of_many`, without a loop."""
    neutral = not decisive

    def evaluate(device: Device) -> Value:
        try:
            value = left(device)
        except StoppedError:
            raise
        except EvaluationError:
            if _or_none(right, device) is decisive:
                return decisive
            raise
        if value is neutral:
            return _bool(right(device))
        if value is decisive or _or_none(right, device) is decisive:
            return decisive
        raise no_such_overload()

    return evaluate


def _or_none(evaluate: Evaluate, device: Device) -> Value:
    """The value, or None for an error: the caller raises the first error of its terms."""
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
    parts = _compiled((plan.condition, plan.yes, plan.no), depth)
    if parts is None:
        return None
    condition, yes, no = (part.evaluate for part in parts)

    def evaluate(device: Device) -> Value:
        return yes(device) if _bool(condition(device)) else no(device)

    return Direct(evaluate, sum(part.cost for part in parts), max(part.size for part in parts[1:]))


_COMPILERS: Final[Mapping[type, Callable[[Any, int], Direct | None]]] = {
    Invoke: _invoke,
    Membership: _membership,
    Logic: _logic,
    Choice: _choice,
}
