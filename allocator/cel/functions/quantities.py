"""Quantities, as `resource.Quantity` of Kubernetes."""

import math
import re
from typing import Final

from allocator.cel.cost import FIRST, ONE
from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Library, free, function, member
from allocator.cel.types import BOOL, DOUBLE, INT, QUANTITY, STRING
from allocator.cel.values import INT_MAX, INT_MIN, Computed
from allocator.model.quantity import Format, Quantity

_NANO: Final = 10**9
_MAX_DIGITS: Final = 18
_CANONICAL: Final = re.compile(r"-?([0-9]+)([KMGTPE]i)?.*")
_POWER: Final = {suffix: power for power, suffix in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}


def _parse(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except ValueError:
        raise EvaluationError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from None


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except ValueError:
        return False
    return True


def _is_integer(value: Quantity) -> bool:
    """Whether upstream holds the quantity as a 64-bit integer; a whole number can be too long for that."""
    if not value.is_integer or not INT_MIN <= value.nano // _NANO <= INT_MAX:
        return False
    if isinstance(value, Computed):
        return value.scale >= 0
    match = _CANONICAL.fullmatch(str(value))
    if match is None:
        return False
    digits, binary = match.groups(default="")
    if value.format is Format.BINARY_SI:
        return 14 - len(digits) - 3 * _POWER[binary] >= 0
    return len(digits) <= _MAX_DIGITS


def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise EvaluationError("cannot convert value to integer")
    return value.nano // _NANO


def _sign(value: Quantity) -> int:
    return (value.nano > 0) - (value.nano < 0)


def _approximately(value: Quantity) -> float:
    try:
        return value.nano / _NANO
    except OverflowError:
        return math.inf if value.nano > 0 else -math.inf


def _order(left: Quantity, right: Quantity) -> int:
    return (left.nano > right.nano) - (left.nano < right.nano)


def _int(value: int) -> Quantity:
    return Quantity.from_int(value)


def _computed(left: Quantity, right: Quantity, result: Quantity) -> Computed:
    return Computed(result, min(_scale(left), _scale(right)))


def _scale(value: Quantity) -> int:
    """The power of ten of the canonical text's suffix; 0 for a binary suffix."""
    if isinstance(value, Computed):
        return value.scale
    suffix = str(value).lstrip("-0123456789")
    if suffix.startswith("e"):
        return int(suffix[1:])
    return _DECIMAL_POWERS.get(suffix, 0)


def _add(left: Quantity, right: Quantity) -> Computed:
    return _computed(left, right, left + right)


def _sub(left: Quantity, right: Quantity) -> Computed:
    return _computed(left, right, left - right)


_DECIMAL_POWERS: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

LIBRARY: Final[Library] = (
    function("quantity", free(STRING, result=QUANTITY, call=_parse), cost=FIRST),
    function("isQuantity", free(STRING, result=BOOL, call=_is_quantity), cost=FIRST),
    # Upstream declares it without a receiver, so `q.sign()` does not compile.
    function("sign", free(QUANTITY, result=INT, call=_sign), cost=ONE),
    function("isInteger", member(QUANTITY, result=BOOL, call=_is_integer), cost=ONE),
    function("asInteger", member(QUANTITY, result=INT, call=_as_integer), cost=ONE),
    function("asApproximateFloat", member(QUANTITY, result=DOUBLE, call=_approximately), cost=ONE),
    function("isGreaterThan", member(QUANTITY, QUANTITY, result=BOOL, call=lambda a, b: a.nano > b.nano), cost=ONE),
    function("isLessThan", member(QUANTITY, QUANTITY, result=BOOL, call=lambda a, b: a.nano < b.nano), cost=ONE),
    function("compareTo", member(QUANTITY, QUANTITY, result=INT, call=_order), cost=ONE),
    function(
        "add",
        member(QUANTITY, QUANTITY, result=QUANTITY, call=_add),
        member(QUANTITY, INT, result=QUANTITY, call=lambda a, b: _add(a, _int(b))),
        cost=ONE,
    ),
    function(
        "sub",
        member(QUANTITY, QUANTITY, result=QUANTITY, call=_sub),
        member(QUANTITY, INT, result=QUANTITY, call=lambda a, b: _sub(a, _int(b))),
        cost=ONE,
    ),
)
