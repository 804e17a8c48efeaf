"""The syntax tree of an expression; macros are expanded already. Positions are offsets into the text."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal of type bool, int, uint, double, string, bytes or null."""

    value: object
    position: int


@dataclass(frozen=True, slots=True)
class Ident:
    """A variable or the name of a type; names that begin with ``@`` come from macros."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Select:
    """``operand.field``, ``operand.?field`` (optional), or ``has(operand.field)`` (test)."""

    operand: "Node"
    field: str
    position: int
    optional: bool = False
    test: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """``operand[key]`` or ``operand[?key]``."""

    operand: "Node"
    key: "Node"
    position: int
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function or operator; ``target`` is what a member function is called on.

    Operators are named as in cel-spec: ``_+_``, ``!_``, ``_?_:_``. ``_&&_`` and ``_||_`` have two or more arguments.
    """

    function: str
    arguments: tuple["Node", ...]
    position: int
    target: "Node | None" = None


@dataclass(frozen=True, slots=True)
class ListNode:
    """``[a, ?b]``: elements, and whether each is optional."""

    elements: tuple[tuple["Node", bool], ...]
    position: int


@dataclass(frozen=True, slots=True)
class MapNode:
    """``{k: v, ?k: v}``: key, value, and whether the entry is optional."""

    entries: tuple[tuple["Node", "Node", bool], ...]
    position: int


@dataclass(frozen=True, slots=True)
class Struct:
    """``name{field: value}``: construction of a message. It never compiles, because no messages exist."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Fold:
    """A comprehension: ``accumulator`` starts as ``initial`` and becomes ``step`` per element while ``condition``.

    Attributes:
        variable: the element of a list or key of a map; with ``second``, the index or key.
        second: empty, or the variable of the value.
    """

    range: "Node"
    variable: str
    second: str
    accumulator: str
    initial: "Node"
    condition: "Node"
    step: "Node"
    result: "Node"
    position: int


Node: TypeAlias = Literal | Ident | Select | Index | Call | ListNode | MapNode | Struct | Fold


def children(node: Node) -> tuple[Node, ...]:
    """The direct children of a node."""
    match node:
        case Select(operand=operand):
            return (operand,)
        case Index(operand=operand, key=key):
            return (operand, key)
        case Call(arguments=arguments, target=target):
            return arguments if target is None else (target, *arguments)
        case ListNode(elements=elements):
            return tuple(element for element, _ in elements)
        case MapNode(entries=entries):
            return tuple(part for key, value, _ in entries for part in (key, value))
        case Fold():
            return (node.range, node.initial, node.condition, node.step, node.result)
        case _:
            return ()


def dotted(node: Node) -> str | None:
    """``a.b.c`` as text; None for anything else."""
    names = []
    while isinstance(node, Select) and not node.optional and not node.test:
        names.append(node.field)
        node = node.operand
    return ".".join([node.name, *reversed(names)]) if isinstance(node, Ident) else None


def extent(root: Node) -> tuple[int, int]:
    """The depth of the tree and its number of nodes; a node that a macro put in two places counts twice.

    No recursion, and no node is visited twice: each macro in a chain can double the tree.
    """
    found: dict[int, tuple[int, int]] = {}
    waiting = [root]
    while waiting:
        node = waiting[-1]
        below = children(node)
        missing = [child for child in below if id(child) not in found]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        parts = [found[id(child)] for child in below]
        found[id(node)] = (
            1 + max((depth for depth, _ in parts), default=0),
            1 + sum(count for _, count in parts),
        )
    return found[id(root)]
