"""Checks literal templates of ``format`` against the types of literal arguments at compile time, as Kubernetes does."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from allocator.cel.checked import Constant, MakeList, MakeMap, Plan
from allocator.cel.errors import EvaluationError
from allocator.cel.functions.formatting import clauses, unrecognized
from allocator.cel.keys import from_key
from allocator.cel.types import Type
from allocator.cel.values import type_name

_WHOLE: Final = frozenset({"int", "uint"})
_TAKES: Final[Mapping[str, frozenset[str]]] = {
    "s": frozenset({"list", "map", "double", "bool", "string", "bytes", "type", "null_type"})
    | {"google.protobuf.Timestamp", "google.protobuf.Duration"}
    | _WHOLE,
    "d": _WHOLE,
    "f": frozenset({"double", "string"}),
    "e": frozenset({"double", "string"}),
    "b": _WHOLE | {"bool"},
    "o": _WHOLE,
    "x": _WHOLE | {"string", "bytes"},
    "X": _WHOLE | {"string", "bytes"},
}


def check_template(template: str, given: Sequence[Plan], final: Callable[[Type], Type]) -> None:
    """Check a literal template.

    Args:
        template: the text that is formatted.
        given: the arguments of a literal list.
        final: resolves a type.

    Raises:
        EvaluationError: an unknown clause, a type that a clause does not take, or a wrong number of arguments.
    """
    used = 0
    for clause in clauses(template):
        if clause.letter is None:
            continue
        if used == len(given):
            raise EvaluationError(f"index {used} out of range")
        if clause.letter not in _TAKES:
            raise unrecognized(clause.letter)
        for kind in _kinds(given[used]) if clause.letter == "s" else (given[used].type,):
            name = final(kind).name
            if name != "dyn" and name not in _TAKES[clause.letter]:
                raise EvaluationError(f"error during formatting: %{clause.letter} cannot take {name}")
        used += 1
    if used < len(given):
        raise EvaluationError(f"too many arguments supplied to string.format (expected {used}, got {len(given)})")


def _kinds(plan: Plan) -> Iterator[Type]:
    """The type of an argument, and the types of all parts of a literal list or map."""
    yield plan.type
    for part in _parts(plan):
        yield from _kinds(part)


def _parts(plan: Plan) -> Iterator[Plan]:
    match plan:
        case MakeList():
            yield from (element for element, _ in plan.elements)
        case MakeMap():
            yield from (part for key, value, _ in plan.entries for part in (key, value))
        case Constant() if type(plan.value) is tuple:
            yield from (Constant(value, Type(type_name(value))) for value in plan.value)
        case Constant() if isinstance(plan.value, dict):
            both = (value for key, item in plan.value.items() for value in (from_key(key), item))
            yield from (Constant(value, Type(type_name(value))) for value in both)
