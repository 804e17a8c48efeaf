"""``format`` as the newest string extension of cel-go has it: the same in every language, for cel-spec's cases."""

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from operator import itemgetter
from typing import Final

from allocator.cel.errors import EvaluationError
from allocator.cel.functions.formatting import BASES, bounded, library, wrong
from allocator.cel.functions.strings import MAX_SIZE
from allocator.cel.functions.times import duration_text, timestamp_text
from allocator.cel.values import Duration, Timestamp, TypeValue, UInt, Value, from_key, type_name

_SPECIAL: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _special(value: Value) -> str | None:
    """NaN and the infinities, which every numeric clause prints alike."""
    return _SPECIAL.get(str(value)) if type(value) is float and not math.isfinite(value) else None


def _decimal(value: Value, _precision: int) -> str:
    if type(value) in (int, UInt):
        return str(int(value))
    special = _special(value)
    if special is None:
        raise wrong("decimal", value)
    return special


def _fixed(value: Value, precision: int) -> str:
    if type(value) not in (int, UInt, float):
        raise wrong("fixed-point", value)
    return _special(value) or f"{float(value):.{precision}f}"


def _scientific(value: Value, precision: int) -> str:
    if type(value) not in (int, UInt, float):
        raise wrong("scientific", value)
    return _special(value) or f"{float(value):.{precision}e}"


def _string(value: Value, _precision: int) -> str:
    return _text(value, MAX_SIZE)


def _text(value: Value, room: int) -> str:
    if type(value) is tuple:
        return bounded((_text(element, room) for element in value), "[", "]", room)
    if isinstance(value, dict):
        entries = sorted(((_text(from_key(key), room), item) for key, item in value.items()), key=itemgetter(0))
        return bounded((f"{key}: {_text(item, room)}" for key, item in entries), "{", "}", room)
    writer = _TEXTS.get(type(value))
    if writer is None:
        raise EvaluationError(f"error during formatting: string clause cannot take {type_name(value)}")
    return writer(value)


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

LIBRARY: Final = library({**BASES, "s": _string, "d": _decimal, "f": _fixed, "e": _scientific})
