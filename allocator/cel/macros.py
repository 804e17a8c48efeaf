"""Macros: calls that are rewritten before anything is checked.

The expansions are cel-go's, because they decide what an expression costs.
"""

from collections.abc import Callable, Mapping
from typing import Final

from allocator.cel.ast import Call, Fold, Ident, ListNode, Literal, MapNode, Node, Select

RESULT: Final = "@result"
UNUSED: Final = "#unused"


class MacroError(Exception):
    """A macro with wrong arguments, or another fault that is found while the tree is built."""

    def __init__(self, position: int, message: str) -> None:
        self.position = position
        super().__init__(message)


Expansion = Callable[[Call], Node]


def _variable(node: Node) -> str:
    if not isinstance(node, Ident) or node.name == RESULT:
        raise MacroError(node.position, "argument must be a simple name")
    return node.name


def _variables(call: Call) -> tuple[str, str]:
    first, second = _variable(call.arguments[0]), _variable(call.arguments[1])
    if first == second:
        raise MacroError(call.arguments[1].position, f"duplicate variable name: {first}")
    return first, second


def _has(call: Call) -> Node:
    (operand,) = call.arguments
    if not isinstance(operand, Select) or operand.test or operand.optional:
        raise MacroError(operand.position, "invalid argument to has() macro")
    return Select(operand.operand, operand.field, operand.position, test=True)


def _fold(call: Call, names: tuple[str, str], initial: Node, condition: Node, step: Node, result: Node) -> Node:
    target = call.target
    if target is None:
        raise MacroError(call.position, f"{call.function}() needs something to be called on")
    return Fold(target, *names, RESULT, initial, condition, step, result, call.position)


def _names(call: Call) -> tuple[str, str]:
    """One variable (two arguments: ``x, predicate``) or two (three: ``k, v, predicate``)."""
    return (_variable(call.arguments[0]), "") if len(call.arguments) == 2 else _variables(call)


def _all(call: Call) -> Node:
    at = call.position
    result = Ident(RESULT, at)
    return _fold(
        call,
        _names(call),
        Literal(value=True, position=at),
        Call("@not_strictly_false", (result,), at),
        Call("_&&_", (result, call.arguments[-1]), at),
        result,
    )


def _exists(call: Call) -> Node:
    at = call.position
    result = Ident(RESULT, at)
    return _fold(
        call,
        _names(call),
        Literal(value=False, position=at),
        Call("@not_strictly_false", (Call("!_", (result,), at),), at),
        Call("_||_", (result, call.arguments[-1]), at),
        result,
    )


def _exists_one(call: Call) -> Node:
    at = call.position
    result = Ident(RESULT, at)
    step = Call("_?_:_", (call.arguments[-1], Call("_+_", (result, Literal(1, at)), at), result), at)
    return _fold(
        call,
        _names(call),
        Literal(0, at),
        Literal(value=True, position=at),
        step,
        Call("_==_", (result, Literal(1, at)), at),
    )


def _collecting(call: Call, names: tuple[str, str], insert: Node, predicate: Node | None, initial: Node) -> Node:
    """``insert`` for each element that satisfies ``predicate``."""
    at = call.position
    result = Ident(RESULT, at)
    step = insert if predicate is None else Call("_?_:_", (predicate, insert, result), at)
    return _fold(call, names, initial, Literal(value=True, position=at), step, result)


def _append(call: Call, element: Node) -> Node:
    return Call("@append", (Ident(RESULT, call.position), element), call.position)


def _map(call: Call) -> Node:
    predicate = call.arguments[1] if len(call.arguments) == 3 else None
    names = (_variable(call.arguments[0]), "")
    return _collecting(call, names, _append(call, call.arguments[-1]), predicate, ListNode((), call.position))


def _filter(call: Call) -> Node:
    name = _variable(call.arguments[0])
    element = _append(call, call.arguments[0])
    return _collecting(call, (name, ""), element, call.arguments[1], ListNode((), call.position))


def _transform_list(call: Call) -> Node:
    predicate = call.arguments[2] if len(call.arguments) == 4 else None
    initial = ListNode((), call.position)
    return _collecting(call, _variables(call), _append(call, call.arguments[-1]), predicate, initial)


def _transform_map(call: Call) -> Node:
    at, names = call.position, _variables(call)
    predicate = call.arguments[2] if len(call.arguments) == 4 else None
    insert = Call("cel.@mapInsert", (Ident(RESULT, at), Ident(names[0], at), call.arguments[-1]), at)
    return _collecting(call, names, insert, predicate, MapNode((), at))


def _transform_map_entry(call: Call) -> Node:
    at = call.position
    predicate = call.arguments[2] if len(call.arguments) == 4 else None
    insert = Call("cel.@mapInsert", (Ident(RESULT, at), call.arguments[-1]), at)
    return _collecting(call, _variables(call), insert, predicate, MapNode((), at))


def _let(name: str, value: Node, body: Node, position: int) -> Node:
    """A variable for ``body``; its value is computed at the first use."""
    empty = ListNode((), position)
    stop = Literal(value=False, position=position)
    return Fold(empty, UNUSED, "", name, value, stop, Ident(name, position), body, position)


def _bind(call: Call) -> Node:
    name, value, body = call.arguments
    return _let(_variable(name), value, body, call.position)


def _optional_map(call: Call, *, flat: bool) -> Node:
    at, target = call.position, call.target
    if target is None:
        raise MacroError(at, f"{call.function}() needs something to be called on")
    value = Call("value", (), at, target)
    body = _let(_variable(call.arguments[0]), value, call.arguments[1], at)
    found = body if flat else Call("optional.of", (body,), at)
    return Call("_?_:_", (Call("hasValue", (), at, target), found, Call("optional.none", (), at)), at)


_SORTED: Final = "@__sortBy_input__"


def _sort_by(call: Call) -> Node:
    """``list.sortBy(x, key)``: the list sorted by the value of ``key`` for each element."""
    at, target = call.position, call.target
    if target is None:
        raise MacroError(at, "sortBy() needs something to be called on")
    values = Ident(_SORTED, at)
    keys = _map(Call("map", call.arguments, at, values))
    return _let(_SORTED, target, Call("@sortByAssociatedKeys", (keys,), at, values), at)


MACROS: Final[Mapping[tuple[str, int, bool], Expansion]] = {
    ("has", 1, False): _has,
    ("all", 2, True): _all,
    ("exists", 2, True): _exists,
    ("exists_one", 2, True): _exists_one,
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
    ("cel.bind", 3, False): _bind,
    ("optMap", 2, True): lambda call: _optional_map(call, flat=False),
    ("optFlatMap", 2, True): lambda call: _optional_map(call, flat=True),
    ("all", 3, True): _all,
    ("exists", 3, True): _exists,
    ("exists_one", 3, True): _exists_one,
    ("existsOne", 3, True): _exists_one,
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _transform_map_entry,
    ("transformMapEntry", 4, True): _transform_map_entry,
    ("sortBy", 2, True): _sort_by,
}
"""Macros by name, number of arguments, and whether the macro is called on a target."""


def expand(call: Call) -> Node:
    """The call, rewritten if it is a macro.

    Raises:
        MacroError: arguments that the macro does not take.
    """
    name, member = call.function, call.target is not None
    if isinstance(call.target, Ident) and call.target.name == "cel":
        name, member = f"cel.{name}", False
    expansion = MACROS.get((name, len(call.arguments), member))
    return call if expansion is None else expansion(call)
