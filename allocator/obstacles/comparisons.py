"""Conditions that compare a value of a device with a constant, and the constant that a device satisfies."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from allocator.cel import CompileError
from allocator.cel.ast import Call, ListNode, Literal, Node
from allocator.cel.parse import parse
from allocator.model.quantity import Quantity
from allocator.model.semver import Version
from allocator.obstacles.obstacle import WHOLE, RemedyKind
from allocator.obstacles.selector_conditions import STRING, value_in_words
from allocator.tools.spelling import is_misspelled

Constant: TypeAlias = str | int | Quantity | Version
_Edit: TypeAlias = tuple[int, int, str]
"""Start and end of a part of a condition, and what is written there instead."""

_LITERAL: Final = re.compile(rf"{STRING}|-?\s*(?:0x[0-9a-fA-F]+|\d+)|true|false", re.DOTALL)
_FLIPPED: Final = {"_==_": "_==_", "_<_": "_>_", "_<=_": "_>=_", "_>_": "_<_", "_>=_": "_<=_"}
_METHODS: Final = {"isGreaterThan": ">= 0", "isLessThan": "<= 0"}
_PARSED: Final[Mapping[str, Callable[[str], Constant]]] = {"quantity": Quantity.parse, "semver": Version.parse}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A condition that is written otherwise, so that a device satisfies it.

    Attributes:
        text: what is done, as an order: ``lower memory to 40Gi``.
        weight: the distance of the new constant from the old one, less than `WHOLE`.
    """

    kind: RemedyKind
    text: str
    condition: str
    weight: int = 0


class _Written(NamedTuple):
    """A constant, and where it is written."""

    value: Constant
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What a condition says of a value.

    Attributes:
        relation: ``==``, ``in``, ``>=`` or ``<=``, with the value on the left.
        constants: several only for ``in``.
        including: what is written if the condition excludes the constant itself, so that it includes the constant.
    """

    relation: str
    constants: tuple[_Written, ...]
    including: tuple[_Edit, ...] = ()


def wanted(condition: str) -> str:
    """The one value that satisfies a condition of the form ``attribute == constant``, in words; empty for others."""
    found = _comparison(condition)
    return value_in_words(found.constants[0].value) if found is not None and found.relation == "==" else ""


def rewritten(condition: str, name: str, value: object) -> Rewritten | None:
    """A condition with a constant that a device satisfies.

    Args:
        condition: a part of a selector.
        name: the only attribute or capacity that the condition reads.
        value: what the device has.

    Returns:
        None: the condition does not compare with a constant of the type that the device has.
    """
    found = _comparison(condition)
    if not isinstance(value, Constant) or isinstance(value, bool) or found is None:
        return None
    if any(type(constant.value) is not type(value) for constant in found.constants):
        return None
    if isinstance(value, str):
        misspelled = next((each for each in found.constants if is_misspelled(str(each.value), value)), None)
        if misspelled is not None:
            text = f"write {_literal(value)} instead of {_literal(misspelled.value)}"
            return Rewritten(RemedyKind.CORRECT, text, _edited(condition, [(*misspelled[1:], _literal(value))]))
    constant, shown = found.constants[-1], value_in_words(value)
    weight = min(_distance(each.value, value) for each in found.constants)
    if found.relation == "in":
        edit = (constant.end, constant.end, f", {_literal(value)}")
        return Rewritten(RemedyKind.RELAX_SELECTOR, f"accept {name} {shown}, too,", _edited(condition, [edit]), weight)
    changed = _edited(condition, [(*constant[1:], _literal(value)), *found.including])
    if found.relation == "==":
        text = f"ask for {name} {shown} instead of {value_in_words(constant.value)}"
        return Rewritten(RemedyKind.RELAX_SELECTOR, text, changed, weight)
    if isinstance(value, str):
        return None
    order = f"{'lower' if found.relation == '>=' else 'raise'} {name} to {shown}"
    return Rewritten(RemedyKind.ASK_FOR_LESS, order if weight else f"accept {name} {shown}, too,", changed, weight)


def _edited(condition: str, edits: Iterable[_Edit]) -> str:
    for start, end, text in sorted(edits, reverse=True):
        condition = condition[:start] + text + condition[end:]
    return condition


def _literal(value: Constant) -> str:
    """A constant as it is written between the brackets of ``quantity`` or ``semver``, or without these."""
    return str(value) if isinstance(value, int) else json.dumps(str(value), ensure_ascii=False)


def _distance(constant: Constant, value: Constant) -> int:
    """How far two constants of one type are from each other, less than `WHOLE`."""
    match constant, value:
        case int(left), int(right):
            return min(WHOLE - 1, abs(left - right) * WHOLE // max(abs(left), abs(right), 1))
        case Quantity(nano=left), Quantity(nano=right):
            return _distance(left, right)
        case Version(), Version():
            pairs = zip(_numbers(constant), _numbers(value), strict=True)
            hundreds, tens, ones = (min(9, abs(left - right)) for left, right in pairs)
            return 100 * hundreds + 10 * tens + ones
    return round((WHOLE - 1) * (1 - SequenceMatcher(None, str(constant), str(value)).ratio()))


def _numbers(version: Version) -> tuple[int, int, int]:
    return version.major, version.minor, version.patch


@lru_cache(maxsize=512)
def _comparison(condition: str) -> _Comparison | None:
    try:
        node = parse(condition)
    except CompileError:
        return None
    match node:
        case Call("@in", (_, ListNode(elements))):
            constants = [_written(each, condition) for each, _ in elements]
            found = tuple(each for each in constants if each is not None)
            return _Comparison("in", found) if found and len(found) == len(constants) else None
        case Call("!_", (Call(function, (argument,)),)) if function in _METHODS:
            return _of(_written(argument, condition), ">=" if function == "isLessThan" else "<=")
        case Call(function, (argument,), position) if function in _METHODS:
            order = _METHODS[function]
            edits = ((position, position + len(function), "compareTo"), (len(condition), len(condition), f" {order}"))
            return _of(_written(argument, condition), order[:2], *edits)
        case Call(operator, (left, right), position) if operator in _FLIPPED:
            return _of_operator(condition, operator, left, right, position)
    return None


def _of_operator(condition: str, operator: str, left: Node, right: Node, position: int) -> _Comparison | None:
    strict = operator in {"_<_", "_>_"}
    edits = [(position, position + 1, f"{operator[1]}=")] if strict else []
    match left, right:
        case Call("compareTo", (argument,)), Literal(value=0):
            constant = _written(argument, condition)
        case _ if (constant := _written(right, condition)) is None:
            operator, constant = _FLIPPED[operator], _written(left, condition)
    return _of(constant, operator.strip("_") if not strict else f"{operator[1]}=", *edits)


def _of(constant: _Written | None, relation: str, *including: _Edit) -> _Comparison | None:
    return None if constant is None else _Comparison(relation, (constant,), including)


def _written(node: Node, condition: str) -> _Written | None:
    """A text, a whole number, a truth value, or one in brackets of ``quantity`` or ``semver``."""
    read: Callable[[str], Constant] = str
    if isinstance(node, Call) and node.function in _PARSED and node.target is None and node.arguments:
        read, node = _PARSED[node.function], node.arguments[0]
    if not isinstance(node, Literal) or type(node.value) not in {str, int, bool}:
        return None
    token = _LITERAL.match(condition, node.position)
    try:
        value = node.value if isinstance(node.value, int) else read(str(node.value))
    except ValueError:
        return None
    return None if token is None else _Written(value, *token.span())
