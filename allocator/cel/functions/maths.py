"""The math and base64 extensions of cel-go; Kubernetes does not have them, cel-spec's cases do."""

import base64
import binascii
import math
from collections.abc import Callable
from itertools import product
from typing import Final

from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Function, Implementation, Library, Overload, free, function
from allocator.cel.functions.numbers import checked_int
from allocator.cel.types import BOOL, BYTES, DOUBLE, DYN, INT, STRING, UINT, Type, list_of
from allocator.cel.values import INT_MAX, UINT_MAX, UInt, Value, compare

_NUMBERS: Final = (INT, UINT, DOUBLE)
_MOST_ARGUMENTS: Final = 8


def _extreme(wanted: int) -> Callable[..., Value]:
    def call(*values: Value) -> Value:
        if len(values) == 1 and type(values[0]) is tuple:
            values = values[0]
        if not values:
            raise EvaluationError("no values to compare")
        best = values[0]
        if type(best) not in (int, UInt, float):
            raise EvaluationError("no such overload")
        for value in values[1:]:
            if compare(value, best) == wanted:
                best = value
        return best

    return call


def _extremes(name: str, wanted: int) -> Function:
    """Of one to some numbers, or of a list. Macros upstream, which count as they like."""
    call = _extreme(wanted)
    single = [free(t, result=t, call=call) for t in _NUMBERS]
    pairs = [free(a, b, result=a if a == b else DYN, call=call) for a, b in product(_NUMBERS, repeat=2)]
    lists = [free(list_of(t), result=t, call=call) for t in (*_NUMBERS, DYN)]
    more = [free(*[DYN] * count, result=DYN, call=_only_numbers(call)) for count in range(3, _MOST_ARGUMENTS)]
    return Function(name, (*single, *pairs, *lists, *more))


def _only_numbers(call: Callable[..., Value]) -> Implementation:
    def checked(*values: Value) -> Value:
        if any(type(value) not in (int, UInt, float) for value in values):
            raise EvaluationError("no such overload")
        return call(*values)

    return checked


def _rounding(name: str, call: Callable[[float], float]) -> Function:
    def checked(value: float) -> float:
        return call(value) if math.isfinite(value) else value

    return function(name, free(DOUBLE, result=DOUBLE, call=checked))


def _away_from_zero(value: float) -> float:
    return math.copysign(math.floor(abs(value) + 0.5), value)


def _sign(value: float) -> float:
    return value if math.isnan(value) or value == 0 else math.copysign(1.0, value)


def _signed(value: int) -> int:
    """The int whose 64 bits these are."""
    value &= UINT_MAX
    return value - 2**64 if value > INT_MAX else value


def _bitwise(name: str, call: Callable[[int, int], int]) -> Function:
    return function(
        name,
        free(INT, INT, result=INT, call=lambda a, b: _signed(call(a, b))),
        free(UINT, UINT, result=UINT, call=lambda a, b: UInt(call(int(a), int(b)))),
    )


def _shift(name: str, call: Callable[[int, int], int]) -> Function:
    def shifted(value: int, by: int) -> int:
        if by < 0:
            raise EvaluationError(f"{name}() negative offset: {by}")
        return 0 if by >= 64 else call(int(value) & UINT_MAX, by) & UINT_MAX

    return function(
        name,
        free(INT, INT, result=INT, call=lambda value, by: _signed(shifted(value, by))),
        free(UINT, INT, result=UINT, call=lambda value, by: UInt(shifted(value, by))),
    )


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise EvaluationError("invalid base64") from None


def _each(name: str, *pairs: tuple[Type, Implementation]) -> Function:
    return Function(name, tuple(Overload((kind,), kind, call) for kind, call in pairs))


LIBRARY: Final[Library] = (
    _extremes("math.greatest", 1),
    _extremes("math.least", -1),
    _rounding("math.ceil", lambda value: float(math.ceil(value))),
    _rounding("math.floor", lambda value: float(math.floor(value))),
    _rounding("math.round", _away_from_zero),
    _rounding("math.trunc", lambda value: float(math.trunc(value))),
    _each("math.abs", (INT, lambda value: checked_int(abs(value))), (UINT, lambda value: value), (DOUBLE, abs)),
    _each("math.sign", (INT, lambda v: (v > 0) - (v < 0)), (UINT, lambda v: UInt(v > 0)), (DOUBLE, _sign)),
    function("math.isNaN", free(DOUBLE, result=BOOL, call=math.isnan)),
    function("math.isInf", free(DOUBLE, result=BOOL, call=math.isinf)),
    function("math.isFinite", free(DOUBLE, result=BOOL, call=math.isfinite)),
    _bitwise("math.bitAnd", lambda a, b: a & b),
    _bitwise("math.bitOr", lambda a, b: a | b),
    _bitwise("math.bitXor", lambda a, b: a ^ b),
    _each("math.bitNot", (INT, lambda value: ~value), (UINT, lambda value: UInt(int(value) ^ UINT_MAX))),
    _shift("math.bitShiftLeft", lambda value, by: value << by),
    _shift("math.bitShiftRight", lambda value, by: value >> by),
    function("base64.encode", free(BYTES, result=STRING, call=lambda data: base64.b64encode(data).decode())),
    function("base64.decode", free(STRING, result=BYTES, call=_decode)),
)
