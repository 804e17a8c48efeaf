"""``"%s of %d".format([a, b])``: version 2 of cel-go's string extension, in English, as in Kubernetes.

Fractions have thousands separators and exponents are superscript. Within lists and maps, a value is written as an
expression would have it.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from allocator.cel.cost import FIRST
from allocator.cel.errors import CostLimitError, EvaluationError
from allocator.cel.functions.conversions import bytes_text, double_text
from allocator.cel.functions.declare import Library, function, member
from allocator.cel.functions.strings import MAX_SIZE, check_size
from allocator.cel.functions.times import duration_text, timestamp_text
from allocator.cel.keys import from_key
from allocator.cel.types import DYN, STRING, list_of
from allocator.cel.values import Duration, Timestamp, TypeValue, UInt, Value, type_name

_MAX_PRECISION: Final = 1000
_CLAUSE: Final = re.compile(r"%(?:(%)|(?:\.([0-9]{0,9}))?(.?))", re.DOTALL)
_SUPERSCRIPT: Final = str.maketrans("+-0123456789", "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_TIMES: Final = "\u00d7"
_NUMBERS_AS_TEXT: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip

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
        EvaluationError: a precision that is missing or too large.
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


def _format(template: str, arguments: tuple[Value, ...]) -> str:
    parts: list[str] = []
    length, used = 0, 0
    for clause in clauses(template):
        parts.append(clause.before)
        if clause.letter is not None:
            if used == len(arguments):
                raise EvaluationError(f"index {used} out of range")
            if clause.letter not in _WRITERS:
                raise unrecognized(clause.letter)
            parts.append(_WRITERS[clause.letter](arguments[used], clause.precision))
            used += 1
            length += len(parts[-1])
        length += len(clause.before)
        check_size(length)
    return "".join(parts)


def unrecognized(letter: str) -> EvaluationError:
    """The error for an unknown clause."""
    return EvaluationError(f"could not parse formatting clause: unrecognized formatting clause {letter!r}")


def _wrong(clause: str, value: Value) -> EvaluationError:
    """The error for a value whose type a clause does not take."""
    return EvaluationError(f"error during formatting: {clause} clause cannot take {type_name(value)}")


def _bounded(parts: Iterator[str], opening: str, closing: str, room: int) -> str:
    """Parts with commas between them, in brackets.

    Raises:
        CostLimitError: the text is longer than ``room``.
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
        raise _wrong(names, value)

    return write


def _number(value: Value, clause: str) -> float:
    if type(value) is float:
        return value
    if type(value) is str and value in _NUMBERS_AS_TEXT:
        return _NUMBERS_AS_TEXT[value]
    raise _wrong(clause, value)


def _special(number: float) -> str | None:
    """NaN and the infinities; None for all others."""
    if math.isfinite(number):
        return None
    return "NaN" if math.isnan(number) else f"{'-' if number < 0 else ''}∞"


def _fixed(value: Value, precision: int) -> str:
    number = _number(value, "fixed-point")
    return _special(number) or f"{number:,.{precision}f}"


def _scientific(value: Value, precision: int) -> str:
    number = _number(value, "scientific")
    special = _special(number)
    if special is not None:
        return special.rjust(precision)  # upstream takes the precision for the width
    mantissa, _, exponent = f"{number:.{precision}e}".partition("e")
    return f"{mantissa}{_TIMES}10{exponent.removeprefix('+').translate(_SUPERSCRIPT)}"


def _decimal(value: Value, _precision: int) -> str:
    if type(value) not in (int, UInt):
        raise _wrong("decimal", value)
    return str(int(value))


def _string(value: Value, _precision: int) -> str:
    return _text(value, MAX_SIZE)


def _text(value: Value, room: int) -> str:
    """A value by itself, without quotes."""
    if type(value) is tuple:
        return _bounded((_part(element, room) for element in value), "[", "]", room)
    if isinstance(value, dict):
        entries = sorted((_key(from_key(key), room), item) for key, item in value.items())
        return _bounded((f"{key}:{_part(item, room)}" for key, item in entries), "{", "}", room)
    writer = _TEXTS.get(type(value))
    if writer is None:
        raise _wrong("string", value)
    return writer(value)


def _part(value: Value, room: int) -> str:
    """A value within a list or map."""
    writer = _PARTS.get(type(value))
    return writer(value) if writer is not None else _text(value, room)


def _key(value: Value, room: int) -> str:
    if type(value) not in _KEYS:
        kind = type_name(value)
        raise EvaluationError(f"error during formatting: no formatting function for map key of type {kind}")
    return _part(value, room)


def _double_part(value: float) -> str:
    if math.isfinite(value):
        return f"{value:.6f}"
    return '"NaN"' if math.isnan(value) else f'"{"+" if value > 0 else "-"}Inf"'


def _quoted(text: str) -> str:
    """The text in quotes, as Go writes it."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


_KEYS: Final = frozenset({str, bool, int, UInt})
_TEXTS: Final[Mapping[type, Callable[[Value], str]]] = {
    str: str,
    bool: lambda value: "true" if value else "false",
    int: str,
    UInt: str,
    float: double_text,
    bytes: bytes_text,
    type(None): lambda _value: "null",
    TypeValue: lambda value: value.name,
    Timestamp: timestamp_text,
    Duration: duration_text,
}
_PARTS: Final[Mapping[type, Callable[[Value], str]]] = {
    str: _quoted,
    bytes: lambda value: f"b{_quoted(bytes_text(value))}",
    float: _double_part,
    Timestamp: lambda value: f"timestamp({_quoted(timestamp_text(value))})",
    Duration: lambda value: f"duration({_quoted(duration_text(value))})",
}

_WRITERS: Final[Mapping[str, Writer]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _based("b", "binary"),
    "o": _based("o", "octal"),
    "x": _based("x", "hexadecimal"),
    "X": _based("X", "hexadecimal"),
}
LIBRARY: Final[Library] = (
    function("format", member(STRING, list_of(DYN), result=STRING, call=_format, cost=FIRST, grows=True)),
)
