"""Devices, quantities and versions as values of cel-python. No code here is shared with our own engine."""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from celpy import celtypes

from allocator import AttributeValue, Device, Quantity, Version
from extender.plugins.second_opinion.unchecked import Difference, Unchecked

_UNITS: Final[Mapping[str, Fraction]] = {
    "": Fraction(1),
    **{unit: Fraction(1, 1000**power) for power, unit in enumerate("mun", 1)},
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", 1)},
}
_PLAIN_QUANTITY: Final = re.compile(r"([+-]?[0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGTPE]i|[numkMGTPE]?)")
_MOST: Final = Fraction(2**63 - 1)
_LARGE: Final = 10**24
"""In nano units. Kubernetes does not say of all larger quantities that they are whole."""

# The pattern that semver.org recommends.
_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?",
    re.ASCII,
)
_LONGEST_NUMBER: Final = 18


class Amount:
    """A quantity: an exact number.

    Args:
        value: the number.
        is_plain: it is as a device or a text has it: neither a sum, nor very large, nor written with a point.
    """

    def __init__(self, value: Fraction, *, is_plain: bool) -> None:
        self.value = value
        self.is_plain = is_plain

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Amount):
            return NotImplemented
        self.check_plain()
        other.check_plain()
        return self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    @property
    def order(self) -> Fraction:
        """The key by which amounts are compared."""
        return self.value

    def check_plain(self) -> None:
        """Raise `Unchecked` if the number is not plain."""
        if not self.is_plain:
            raise Unchecked(Difference.COMPUTED_QUANTITY)


class Semver:
    """A semantic version, ordered by precedence.

    Args:
        text: as it is written.

    Raises:
        ValueError: not a semantic version.
    """

    def __init__(self, text: str) -> None:
        found = _VERSION.fullmatch(text)
        if found is None:
            raise ValueError("not a semantic version")
        if any(len(each) > _LONGEST_NUMBER for each in re.findall(r"\d+", text)):
            raise Unchecked("a version with a very large number")
        numbers, tail = found.groups()[:3], found[4]
        self.numbers = tuple(int(number) for number in numbers)
        self._tail = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in (tail or "").split(".")]
        self._is_release = tail is None

    @property
    def order(self) -> tuple[Any, ...]:
        """The key by which versions are compared; build metadata has no part in it."""
        return (self.numbers, self._is_release, self._tail)

    def __eq__(self, other: object) -> bool:
        return self.order == other.order if isinstance(other, Semver) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.numbers)


class Domains(celtypes.MapType):
    """A map of domains: an unknown domain is an empty map."""

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - a value of cel-python
        return super().__getitem__(key) if key in self else celtypes.MapType()


def device_value(device: Device) -> celtypes.MapType:
    """The variable ``device``."""
    text = celtypes.StringType
    return celtypes.MapType(
        {
            text("driver"): text(device.driver),
            text("attributes"): _domains({name: _attribute(value) for name, value in device.attributes.items()}),
            text("capacity"): _domains({name: _amount(value) for name, value in device.quantities.items()}),
            text("allowMultipleAllocations"): celtypes.BoolType(device.allow_multiple_allocations),
        }
    )


def _domains(values: Mapping[str, object]) -> Domains:
    found: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        domain, _, key = name.partition("/")
        found.setdefault(domain, {})[celtypes.StringType(key)] = value
    return Domains({celtypes.StringType(domain): celtypes.MapType(names) for domain, names in found.items()})


def _attribute(value: AttributeValue) -> Any:  # noqa: ANN401 - a value of cel-python
    if isinstance(value, tuple):
        return celtypes.ListType([_attribute(each) for each in value])
    if isinstance(value, Version):
        return Semver(value.text)
    if isinstance(value, bool):
        return celtypes.BoolType(value)
    return celtypes.IntType(value) if isinstance(value, int) else celtypes.StringType(value)


def _amount(value: Quantity) -> Amount:
    return Amount(Fraction(value.nano, 10**9), is_plain=abs(value.nano) < _LARGE)


def quantity(text: str) -> Amount:
    """The function ``quantity``.

    Raises:
        Unchecked: a text in another form than most have.
    """
    found = _PLAIN_QUANTITY.fullmatch(_text(text))
    value = Fraction(found[1]) * _UNITS[found[2]] if found else None
    if value is None or abs(value) > _MOST or (value * 10**9).denominator != 1:
        raise Unchecked("a quantity in an unusual form")
    return Amount(value, is_plain="." not in text)


def semver(text: str) -> Semver:
    """The function ``semver``; a text that is no version makes the selector fail."""
    return Semver(_text(text))


def is_semver(text: str) -> celtypes.BoolType:
    """The function ``isSemver``."""
    try:
        semver(text)
    except ValueError:
        return celtypes.BoolType(source=False)
    return celtypes.BoolType(source=True)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _like(kind: type, one: object, other: object) -> None:
    if not (isinstance(one, kind) and isinstance(other, kind)):
        raise TypeError("no such overload")


def _compared(say: Callable[[Any, Any], object], result: type) -> Callable[[object, object], object]:
    """A method that compares two quantities, or two versions."""

    def compare(one: object, other: object) -> object:
        _like(Semver if isinstance(one, Semver) else Amount, one, other)
        return result(say(one.order, other.order))  # type: ignore[attr-defined]

    return compare


def _summed(sign: int) -> Callable[[object, object], Amount]:
    """``add`` or ``sub``, of a quantity and a quantity or a whole number."""

    def work(one: object, other: object) -> Amount:
        added = Amount(Fraction(int(other)), is_plain=True) if isinstance(other, celtypes.IntType) else other
        _like(Amount, one, added)
        found = one.value + sign * added.value  # type: ignore[attr-defined]
        if abs(found) > _MOST:
            raise Unchecked("a very large quantity")
        return Amount(found, is_plain=False)

    return work


def _of_amount(say: Callable[[Amount], object], result: type) -> Callable[[object], object]:
    def work(one: object) -> object:
        _like(Amount, one, one)
        return result(say(one))  # type: ignore[arg-type]

    return work


def _number(place: int) -> Callable[[object], celtypes.IntType]:
    """``major``, ``minor`` or ``patch``."""

    def work(one: object) -> celtypes.IntType:
        _like(Semver, one, one)
        return celtypes.IntType(one.numbers[place])  # type: ignore[attr-defined]

    return work


def _is_whole(amount: Amount) -> bool:
    amount.check_plain()
    return amount.value.denominator == 1


def _whole(amount: Amount) -> int:
    if not _is_whole(amount):
        raise ValueError("not a whole number")
    return int(amount.value)


FUNCTIONS: Final[Mapping[str, Callable[..., object]]] = {
    "quantity": quantity,
    "isQuantity": lambda text: celtypes.BoolType(quantity(text) is not None),
    "isInteger": _of_amount(_is_whole, celtypes.BoolType),
    "asInteger": _of_amount(_whole, celtypes.IntType),
    "sign": _of_amount(lambda amount: (amount.value > 0) - (amount.value < 0), celtypes.IntType),
    "add": _summed(1),
    "sub": _summed(-1),
    "semver": semver,
    "isSemver": is_semver,
    "major": _number(0),
    "minor": _number(1),
    "patch": _number(2),
    "compareTo": _compared(lambda one, other: (one > other) - (one < other), celtypes.IntType),
    "isLessThan": _compared(lambda one, other: one < other, celtypes.BoolType),
    "isGreaterThan": _compared(lambda one, other: one > other, celtypes.BoolType),
}
"""Kubernetes' functions for quantities and versions, by name. A method gets its receiver first."""
