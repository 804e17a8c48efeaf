"""Conversions between types: ``int("42")``, ``string(1.5)``, ``timestamp("...")``."""

import math
from decimal import Decimal
from typing import Final

from allocator.cel.cost import FIRST
from allocator.cel.errors import EvaluationError
from allocator.cel.functions import scanning
from allocator.cel.functions.declare import Implementation, Library, Overload, free, function
from allocator.cel.functions.numbers import checked_int, checked_uint
from allocator.cel.functions.times import (
    SECOND,
    checked_timestamp,
    duration_text,
    parse_duration,
    parse_timestamp,
    timestamp_text,
)
from allocator.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT, Type
from allocator.cel.values import UInt

_TRUE: Final = frozenset({"1", "t", "true", "TRUE", "True", "T"})
_FALSE: Final = frozenset({"0", "f", "false", "FALSE", "False", "F"})


def _bool(text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise EvaluationError(f"type conversion error from 'string' to 'bool': {text[:64]!r}")


def _int_from_double(value: float) -> int:
    if not -(2.0**63) < value < 2.0**63:
        raise EvaluationError("integer overflow")
    return int(value)


def _uint_from_double(value: float) -> UInt:
    if not 0.0 <= value < 2.0**64:
        raise EvaluationError("unsigned integer overflow")
    return UInt(int(value))


def _integer(text: str) -> int:
    try:
        value = scanning.whole_number(text)
    except OverflowError:
        raise EvaluationError("integer overflow") from None
    if value is None:
        raise EvaluationError(f"cannot parse {text[:64]!r} as an integer")
    return value


def _uint(text: str) -> UInt:
    if text[:1] in {"+", "-"}:
        raise EvaluationError(f"cannot parse {text[:64]!r} as an unsigned integer")
    return checked_uint(_integer(text))


def _double(text: str) -> float:
    value = scanning.double(text)
    if value is None:
        raise EvaluationError(f"cannot parse {text[:64]!r} as a double")
    return value


def bytes_text(value: bytes) -> str:
    """The text that bytes encode.

    Raises:
        EvaluationError: not UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def double_text(value: float) -> str:
    """A double as Go prints it (``%g``): shortest digits, an exponent below -4 or above 5."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else f"{'+' if value > 0 else '-'}Inf"
    number = Decimal(repr(value)).normalize()
    sign, digits, _ = number.as_tuple()
    point = number.adjusted() + 1
    if value == 0 or -5 < point - 1 < 6:
        return f"{Decimal(repr(value)):f}".removesuffix(".0")
    mantissa = "".join(map(str, digits))
    fraction = f".{mantissa[1:]}" if len(mantissa) > 1 else ""
    return f"{'-' if sign else ''}{mantissa[0]}{fraction}e{point - 1:+03d}"


def _same(value: object) -> object:
    return value


def _from(source: Type, target: Type, call: Implementation) -> Overload:
    return free(source, result=target, call=call)


LIBRARY: Final[Library] = (
    function("bool", _from(BOOL, BOOL, _same), _from(STRING, BOOL, _bool)),
    function(
        "int",
        _from(INT, INT, _same),
        _from(DOUBLE, INT, _int_from_double),
        _from(DURATION, INT, lambda value: value.nanos),
        _from(STRING, INT, lambda text: checked_int(_integer(text))),
        _from(TIMESTAMP, INT, lambda value: value.nanos // SECOND),
        _from(UINT, INT, lambda value: checked_int(int(value))),
    ),
    function(
        "uint",
        _from(UINT, UINT, _same),
        _from(DOUBLE, UINT, _uint_from_double),
        _from(INT, UINT, checked_uint),
        _from(STRING, UINT, _uint),
    ),
    function(
        "double",
        _from(DOUBLE, DOUBLE, _same),
        _from(INT, DOUBLE, float),
        _from(STRING, DOUBLE, _double),
        _from(UINT, DOUBLE, float),
    ),
    function(
        "string",
        _from(STRING, STRING, _same),
        _from(BOOL, STRING, lambda value: "true" if value else "false"),
        free(BYTES, result=STRING, call=bytes_text, cost=FIRST),
        _from(DOUBLE, STRING, double_text),
        _from(DURATION, STRING, duration_text),
        _from(INT, STRING, str),
        _from(TIMESTAMP, STRING, timestamp_text),
        _from(UINT, STRING, str),
    ),
    function(
        "bytes",
        _from(BYTES, BYTES, _same),
        free(STRING, result=BYTES, call=lambda text: text.encode("utf-8", "surrogatepass"), cost=FIRST),
    ),
    function(
        "timestamp",
        _from(TIMESTAMP, TIMESTAMP, _same),
        _from(INT, TIMESTAMP, lambda seconds: checked_timestamp(seconds * SECOND)),
        _from(STRING, TIMESTAMP, parse_timestamp),
    ),
    function(
        "duration",
        _from(DURATION, DURATION, _same),
        _from(STRING, DURATION, parse_duration),
    ),
)

CONVERSIONS: Final = frozenset({*(function.name for function in LIBRARY), "dyn", "type"})
"""Functions whose call with a constant is a constant."""
