"""Quantities as upstream holds them: digits and a power of ten, which decide what counts as an integer.

Semantics: k8s.io/apimachinery/pkg/api/resource (`ParseQuantity`, `int64Amount`, `infDecAmount`).
"""

import math
import re
from typing import Final

from allocator.model.quantity import Format, Quantity

_NANO: Final = 10**9
_MOST: Final = 2**63 - 1
_MOST_DIGITS: Final = 18
_MOST_BINARY_DIGITS: Final = 14
_FINEST: Final = -9
_DECIMAL_POWERS: Final = {
    suffix: power
    for power, suffix in zip(range(-9, 19, 3), ("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), strict=True)
}
_BINARY_POWERS: Final = {f"{suffix}i": power for power, suffix in enumerate("KMGTPE", start=1)}
_PARTS: Final = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?(.*)")


class Amount(Quantity):
    """A quantity with upstream's digits.

    Attributes:
        digits: the value is ``digits * 10**scale``.
        scale: the power of ten.
        long: upstream has left 64-bit integers; such an amount never counts as an integer.
    """

    __slots__ = ("digits", "long", "scale")
    digits: int
    scale: int
    long: bool

    def __init__(self, value: Quantity, digits: int, scale: int, *, long: bool) -> None:
        super().__init__(value.nano, value.format)
        for name, part in (("digits", digits), ("scale", scale), ("long", long)):
            object.__setattr__(self, name, part)


class Computed(Amount):
    """The result of arithmetic. It can equal another quantity, but no other value equals it (as upstream)."""

    __slots__ = ()


def parse(text: str) -> Amount:
    """The quantity that a text is.

    Raises:
        ValueError: as `Quantity.parse`.
    """
    value = Quantity.parse(text)
    match = _PARTS.fullmatch(text)
    sign, whole, fraction, suffix = match.groups(default="") if match else ("", "", "", "")
    whole = whole or "0"
    if suffix in _BINARY_POWERS:
        power = _BINARY_POWERS[suffix]
        digits, scale = int(whole) * 1024**power, 0
        short = not fraction and len(whole) + 3 * power <= _MOST_BINARY_DIGITS and digits <= _MOST
    else:
        power = _DECIMAL_POWERS[suffix] if suffix in _DECIMAL_POWERS else int(suffix[1:])
        digits, scale = int(whole + fraction), power - len(fraction)
        short = len(whole) + len(fraction) <= _MOST_DIGITS and scale >= _FINEST
    if short:
        return Amount(value, -digits if sign == "-" else digits, scale, long=False)
    if suffix in _BINARY_POWERS and abs(value.nano) == _MOST * _NANO:
        return Amount(value, value.nano // _NANO, 0, long=True)  # upstream's cap
    return Amount(value, value.nano, _FINEST, long=True)


def amount_of(value: Quantity) -> Amount:
    """The quantity as upstream holds it; one of a device was written in its canonical form."""
    return value if isinstance(value, Amount) else parse(str(value))


def from_int(value: int) -> Amount:
    """The quantity of an integer of an expression."""
    return Amount(Quantity.from_int(value, Format.DECIMAL_EXPONENT), value, 0, long=False)


def integer(value: Quantity) -> int | None:
    """The value as a 64-bit integer; None if upstream does not hold it as one."""
    amount = amount_of(value)
    if amount.long or amount.scale < 0:
        return None
    whole = amount.digits * 10**amount.scale
    return whole if -_MOST - 1 <= whole <= _MOST else None


def approximate(value: Quantity) -> float:
    """The value as a double; upstream multiplies digits and power of ten as doubles."""
    amount = amount_of(value)
    try:
        digits = float(amount.digits)
    except OverflowError:
        digits = math.inf if amount.digits > 0 else -math.inf
    return digits * _power_of_ten(amount.scale) if amount.scale else digits


def _power_of_ten(exponent: int) -> float:
    """A power of ten as Go's ``math.Pow10`` has it, which multiplies two of its tables."""
    if exponent < 0:
        return float(f"1e{exponent}")
    return float(f"1e{exponent - exponent % 32}") * float(f"1e{exponent % 32}")


def added(left: Quantity, right: Quantity) -> Computed:
    """The sum."""
    return _added(amount_of(left), amount_of(right), left + right)


def subtracted(left: Quantity, right: Quantity) -> Computed:
    """The difference."""
    one, other = amount_of(left), amount_of(right)
    return _added(one, Amount(right, -other.digits, other.scale, long=other.long), left - right)


def _added(left: Amount, right: Amount, result: Quantity) -> Computed:
    if not (left.long or right.long):
        if right.digits == 0 or left.digits == 0:
            kept = left if right.digits == 0 else right
            return Computed(result, kept.digits, kept.scale, long=False)
        scale = min(left.scale, right.scale)
        digits = [each.digits * 10 ** (each.scale - scale) for each in (left, right)]
        if all(-_MOST - 1 <= each <= _MOST for each in (*digits, sum(digits))):
            return Computed(result, sum(digits), scale, long=False)
    scale = min(left.scale, right.scale)
    digits = [each.digits * 10 ** (each.scale - scale) for each in (left, right)]
    return Computed(result, sum(digits), scale, long=True)
