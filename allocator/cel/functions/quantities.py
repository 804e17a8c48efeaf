"""Quantities, as `resource.Quantity` of Kubernetes."""

from typing import Final

from allocator.cel import amounts
from allocator.cel.cost import FIRST, ONE
from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Library, free, function, member
from allocator.cel.types import BOOL, DOUBLE, INT, QUANTITY, STRING
from allocator.model.quantity import Quantity, QuantityRangeError


def _parse(text: str) -> Quantity:
    try:
        return amounts.parse(text)
    except ValueError:
        raise EvaluationError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from None


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityRangeError:
        return True
    except ValueError:
        return False
    return True


def _is_integer(value: Quantity) -> bool:
    """Whether upstream holds the quantity as a 64-bit integer: ``1.0`` is written as a fraction, so it is not one."""
    return amounts.integer(value) is not None


def _as_integer(value: Quantity) -> int:
    whole = amounts.integer(value)
    if whole is None:
        raise EvaluationError("cannot convert value to integer")
    return whole


def _sign(value: Quantity) -> int:
    return (value.nano > 0) - (value.nano < 0)


def _order(left: Quantity, right: Quantity) -> int:
    return (left.nano > right.nano) - (left.nano < right.nano)


LIBRARY: Final[Library] = (
    function("quantity", free(STRING, result=QUANTITY, call=_parse), cost=FIRST),
    function("isQuantity", free(STRING, result=BOOL, call=_is_quantity), cost=FIRST),
    # Upstream declares it without a receiver, so `q.sign()` does not compile.
    function("sign", free(QUANTITY, result=INT, call=_sign), cost=ONE),
    function("isInteger", member(QUANTITY, result=BOOL, call=_is_integer), cost=ONE),
    function("asInteger", member(QUANTITY, result=INT, call=_as_integer), cost=ONE),
    function("asApproximateFloat", member(QUANTITY, result=DOUBLE, call=amounts.approximate), cost=ONE),
    function("isGreaterThan", member(QUANTITY, QUANTITY, result=BOOL, call=lambda a, b: a.nano > b.nano), cost=ONE),
    function("isLessThan", member(QUANTITY, QUANTITY, result=BOOL, call=lambda a, b: a.nano < b.nano), cost=ONE),
    function("compareTo", member(QUANTITY, QUANTITY, result=INT, call=_order), cost=ONE),
    function(
        "add",
        member(QUANTITY, QUANTITY, result=QUANTITY, call=amounts.added),
        member(QUANTITY, INT, result=QUANTITY, call=lambda a, b: amounts.added(a, amounts.from_int(b))),
        cost=ONE,
    ),
    function(
        "sub",
        member(QUANTITY, QUANTITY, result=QUANTITY, call=amounts.subtracted),
        member(QUANTITY, INT, result=QUANTITY, call=lambda a, b: amounts.subtracted(a, amounts.from_int(b))),
        cost=ONE,
    ),
)
