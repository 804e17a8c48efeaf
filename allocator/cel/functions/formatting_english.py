"""``format`` as Kubernetes has it: version 2 of cel-go's string extension, in English.

Fractions have thousands separators and exponents are superscript; within lists and maps, values are written as
expressions would have them.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

from allocator.cel.errors import EvaluationError
from allocator.cel.functions.conversions import bytes_text, double_text
from allocator.cel.functions.formatting import BASES, bounded, library, wrong
from allocator.cel.functions.strings import MAX_SIZE
from allocator.cel.functions.times import duration_text, timestamp_text
from allocator.cel.values import Duration, Timestamp, TypeValue, UInt, Value, from_key, type_name

_SUPERSCRIPT: Final = str.maketrans("+-0123456789", "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_TIMES: Final = "\u00d7"
_NUMBERS_AS_TEXT: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def _number(value: Value, clause: str) -> float:
    if type(value) is float:
        return value
    if type(value) is str and value in _NUMBERS_AS_TEXT:
        return _NUMBERS_AS_TEXT[value]
    raise wrong(clause, value)


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
        return special
    mantissa, _, exponent = f"{number:.{precision}e}".partition("e")
    return f"{mantissa}{_TIMES}10{exponent.removeprefix('+').translate(_SUPERSCRIPT)}"


def _decimal(value: Value, _precision: int) -> str:
    if type(value) not in (int, UInt):
        raise wrong("decimal", value)
    return str(int(value))


def _string(value: Value, _precision: int) -> str:
    return _text(value, MAX_SIZE)


def _text(value: Value, room: int) -> str:
    """A value by itself, without quotes."""
    if type(value) is tuple:
        return bounded((_part(element, room) for element in value), "[", "]", room)
    if isinstance(value, dict):
        entries = sorted((_key(from_key(key), room), item) for key, item in value.items())
        return bounded((f"{key}:{_part(item, room)}" for key, item in entries), "{", "}", room)
    writer = _TEXTS.get(type(value))
    if writer is None:
        raise EvaluationError(f"error during formatting: string clause cannot take {type_name(value)}")
    return writer(value)


def _part(value: Value, room: int) -> str:
    """A value within a list or map."""
    writer = _PARTS.get(type(value))
    return writer(value) if writer is not None else _text(value, room)


def _key(value: Value, room: int) -> str:
    if type(value) is float:
        raise EvaluationError("error during formatting: no formatting function for map key of type double")
    return _part(value, room)


def _double_part(value: float) -> str:
    if math.isfinite(value):
        return f"{value:.6f}"
    return '"NaN"' if math.isnan(value) else f'"{"+" if value > 0 else "-"}Inf"'


def _quoted(text: str) -> str:
    """As Go quotes."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


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

LIBRARY: Final = library({**BASES, "s": _string, "d": _decimal, "f": _fixed, "e": _scientific})
