"""Syntax tree to plan: resolves names, checks types as cel-go's checker does, folds constants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from typing import Final

from allocator.cel import ast
from allocator.cel.ast import dotted
from allocator.cel.calls import Calls, is_certain
from allocator.cel.checked import (
    Append,
    Choice,
    Constant,
    DeviceVariable,
    Insert,
    Key,
    Logic,
    Loop,
    MakeList,
    MakeMap,
    OrElse,
    Path,
    Plan,
    Variable,
    constant_map,
)
from allocator.cel.errors import CompileError, EvaluationError
from allocator.cel.functions.declare import Declarations
from allocator.cel.keys import INDEXES
from allocator.cel.macros import RESULT
from allocator.cel.templates import check_template
from allocator.cel.types import (
    BOOL,
    DEVICE,
    DYN,
    INT,
    STRING,
    TYPE,
    TYPE_NAMES,
    Solution,
    Type,
    key_type,
    list_of,
    map_of,
    optional_of,
)
from allocator.cel.values import TypeValue, type_name

_LITERALS: Final[Mapping[str, Type]] = {
    name: Type(name) for name in ("bool", "int", "uint", "double", "string", "bytes", "null_type")
}

_LONGEST_NAME: Final = 64
"""Longer names get no suggestion: the time to compare two names grows with the product of their lengths."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked expression: its plan, its type, and the number of slots for its variables."""

    plan: Plan
    type: Type
    slots: int


def check(expression: str, node: ast.Node, declarations: Declarations) -> Checked:
    """Check a syntax tree.

    Raises:
        CompileError: unknown names, or types that do not fit.
    """
    checker = _Checker(expression, declarations)
    plan = checker.visit(node, {})
    checker.check_aggregates()
    checker.check_variables()
    return Checked(plan, checker.solution.final(plan.type), checker.slots)


Scope = Mapping[str, Variable]


