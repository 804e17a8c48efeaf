"""``"%s of %d".format([a, b])``: clauses, and what all versions of cel-go's string extension agree on."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from allocator.cel.cost import FIRST
from allocator.cel.errors import CostLimitError, EvaluationError
from allocator.cel.functions.declare import Library, function, member
from allocator.cel.functions.strings import check_size
from allocator.cel.types import DYN, STRING, list_of
from allocator.cel.values import UInt, Value, type_name

_MAX_PRECISION: Final = 1000
_CLAUSE: Final = re.compile(r"%(?:(%)|(?:\.([0-9]{0,9}))?(.?))", re.DOTALL)

Writer: TypeAlias = Callable[[Value, int], str]
"""Takes a value and a precision."""


class Clause(NamedTuple):
    """A clause of a template and the text before it; ``letter`` is None after the last one."""

    before: str
    letter: str | None
    precision: int


def clauses(template: str) -> Iterator[Clause]:
    """The parts of a template.

    Raises:
        EvaluationError: a precision that is none, or too large.
    """
    end, text = 0, ""
    for match in _CLAUSE.finditer(template):
        literal, precision, letter = match.groups()
        text += template[end : match.start()]
        end = match.end()
        if literal:
            text += "%"
            continue
        digits = 6 if precision is None else int(precision or _MAX_PRECISION + 1)
        if digits > _MAX_PRECISION:
            raise EvaluationError("could not parse formatting clause: precision is missing or too large")
        yield Clause(text, letter, digits)
        text = ""
    yield Clause(text + template[end:], None, 0)


def library(writers: Mapping[str, Writer]) -> Library:
    """``format`` with a set of clauses."""

    def format_string(template: str, arguments: tuple[Value, ...]) -> str:
        parts: list[str] = []
        length, used = 0, 0
        for clause in clauses(template):
            parts.append(clause.before)
            if clause.letter is not None:
                if used == len(arguments):
                    raise EvaluationError(f"index {used} out of range")
                if clause.letter not in writers:
                    raise unrecognized(clause.letter)
                parts.append(writers[clause.letter](arguments[used], clause.precision))
                used += 1
                length += len(parts[-1])
            length += len(clause.before)
            check_size(length)
        return "".join(parts)

    overload = member(STRING, list_of(DYN), result=STRING, call=format_string, cost=FIRST, grows=True)
    return (function("format", overload),)


def unrecognized(letter: str) -> EvaluationError:
    """No such clause."""
    return EvaluationError(f"could not parse formatting clause: unrecognized formatting clause {letter!r}")


def wrong(clause: str, value: Value) -> EvaluationError:
    """A value of a type that a clause does not take."""
    return EvaluationError(f"error during formatting: {clause} clause cannot take {type_name(value)}")


def bounded(parts: Iterator[str], opening: str, closing: str, room: int) -> str:
    """Parts with commas between brackets.

    Raises:
        CostLimitError: more text than there is room for.
    """
    texts: list[str] = []
    for part in parts:
        room -= len(part) + 2
        if room < 0:
            raise CostLimitError
        texts.append(part)
    return f"{opening}{', '.join(texts)}{closing}"


def _based(base: str, names: str) -> Writer:
    def write(value: Value, _precision: int) -> str:
        if type(value) in (int, UInt):
            return format(int(value), base)
        if type(value) is bool and base == "b":
            return "1" if value else "0"
        if base in "xX" and type(value) in (str, bytes):
            digits = (value if type(value) is bytes else value.encode("utf-8", "surrogatepass")).hex()
            return digits.upper() if base == "X" else digits
        raise wrong(names, value)

    return write


BASES: Final[Mapping[str, Writer]] = {
    "b": _based("b", "binary"),
    "o": _based("o", "octal"),
    "x": _based("x", "hexadecimal"),
    "X": _based("X", "hexadecimal"),
}
"""Clauses for whole numbers in other bases."""
