"""Calls: which overloads fit by type, what is constant, how arguments reach an implementation.

Operators and functions that have a plan of their own have types here, with the overloads in cel-go's order.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from allocator.cel.checked import (
    Choice,
    Constant,
    DeviceVariable,
    Input,
    Invoke,
    KnownInput,
    Logic,
    MakeList,
    MakeMap,
    Membership,
    OrElse,
    Path,
    Plan,
    Variable,
    parts,
)
from allocator.cel.cost import FOLDED_AT_MOST, ONE, Cost
from allocator.cel.errors import EvaluationError, no_such_overload
from allocator.cel.functions.conversions import CONVERSIONS
from allocator.cel.functions.declare import Function, Implementation, Overload
from allocator.cel.functions.regexes import PATTERNS, compile_pattern
from allocator.cel.keys import from_key
from allocator.cel.types import BOOL, DYN, INT, A, B, Solution, Type, list_of, map_of, optional_of
from allocator.cel.values import UInt, Value, type_name

Signature: TypeAlias = tuple[tuple[Type, ...], Type]
"""The types of the arguments, and the type of the result."""

_LIST, _MAP = list_of(A), map_of(A, B)

SIGNATURES: Final[Mapping[str, tuple[Signature, ...]]] = {
    "_?_:_": (((BOOL, A, A), A),),
    "_[_]": (
        ((_LIST, INT), A),
        ((_MAP, A), B),
        ((optional_of(_LIST), INT), optional_of(A)),
        ((optional_of(_MAP), A), optional_of(B)),
    ),
    "_[?_]": (
        ((_LIST, INT), optional_of(A)),
        ((optional_of(_LIST), INT), optional_of(A)),
        ((_MAP, A), optional_of(B)),
        ((optional_of(_MAP), A), optional_of(B)),
    ),
    "or": (((optional_of(A), optional_of(A)), optional_of(A)),),
    "orValue": (((optional_of(A), A), A),),
    "cel.@mapInsert": (((_MAP, A, B), _MAP), ((_MAP, _MAP), _MAP)),
}
"""Signatures by function."""


_SIMPLE: Final = frozenset({bool, int, UInt, float, str})


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

    def result(self, name: str, kinds: Sequence[Type]) -> Type | None:
        """The type of a call that has a plan of its own (`SIGNATURES`); None if no signature takes these types."""
        return _common([found for signature in SIGNATURES[name] if (found := self._fit(*signature, kinds)) is not None])

    def sum(self, kinds: Sequence[Type]) -> Type | None:
        """The type of a sum; None if these types cannot be added."""
        return self._overloads(self._functions["_+_"], kinds, member=False)[1]

    def _overloads(
        self, function: Function, kinds: Sequence[Type], *, member: bool
    ) -> tuple[tuple[Overload, ...], Type | None]:
        found: list[tuple[Overload, Type]] = []
        for overload in function.overloads:
            if overload.member is not member:
                continue
            result = self._fit(overload.parameters, overload.result, kinds)
            if result is not None:
                found.append((overload, result))
        return tuple(overload for overload, _ in found), _common([result for _, result in found])

    def _fit(self, parameters: Sequence[Type], result: Type, kinds: Sequence[Type]) -> Type | None:
        """The type of the result if parameters take arguments of these types; what was found out stays known."""
        fresh: dict[Type, Type] = {}
        if len(parameters) != len(kinds):
            return None
        if not self._solution.accept([self._instance(parameter, fresh) for parameter in parameters], kinds):
            return None
        return self._solution.resolve(self._instance(result, fresh))

    def _instance(self, kind: Type, fresh: dict[Type, Type]) -> Type:
        """The type with fresh type parameters."""
        if kind.is_parameter:
            if kind not in fresh:
                fresh[kind] = self._solution.fresh()
            return fresh[kind]
        if not kind.parameters:
            return kind
        return Type(kind.name, tuple(self._instance(parameter, fresh) for parameter in kind.parameters))


def _common(kinds: Sequence[Type]) -> Type | None:
    """The type of a result that has one of these types; None if there are none."""
    if not kinds:
        return None
    return kinds[0] if all(kind == kinds[0] for kind in kinds) else DYN


def _membership(call: Invoke) -> Plan:
    """Cheaper plans for ``in``: over a list of simple constants, and over a domain of the device."""
    value, container = call.arguments
    if isinstance(container, Constant) and type(container.value) is tuple and len(call.candidates) == 1:
        elements = container.value
        if not elements:
            return Constant(value=False, type=BOOL)
        if all(type(element) in _SIMPLE for element in elements):
            return Membership(value, elements, BOOL)
    if isinstance(container, Path) and isinstance(container.root, DeviceVariable) and isinstance(value, Constant):
        names = [key.value.value for key in container.keys if isinstance(key.value, Constant) and not key.optional]
        match names:
            case ["attributes" | "capacity" as kind, str(domain)] if isinstance(value.value, str):
                return KnownInput(Input(kind, f"{domain}/{value.value}", 2), BOOL)
    return call


def implementation(call: Invoke) -> Implementation:
    """The function that takes the values of the arguments; it fails if the values do not fit the overload.

    If types leave several overloads, the values decide between all of them.
    """
    function, only = call.function, call.candidates[0]
    if len(call.candidates) == 1:
        if not function.guarded or all(map(_is_open, only.parameters)) or all(map(is_certain, call.arguments)):
            return only.implementation
        if not function.singleton:
            return _dispatch(call.candidates)
    alike = [o for o in function.overloads if len(o.parameters) == len(only.parameters)]
    return _dispatch(tuple(o for o in alike if o.member is only.member or not function.singleton))


def cost_of(call: Invoke) -> Cost:
    """The cost of the overload if types tell which one it is, or else of the function."""
    only = call.candidates[0].cost if len(call.candidates) == 1 else None
    return only or call.function.cost or ONE


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


def is_certain(plan: Plan) -> bool:
    """Whether every value of the plan has the plan's type, and is not null.

    The checker lets dyn stand for every type, so a type that it has found out for a type parameter may be wrong.
    """
    if _is_uncertain(plan.type):
        return False
    match plan:
        case Constant() | KnownInput() | Membership() | Logic() | Path(root=DeviceVariable()):
            return True
        case Variable(certain=certain):
            return certain
        case Path(root=root):
            return is_certain(root)
        case Choice(yes=one, no=other) | OrElse(optional=one, other=other):
            return is_certain(one) and is_certain(other)
        case Invoke(function=function, candidates=candidates, arguments=arguments):
            declared = not (function.singleton or any(_is_uncertain(overload.result) for overload in candidates))
            return declared or all(map(is_certain, arguments))
        case MakeList() | MakeMap():
            return all(map(is_certain, parts(plan)))
        case _:
            return False


def _is_open(kind: Type) -> bool:
    return kind.is_dynamic or kind.is_parameter


def _is_uncertain(kind: Type) -> bool:
    """Whether only the value tells the type, or the types of its parts."""
    return _is_open(kind) or kind.name == "null_type" or any(map(_is_uncertain, kind.parameters))


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