class _Checker:
    """Checks one expression."""

    def __init__(self, expression: str, declarations: Declarations) -> None:
        self._expression = expression
        self._declarations = declarations
        self.solution = Solution()
        self.slots = 0
        self._formatting = 0
        self._literals: dict[int, list[Plan]] = {}
        self._aggregates: list[tuple[int, Sequence[Type]]] = []
        self._variables: list[tuple[ast.Ident, Type]] = []
        self._calls = Calls(declarations.functions, self.solution)

    def _error(self, position: int, message: str, name: str = "", known: Sequence[str] = ()) -> CompileError:
        likely = [other for other in known if len(other) <= _LONGEST_NAME] if len(name) <= _LONGEST_NAME else []
        close = get_close_matches(name, likely, n=1, cutoff=0.6) if name else []
        hint = f"; did you mean '{close[0]}'?" if close else ""
        return CompileError(self._expression, position, message + hint)

    def _no_overload(
        self, position: int, function: str, given: Sequence[Type], *, member: bool = False
    ) -> CompileError:
        shown = [str(self.solution.final(kind)) for kind in given]
        applied = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
        return self._error(position, f"found no matching overload for '{function}' applied to '{applied}'")

    def _accept(self, position: int, want: Type, have: Type) -> None:
        if not self.solution.accept((want,), (have,)):
            want, have = self.solution.final(want), self.solution.final(have)
            raise self._error(position, f"expected type '{want}' but found '{have}'")

    def visit(self, node: ast.Node, scope: Scope) -> Plan:
        """The plan of a node; ``scope`` has the variables."""
        match node:
            case ast.Literal(value=value):
                return Constant(value, _LITERALS[type_name(value)])
            case ast.Ident():
                return self._ident(node, scope)
            case ast.Select() | ast.Index():
                return self._path(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.ListNode():
                return self._list(node, scope)
            case ast.MapNode():
                return self._map(node, scope)
            case ast.Fold():
                return self._fold(node, scope)
        raise self._error(node.position, f"undeclared reference to '{node.name}'")

    def _ident(self, node: ast.Ident, scope: Scope) -> Plan:
        name = node.name
        if name in scope:
            self._variables.append((node, scope[name].type))
            return scope[name]
        if name == "device":
            return DeviceVariable(DEVICE)
        if name in TYPE_NAMES:
            return Constant(TypeValue(name), TYPE_NAMES[name])
        known = [*scope, *TYPE_NAMES, "device"]
        raise self._error(node.position, f"undeclared reference to '{name}'", name, [n for n in known if n != RESULT])

    # --- paths -----------------------------------------------------------------------------------------------

    def _path(self, node: ast.Select | ast.Index, scope: Scope) -> Plan:
        named = self._qualified_type(node, scope)
        if named is not None:
            return named
        operand = self.visit(node.operand, scope)
        root, keys = (operand.root, operand.keys) if isinstance(operand, Path) and not operand.test else (operand, ())
        if isinstance(node, ast.Select):
            kind = self._field(operand, node)
            key: Plan = Constant(node.field, STRING)
        else:
            key = self.visit(node.key, scope)
            if (
                isinstance(key, Constant) and type(key.value) not in INDEXES
            ):  # cel-go refuses it when it plans the expression
                raise self._error(node.key.position, f"invalid qualifier type: {type_name(key.value)}")
            kind = self._special("_[?_]" if node.optional else "_[_]", node.position, (operand, key))
        test = isinstance(node, ast.Select) and node.test
        return Path(root, (*keys, Key(key, node.optional)), BOOL if test else kind, test)

    def _qualified_type(self, node: ast.Select | ast.Index, scope: Scope) -> Plan | None:
        """``google.protobuf.Timestamp`` and the like."""
        name = dotted(node)
        if name is None or name.partition(".")[0] in scope or name not in TYPE_NAMES:
            return None
        return Constant(TypeValue(name), TYPE_NAMES[name])

    def _field(self, operand: Plan, node: ast.Select) -> Type:
        kind = self.solution.resolve(operand.type)
        optional = kind.name == "optional_type"
        if optional:
            kind = kind.parameters[0]
        if kind == DEVICE:
            fields = self._declarations.device
            if node.field not in fields:
                raise self._error(node.position, f"undefined field '{node.field}'", node.field, list(fields))
            found = fields[node.field]
        elif kind.name == "map":
            found = kind.parameters[1]
        elif kind.is_dynamic or kind.is_parameter:
            self.solution.accept((kind,), (DYN,))
            found = DYN
        else:
            raise self._error(node.position, f"type '{kind}' does not support field selection")
        return optional_of(found) if optional or node.optional else found

    def _special(self, name: str, position: int, arguments: Sequence[Plan], *, member: bool = False) -> Type:
        """The type of an operator or function that has a plan of its own."""
        kinds = [argument.type for argument in arguments]
        found = self._calls.result(name, kinds)
        if found is None:
            raise self._no_overload(position, name, kinds, member=member)
        return found

    # --- calls -----------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, scope: Scope) -> Plan:
        match node.function:
            case "_&&_" | "_||_":
                terms = tuple(self._expect(argument, BOOL, node, scope) for argument in node.arguments)
                return Logic(terms, node.function == "_||_", BOOL)
            case "_?_:_":
                return self._choice(node, scope)
            case "@append":
                return self._append(node, scope)
            case "cel.@mapInsert":
                return self._insert(node, scope)
        name, arguments, member = self._resolve(node, scope)
        self._formatting += name == "format"
        plans = self._arguments(arguments, scope, member=member)
        self._formatting -= name == "format"
        if member and name in {"or", "orValue"} and len(plans) == 2:
            return OrElse(*plans, name == "orValue", self._special(name, node.position, plans, member=True))
        found = self._declarations.functions.get(name)
        if found is None:
            raise self._error(
                node.position,
                f"undeclared reference to '{name}'",
                name,
                [n for n in self._declarations.functions if n[0].isalpha()],
            )
        try:
            plan = self._calls.invoke(found, plans, member=member)
        except EvaluationError as error:
            raise self._error(node.position, error.message) from None
        if plan is None:
            raise self._no_overload(node.position, name, [plan.type for plan in plans], member=member)
        if name == "format" and member:
            self._check_format(node, arguments)
        return plan

    def _arguments(self, nodes: Sequence[ast.Node], scope: Scope, *, member: bool) -> tuple[Plan, ...]:
        """The plans of arguments. What a call is made on comes last, as in cel-go: types are found in this order."""
        plans = [self.visit(node, scope) for node in nodes[member:]]
        return (self.visit(nodes[0], scope), *plans) if member else tuple(plans)

    def _check_format(self, node: ast.Call, arguments: tuple[ast.Node, ...]) -> None:
        """Check a literal template against a literal list of arguments."""
        template, values = arguments
        if not (isinstance(template, ast.Literal) and isinstance(values, ast.ListNode)):
            return
        try:
            check_template(str(template.value), self._literals[id(values)], self.solution.final)
        except EvaluationError as error:
            raise self._error(node.position, error.message) from None

    def _resolve(self, node: ast.Call, scope: Scope) -> tuple[str, tuple[ast.Node, ...], bool]:
        """The function's name, its arguments, and whether it is a member: ``math.abs(x)`` is not."""
        if node.target is None:
            return node.function, node.arguments, False
        prefix = dotted(node.target)
        if prefix is not None and prefix.partition(".")[0] not in scope:
            name = f"{prefix}.{node.function}"
            if name in self._declarations.functions:
                return name, node.arguments, False
        return node.function, (node.target, *node.arguments), True

    def _expect(self, node: ast.Node, kind: Type, parent: ast.Call, scope: Scope) -> Plan:
        plan = self.visit(node, scope)
        if not self.solution.accept((kind,), (plan.type,)):
            raise self._no_overload(parent.position, parent.function, (plan.type,))
        return plan

    def _choice(self, node: ast.Call, scope: Scope) -> Plan:
        condition, yes, no = (self.visit(argument, scope) for argument in node.arguments)
        return Choice(condition, yes, no, self._special("_?_:_", node.position, (condition, yes, no)))

    # --- aggregates ------------------------------------------------------------------------------------------

    def _joined(self, position: int, kinds: Sequence[Type]) -> Type:
        """The type of elements."""
        if not kinds:
            return self.solution.fresh()
        if not self._formatting:
            self._aggregates.append((position, kinds))
        return reduce(self.solution.join, kinds)

    def check_aggregates(self) -> None:
        """Check that lists and maps have elements of one type, except in the arguments of ``format``.

        Kubernetes checks this at the end, because types that were found out later may turn a type into dyn.

        Raises:
            CompileError: elements of two types.
        """
        for position, kinds in self._aggregates:
            first, *others = [self.solution.final(kind) for kind in kinds]
            for other in others:
                if other != first:
                    raise self._error(position, f"expected type '{first}' but found '{other}'")

    def check_variables(self) -> None:
        """Check that no variable has a type as its value: cel-go takes its name for the name of a type.

        Raises:
            CompileError: a variable of this kind.
        """
        for node, kind in self._variables:
            if self.solution.final(kind).name == TYPE.name:
                raise self._error(node.position, f"reference to undefined type: {node.name}")

    def _part(self, node: ast.Node, scope: Scope, *, optional: bool) -> tuple[Plan, Type]:
        """An element or value, and the type it contributes."""
        plan = self.visit(node, scope)
        if not optional or plan.type.is_dynamic:
            return plan, plan.type
        if plan.type.name != "optional_type":
            given = self.solution.final(plan.type)
            raise self._error(node.position, f"expected type 'optional_type' but found '{given}'")
        return plan, plan.type.parameters[0]

    def _list(self, node: ast.ListNode, scope: Scope) -> Plan:
        parts = [(*self._part(element, scope, optional=optional), optional) for element, optional in node.elements]
        kind = list_of(self._joined(node.position, [kind for _, kind, _ in parts]))
        if self._formatting:
            self._literals[id(node)] = [plan for plan, _, _ in parts]
        if all(isinstance(plan, Constant) and not optional for plan, _, optional in parts):
            return Constant(tuple(plan.value for plan, _, _ in parts if isinstance(plan, Constant)), kind)
        return MakeList(tuple((plan, optional) for plan, _, optional in parts), kind)

    def _map(self, node: ast.MapNode, scope: Scope) -> Plan:
        keys = [self.visit(key, scope) for key, _, _ in node.entries]
        values = [self._part(value, scope, optional=optional) for _, value, optional in node.entries]
        kind = map_of(
            key_type(self.solution.resolve(self._joined(node.position, [key.type for key in keys]))),
            self._joined(node.position, [kind for _, kind in values]),
        )
        flags = [optional for _, _, optional in node.entries]
        plans = [plan for plan, _ in values]
        constant = constant_map(keys, plans) if not any(flags) else None
        return (
            Constant(constant, kind)
            if constant is not None
            else MakeMap(tuple(zip(keys, plans, flags, strict=True)), kind)
        )

    # --- comprehensions --------------------------------------------------------------------------------------

    def _slot(self, kind: Type, *, certain: bool) -> Variable:
        self.slots += 1
        return Variable(self.slots - 1, kind, certain)

    def _fold(self, node: ast.Fold, scope: Scope) -> Plan:
        source, initial = self.visit(node.range, scope), self.visit(node.initial, scope)
        first, second = self._elements(source, node)
        accumulator = self._slot(initial.type, certain=is_certain(initial))
        with_result = {**scope, node.accumulator: accumulator}
        variable = self._slot(first, certain=is_certain(source))
        inner = {**with_result, node.variable: variable}
        other = self._slot(second, certain=is_certain(source)) if node.second else None
        if other is not None:
            inner[node.second] = other
        condition = self.visit(node.condition, inner)
        step = self.visit(node.step, inner)
        self._accept(node.position, step.type, accumulator.type)
        result = self.visit(node.result, with_result)
        return Loop(
            source, variable.slot, None if other is None else other.slot, accumulator.slot, initial, condition, step,
            result, self.solution.resolve(result.type),
        )  # fmt: skip

    def _elements(self, source: Plan, node: ast.Fold) -> tuple[Type, Type]:
        kind = self.solution.resolve(source.type)
        if kind.name == "list":
            return (INT, kind.parameters[0]) if node.second else (kind.parameters[0], DYN)
        if kind.name == "map":
            return kind.parameters[0], kind.parameters[1]
        if kind == DYN or kind.is_parameter:
            self.solution.accept((kind,), (DYN,))
            return DYN, DYN
        raise self._error(
            node.position,
            f"expression of type '{kind}' cannot be range of a comprehension (must be list, map, or dynamic)",
        )

    def _append(self, node: ast.Call, scope: Scope) -> Plan:
        accumulator, element = scope[RESULT], self.visit(node.arguments[1], scope)
        kinds = (accumulator.type, list_of(element.type))
        found = self._calls.sum(kinds)
        if found is None:
            raise self._no_overload(node.position, "_+_", kinds)
        return Append(accumulator, element, found)

    def _insert(self, node: ast.Call, scope: Scope) -> Plan:
        accumulator = scope[RESULT]
        arguments = tuple([self.visit(argument, scope) for argument in node.arguments[1:]])
        return Insert(accumulator, arguments, self._special(node.function, node.position, (accumulator, *arguments)))
