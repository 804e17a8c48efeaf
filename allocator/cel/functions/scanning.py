"""Numbers and durations by Go's syntax, in one pass over the text."""

import math
import re
from collections.abc import Mapping
from typing import Final

_MOST_DIGITS: Final = 20
"""Digits of a number that fits 64 bits. The time of Python's conversion grows with the square of the digits."""

_WHOLE: Final = re.compile(r"([+-]?)0*+([0-9]*+)", re.ASCII)
_DECIMAL: Final = re.compile(
    r"[+-]?(?=\.?[0-9_])[0-9_]*+(?:\.[0-9_]*+)?+(?:[eE][+-]?[0-9][0-9_]*+)?+",
    re.ASCII,
)
_HEXADECIMAL: Final = re.compile(
    r"[+-]?0[xX](?=\.?[0-9a-fA-F_])[0-9a-fA-F_]*+(?:\.[0-9a-fA-F_]*+)?+[pP][+-]?[0-9][0-9_]*+", re.ASCII
)
_LOOSE_UNDERSCORE: Final = re.compile(r"(?<![0-9])_|_(?![0-9])")
_LOOSE_HEXADECIMAL_UNDERSCORE: Final = re.compile(r"(?<![0-9a-fA-FxX])_|_(?![0-9a-fA-F])")
_DIGIT: Final = re.compile(r"[0-9]")
_SPECIAL: Final = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE | re.ASCII)
_PART: Final = re.compile(r"([0-9]*+)(?:\.([0-9]*+))?+([^0-9.]++)", re.ASCII)
_LARGEST: Final = 2**63


def whole_number(text: str) -> int | None:
    """Digits after an optional sign as a number; None for any other text.

    Raises:
        OverflowError: more digits than any number of 64 bits has.
    """
    match = _WHOLE.fullmatch(text)
    if match is None or text[-1:] not in set("0123456789"):
        return None
    sign, digits = match.groups()
    if len(digits) > _MOST_DIGITS:
        raise OverflowError("more digits than 64 bits have")
    return int(f"{sign}{digits or '0'}")


def double(text: str) -> float | None:
    """A number as `strconv.ParseFloat` reads it; None for any other text and for a number that no double can hold."""
    if _SPECIAL.fullmatch(text):
        return float(text)
    if _DECIMAL.fullmatch(text):
        return _finite(text, _LOOSE_UNDERSCORE) if _DIGIT.search(text.lower().partition("e")[0]) else None
    return _finite(text, _LOOSE_HEXADECIMAL_UNDERSCORE) if _HEXADECIMAL.fullmatch(text) else None


def _finite(text: str, loose: "re.Pattern[str]") -> float | None:
    if "_" in text and loose.search(text):
        return None
    digits = text.replace("_", "")
    try:
        value = float.fromhex(digits) if "x" in digits or "X" in digits else float(digits)
    except (OverflowError, ValueError):
        return None
    return value if math.isfinite(value) else None


def nanoseconds(text: str, units: Mapping[str, int]) -> int | None:
    """A duration as `time.ParseDuration` reads it; None for any other text.

    Args:
        text: ``1h30m``, ``-1.5s``, ``0``.
        units: names to nanoseconds.

    Raises:
        OverflowError: beyond 64 bits.
    """
    position = 1 if text[:1] in ("-", "+") else 0
    if text[position:] == "0":
        return 0
    total, end = 0, len(text)
    if position == end:
        return None
    while position < end:
        match = _PART.match(text, position)
        if match is None:
            return None
        whole, fraction, unit = match.groups()
        if not (whole or fraction) or unit not in units:
            return None
        digits = whole.lstrip("0")
        if len(digits) >= _MOST_DIGITS or int(digits or "0") > _LARGEST // units[unit]:
            raise OverflowError("duration overflow")
        total += int(digits or "0") * units[unit] + _part_of(fraction or "", units[unit])
        if total > _LARGEST:
            raise OverflowError("duration overflow")
        position = match.end()
    if text[0] == "-":
        return -total
    if total == _LARGEST:
        raise OverflowError("duration overflow")
    return total


def _part_of(fraction: str, unit: int) -> int:
    """The nanoseconds of the digits after the decimal point, with Go's rounding."""
    value, scale = 0, 1.0
    for digit in fraction:
        if value > (_LARGEST - 1) // 10 or value * 10 + int(digit) > _LARGEST or math.isinf(scale):
            break
        value = value * 10 + int(digit)
        scale *= 10
    return int(float(value) * (unit / scale))
