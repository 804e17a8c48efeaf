"""Exact amounts with a unit: what Kubernetes calls `resource.Quantity`.

Semantics: k8s.io/apimachinery/pkg/api/resource. A quantity is a whole number of nano units. A finer amount is rounded
away from zero, so that a small request never becomes zero.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import total_ordering
from typing import Final

_NANO: Final = 10**9
_MAX_BINARY: Final = (2**63 - 1) * _NANO
_MAX_EXPONENT: Final = 300
"""Upstream takes any exponent, but a short text with a larger one would be a number that fills the memory."""

_TEXT: Final = re.compile(
    r"(?=.)([+-]?)([0-9]*+)(?:\.([0-9]*+))?+(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?",
)
_DECIMAL_SUFFIXES: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_EXPONENT_OF: Final = {suffix: 3 * (i - 3) for i, suffix in enumerate(_DECIMAL_SUFFIXES)}
_FACTOR_OF: Final = {suffix: 1024**i for i, suffix in enumerate(_BINARY_SUFFIXES) if suffix}


class QuantityRangeError(ValueError):
    """A quantity in upstream's syntax that is too large or too fine for us."""


class Format(Enum):
    """The family of suffixes that a quantity was written with, and is printed with."""

    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact amount; equal, ordered and hashed by value, whatever its format.

    Attributes:
        nano: the value in units of 10**-9.
        format: how it prints.
    """

    nano: int
    format: Format = Format.DECIMAL_SI

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Read a quantity, e.g. ``80Gi``, ``1.5``, ``100m``, ``1e3``.

        As upstream, amounts with a binary suffix are capped at 2**63 - 1 in magnitude.

        Raises:
            QuantityRangeError: the exponent is beyond +-300, or there are more than 300 digits.
            ValueError: not a quantity.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f'"{_shortened(text)}" is not a quantity')
        sign, whole, fraction, suffix, exponent = match.groups(default="")
        if len(exponent) > 4 or len(whole) + len(fraction) > _MAX_EXPONENT or abs(int(exponent or 0)) > _MAX_EXPONENT:
            raise QuantityRangeError(f'"{_shortened(text)}" is too large or too fine for a quantity')
        digits = int(whole + fraction or "0")  # upstream takes a text without digits as 0
        if suffix in _FACTOR_OF:
            nano = min(_scaled(digits * _FACTOR_OF[suffix], 9 - len(fraction)), _MAX_BINARY)
            form = Format.DECIMAL_SI if 0 < nano < _NANO else Format.BINARY_SI
        else:
            power = int(exponent) if exponent else _EXPONENT_OF[suffix]
            nano = _scaled(digits, 9 - len(fraction) + power)
            form = Format.DECIMAL_EXPONENT if exponent else Format.DECIMAL_SI
        return cls(-nano if sign == "-" else nano, form)

    @classmethod
    def from_int(cls, value: int, form: Format = Format.DECIMAL_SI) -> "Quantity":
        """The quantity of a whole number."""
        return cls(value * _NANO, form)

    @classmethod
    def from_nano(cls, nano: int, form: Format = Format.DECIMAL_SI) -> "Quantity":
        """The quantity of a number of nano units."""
        return cls(nano, form)

    @property
    def is_integer(self) -> bool:
        """Whether the value is whole."""
        return self.nano % _NANO == 0

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: "Quantity") -> bool:
        return self.nano < other.nano

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano + other.nano, self.format if self.nano else other.format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano - other.nano, self.format if self.nano else other.format)

    def __str__(self) -> str:
        """The canonical form: no fraction, and the largest suffix that is exact."""
        if self.nano == 0:
            return "0"
        if self.format is Format.BINARY_SI and self.is_integer and abs(self.nano) >= 1024 * _NANO:
            value, power = _without_factors(self.nano // _NANO, 1024, len(_BINARY_SUFFIXES) - 1)
            return f"{value}{_BINARY_SUFFIXES[power]}"
        most = _MAX_EXPONENT if self.format is Format.DECIMAL_EXPONENT else len(_DECIMAL_SUFFIXES) - 1
        value, power = _without_factors(self.nano, 1000, most)
        if self.format is not Format.DECIMAL_EXPONENT:
            return f"{value}{_DECIMAL_SUFFIXES[power]}"
        return f"{value}e{3 * power - 9}" if power != 3 else str(value)


def _scaled(digits: int, power: int) -> int:
    """``digits * 10**power``, rounded up to a whole number."""
    return digits * 10**power if power >= 0 else _divided(digits, 10**-power)


def _divided(value: int, by: int) -> int:
    """The quotient, rounded away from zero."""
    return -(-value // by) if value > 0 else value // by


def _without_factors(value: int, factor: int, most: int) -> tuple[int, int]:
    """The value without its factors, and how many (at most ``most``) there were."""
    count = 0
    while count < most and value % factor == 0:
        value //= factor
        count += 1
    return value, count


def _shortened(text: str, width: int = 64) -> str:
    return text if len(text) <= width else f"{text[:width]}..."
