"""``"%s of %d".format([a, b])``, with the clauses of cel-go's string extension."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Final

from allocator.cel.errors import EvaluationError
from allocator.cel.functions.times import duration_text, timestamp_text
from allocator.cel.values import Duration, Timestamp, TypeValue, UInt, Value, from_key, type_name

_MAX_SIZE: Final = 10_000_000
_MAX_PRECISION: Final = 1000
_CLAUSE: Final = re.compile(r"%(?:(%)|(?:\.([0-9]{0,9}))?(.?))", re.DOTALL)
_SPECIAL: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def format_string(template: str, arguments: tuple[Value, ...]) -> str:
    """The template with its clauses filled in.

    Raises:
        EvaluationError: an unknown clause, too few arguments, one of the wrong type, or a result that is too long.
    """
    parts: list[str] = []
    length, end, used = 0, 0, 0
    for match in _CLAUSE.finditer(template):
        literal, precision, clause = match.groups()
        if literal:
            part = "%"
        else:
            if used == len(arguments):
                raise EvaluationError(f"index {used} out of range")
            part = _clause(clause, precision, arguments[used])
            used += 1
        parts += (template[end : match.start()], part)
        length += match.start() - end + len(part)
        if length > _MAX_SIZE:
            raise EvaluationError(f"string would be longer than {_MAX_SIZE}")
        end = match.end()
    return "".join((*parts, template[end:]))


def _clause(clause: str, precision: str | None, value: Value) -> str:
    if clause not in _CLAUSES:
        raise EvaluationError(f"could not parse formatting clause: unrecognized formatting clause {clause!r}")
    digits = 6 if precision is None else int(precision or 0)
    if digits > _MAX_PRECISION:
        raise EvaluationError(f"could not parse formatting clause: precision {digits} is too large")
    return _CLAUSES[clause](value, digits)


def _wrong(clause: str, value: Value) -> EvaluationError:
    return EvaluationError(f"error during formatting: {clause} clause cannot take {type_name(value)}")


def _special(value: Value) -> str | None:
    """NaN and the infinities, which every numeric clause prints alike."""
    return _SPECIAL.get(str(value)) if type(value) is float and not math.isfinite(value) else None


def _decimal(value: Value, _precision: int) -> str:
    if type(value) in (int, UInt):
        return str(int(value))
    special = _special(value)
    if special is None:
        raise _wrong("decimal", value)
    return special


def _fixed(value: Value, precision: int) -> str:
    if type(value) not in (int, UInt, float):
        raise _wrong("fixed-point", value)
    return _special(value) or f"{float(value):.{precision}f}"


def _scientific(value: Value, precision: int) -> str:
    if type(value) not in (int, UInt, float):
        raise _wrong("scientific", value)
    return _special(value) or f"{float(value):.{precision}e}"


def _based(base: str, names: str) -> Callable[[Value, int], str]:
    def clause(value: Value, _precision: int) -> str:
        if type(value) in (int, UInt):
            return format(int(value), base)
        if type(value) is bool and base == "b":
            return "1" if value else "0"
        if base in "xX" and type(value) in (str, bytes):
            digits = (value if type(value) is bytes else value.encode("utf-8", "surrogatepass")).hex()
            return digits.upper() if base == "X" else digits
        raise _wrong(names, value)

    return clause


def _string(value: Value, _precision: int) -> str:
    return text_of(value, _MAX_SIZE)


def text_of(value: Value, room: int) -> str:
    """A value as ``%s`` prints it.

    Raises:
        EvaluationError: a type that has no text, or more text than there is room for.
    """
    if type(value) is tuple:
        return _bounded((text_of(element, room) for element in value), "[", "]", room)
    if isinstance(value, dict):
        entries = sorted((text_of(from_key(key), room), item) for key, item in value.items())
        return _bounded((f"{key}: {text_of(item, room)}" for key, item in entries), "{", "}", room)
    printer = _TEXTS.get(type(value))
    if printer is None:
        raise EvaluationError(f"error during formatting: string clause cannot take {type_name(value)}")
    return printer(value)


def _bounded(parts: Iterable[str], opening: str, closing: str, room: int) -> str:
    texts: list[str] = []
    for part in parts:
        room -= len(part) + 2
        if room < 0:
            raise EvaluationError(f"string would be longer than {_MAX_SIZE}")
        texts.append(part)
    return f"{opening}{', '.join(texts)}{closing}"


def _double(value: float) -> str:
    return _special(value) or format(Decimal(repr(value)).normalize(), "f")


_TEXTS: Final[Mapping[type, Callable[[Value], str]]] = {
    str: str,
    bool: lambda value: "true" if value else "false",
    int: str,
    UInt: str,
    float: _double,
    bytes: lambda value: value.decode("utf-8", "replace"),
    type(None): lambda _value: "null",
    TypeValue: lambda value: value.name,
    Timestamp: timestamp_text,
    Duration: duration_text,
}
_CLAUSES: Final[Mapping[str, Callable[[Value, int], str]]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _based("b", "binary"),
    "o": _based("o", "octal"),
    "x": _based("x", "hexadecimal"),
    "X": _based("X", "hexadecimal"),
}
