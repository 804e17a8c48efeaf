"""Calls: which overloads fit by type, what is constant, how arguments reach an implementation."""

from collections.abc import Mapping, Sequence
from typing import Final

from allocator.cel.checked import Constant, DeviceVariable, Input, Invoke, KnownInput, Membership, Path, Plan
from allocator.cel.cost import FOLDED_AT_MOST, ONE, Cost
from allocator.cel.errors import EvaluationError, no_such_overload
from allocator.cel.functions.conversions import CONVERSIONS
from allocator.cel.functions.declare import Function, Implementation, Overload
from allocator.cel.functions.regexes import PATTERNS, compile_pattern
from allocator.cel.types import BOOL, DYN, NULLABLE, Solution, Type
from allocator.cel.values import Value, from_key, type_name

_SIMPLE: Final = frozenset({bool, int, float, str}) | {type(None)}


def constant_pattern(call: Invoke) -> str | None:
    """The constant regular expression of a call; it is compiled with the expression, as upstream does. Else None."""
    pattern = call.arguments[1] if call.function.name in PATTERNS else None
    return pattern.value if isinstance(pattern, Constant) and isinstance(pattern.value, str) else None


class Calls:
    """Resolves calls while an expression is checked."""

    def __init__(self, functions: Mapping[str, Function], solution: Solution) -> None:
        self._functions = functions
        self._solution = solution

    def invoke(self, function: Function, arguments: tuple[Plan, ...], *, member: bool) -> Plan | None:
        """The plan of a call; None if no overload takes these types.

        Raises:
            EvaluationError: a constant argument that can never work.
        """
        kinds = [argument.type for argument in arguments]
        candidates, result = self._overloads(function, kinds, member=member)
        if not candidates or result is None:
            return None
        call = Invoke(function, candidates, arguments, result)
        if function.name in CONVERSIONS and isinstance(arguments[0], Constant):
            return Constant(implementation(call)(arguments[0].value), call.type)
        if (pattern := constant_pattern(call)) is not None:
            compile_pattern(pattern)
        if function.name == "@in":
            return _membership(call)
        return call

    def _overloads(
        self, function: Function, kinds: Sequence[Type], *, member: bool
    ) -> tuple[tuple[Overload, ...], Type | None]:
        found: list[Overload] = []
        result: Type | None = None
        for overload in function.overloads:
            if overload.member is not member or len(overload.parameters) != len(kinds):
                continue
            fresh: dict[Type, Type] = {}
            wanted = [self._instance(parameter, fresh) for parameter in overload.parameters]
            if not self._solution.accept(wanted, kinds):
                continue
            yields = self._solution.resolve(self._instance(overload.result, fresh))
            result = yields if result is None or result == yields else DYN
            found.append(overload)
        return tuple(found), result

    def _instance(self, kind: Type, fresh: dict[Type, Type]) -> Type:
        """The type with fresh type parameters."""
        if kind.is_parameter:
            if kind not in fresh:
                fresh[kind] = self._solution.fresh()
            return fresh[kind]
        if not kind.parameters:
            return kind
        return Type(kind.name, tuple(self._instance(parameter, fresh) for parameter in kind.parameters))


def _membership(call: Invoke) -> Plan:
    """Cheaper plans for ``in``: over a list of simple constants, and over a domain of the device."""
    value, container = call.arguments
    if isinstance(container, Constant) and type(container.value) is tuple and len(call.candidates) == 1:
        elements = container.value
        if not elements:
            return Constant(value=False, type=BOOL)
        if all(type(element) in _SIMPLE and element is not None for element in elements):
            return Membership(value, elements, BOOL)
    if isinstance(container, Path) and isinstance(container.root, DeviceVariable) and isinstance(value, Constant):
        names = [key.value.value for key in container.keys if isinstance(key.value, Constant) and not key.optional]
        match names:
            case ["attributes" | "capacity" as kind, str(domain)] if isinstance(value.value, str):
                return KnownInput(Input(kind, f"{domain}/{value.value}", 2), BOOL)
    return call


def implementation(call: Invoke) -> Implementation:
    """The function that takes the values of the arguments."""
    only = call.candidates[0]
    known = not any(_is_uncertain(argument.type) or _may_be_null(argument) for argument in call.arguments)
    if len(call.candidates) == 1 and (known or all(map(_is_open, only.parameters))):
        return only.implementation
    if not call.function.singleton:
        return _dispatch(call.candidates)
    alike = (only.member, len(only.parameters))
    return _dispatch(tuple(o for o in call.function.overloads if (o.member, len(o.parameters)) == alike))


def cost_of(call: Invoke) -> Cost:
    """The cost of the function, or else of the overload if types tell which one it is."""
    if call.function.cost is not None:
        return call.function.cost
    only = call.candidates[0].cost if len(call.candidates) == 1 else None
    return ONE if only is None else only


def folded(call: Invoke) -> Constant | None:
    """The result of a cheap call of constants, computed once; None for any other call.

    A call that fails is not folded, because it fails at each evaluation.
    """
    values = [argument.value for argument in call.arguments if isinstance(argument, Constant)]
    if len(values) < len(call.arguments) or cost_of(call).of(values, None) > FOLDED_AT_MOST:
        return None
    try:
        return Constant(implementation(call)(*values), call.type)
    except EvaluationError:
        return None


def _may_be_null(argument: Plan) -> bool:
    """Whether the argument can be null although it has another type: some types allow null."""
    if argument.type.name not in NULLABLE and argument.type.name != "null_type":
        return False
    match argument:
        case Constant(value=value):
            return value is None
        case Path(root=DeviceVariable()):
            return False
        case Invoke(candidates=candidates):
            return any(map(_is_open, (overload.result for overload in candidates)))
        case _:
            return True


def _is_open(kind: Type) -> bool:
    return kind.is_dynamic or kind.is_parameter


def _is_uncertain(kind: Type) -> bool:
    """Whether only the value tells the type, or the types of its parts."""
    return _is_open(kind) or any(map(_is_uncertain, kind.parameters))


def _dispatch(candidates: tuple[Overload, ...]) -> Implementation:
    """Picks the overload by the types of the values, and remembers the choice for these types."""
    if any(not _is_uncertain(kind) and kind.parameters for overload in candidates for kind in overload.parameters):
        return lambda *arguments: _pick(candidates, arguments)(*arguments)
    picked: dict[tuple[type, ...], Implementation] = {}
    if len(candidates[0].parameters) == 2:

        def on_two(left: Value, right: Value) -> Value:
            found = picked.get((type(left), type(right)))
            if found is None:
                found = picked[type(left), type(right)] = _pick(candidates, (left, right))
            return found(left, right)

        return on_two

    def call(*arguments: Value) -> Value:
        types = tuple([type(argument) for argument in arguments])
        found = picked.get(types)
        if found is None:
            found = picked[types] = _pick(candidates, arguments)
        return found(*arguments)

    return call


def _pick(candidates: tuple[Overload, ...], arguments: Sequence[Value]) -> Implementation:
    for overload in candidates:
        if all(map(_admits, overload.parameters, arguments)):
            return overload.implementation
    raise no_such_overload()


def _admits(parameter: Type, value: Value) -> bool:
    """Whether a value has the type of a parameter; of a list or map, the first element is checked."""
    if _is_open(parameter):
        return True
    if parameter.name != type_name(value):
        return False
    if type(value) is tuple and value:
        return _admits(parameter.parameters[0], value[0])
    if isinstance(value, dict) and value:
        key, item = next(iter(value.items()))
        return _admits(parameter.parameters[0], from_key(key)) and _admits(parameter.parameters[1], item)
    return True
