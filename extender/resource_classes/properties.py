"""CEL for one requirement of a ResourceClass.

A property of a device is an attribute, or else a capacity of that name. A device without the property fails In, Gt and
Lt, and passes NotIn, as with node selectors.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from allocator import Quantity, Version
from allocator.tools import qualified_name, shown
from extender.cluster.objects.resource_classes import Operator, PropertyRequirement

_T = TypeVar("_T")

_NANO: Final = 10**9
_INT64: Final = 2**63
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_RATE: Final = "bps"
"""A unit that KEP-14 writes after an amount, as in ``40GBPS``."""

_WITHOUT_RATE: Final = f'.replace("{_RATE}", "").replace("{_RATE.upper()}", "")'
"""The same of a property that is a text, in CEL."""


class RequirementError(ValueError):
    """A requirement that no expression can say.

    Attributes:
        field: of the requirement: ``key`` or ``values[0]``.
    """

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class _Property:
    """A property in CEL: whether a device has it as an attribute or as a capacity, and its value as each."""

    has_attribute: str
    attribute: str
    has_capacity: str
    capacity: str

    def choose(self, by_attribute: str, by_capacity: str) -> str:
        """The expression for the attribute if there is one, else the expression for the capacity; empty: never."""
        if not by_capacity:
            return f"({self.has_attribute} && {by_attribute})"
        return f"({self.has_attribute} ? {by_attribute} : {self.has_capacity} && {by_capacity})"


def requirement_expression(requirement: PropertyRequirement, domain: str) -> str:
    """The CEL expression of a requirement.

    Args:
        requirement: of a ResourceClass.
        domain: a CEL expression for the domain of keys without a domain.

    Raises:
        RequirementError: the key is no name of a property, or a value has no order.
    """
    found = _property(requirement.key, domain)
    match requirement.operator:
        case Operator.IN:
            return _is_in(found, requirement.values)
        case Operator.NOT_IN:
            return f"!{_is_in(found, requirement.values)}"
        case Operator.EXISTS:
            return f"({found.has_attribute} || {found.has_capacity})"
        case Operator.DOES_NOT_EXIST:
            return f"!({found.has_attribute} || {found.has_capacity})"
        case Operator.GREATER:
            return _compares(found, requirement.values[0], ">", "isGreaterThan")
        case Operator.LESS:
            return _compares(found, requirement.values[0], "<", "isLessThan")


def amount_of(text: str) -> Quantity | None:
    """A text as an amount, also with the unit of a rate; None if it is none."""
    return _read(Quantity.parse, text[: -len(_RATE)] if _is_rate(text) else text)


def _is_rate(text: str) -> bool:
    return text[-len(_RATE) :].lower() == _RATE


def version_of(text: str) -> Version | None:
    """A text as a semantic version; None if it is none."""
    return _read(Version.parse, text)


def _read(parse: Callable[[str], _T], text: str) -> _T | None:
    try:
        return parse(text)
    except ValueError:
        return None


def _property(key: str, domain: str) -> _Property:
    wrong = qualified_name(key)
    if wrong:
        raise RequirementError("key", f"{shown(key)} {wrong}")
    own, _, name = key.rpartition("/")
    place = _text(own) if own else domain
    attributes, capacities = f"device.attributes[{place}]", f"device.capacity[{place}]"
    return _Property(
        f"{_text(name)} in {attributes}",
        f"{attributes}[{_text(name)}]",
        f"{_text(name)} in {capacities}",
        f"{capacities}[{_text(name)}]",
    )


def _is_in(found: _Property, values: tuple[str, ...]) -> str:
    attribute = " || ".join(equal for value in values for equal in _equals(found.attribute, value))
    amounts = (amount for amount in map(amount_of, values) if amount is not None)
    capacity = " || ".join(f"{found.capacity}.compareTo(quantity({_text(str(amount))})) == 0" for amount in amounts)
    return found.choose(f"({attribute})", f"({capacity})" if capacity else "")


def _equals(attribute: str, value: str) -> list[str]:
    """Whether an attribute is a text, or is the number, truth or version that the text writes.

    The literal stands first: a version that is compared with a text is an error.
    """
    found = [f"{_text(value)} == {attribute}"]
    is_number = _WHOLE.fullmatch(value) is not None and -_INT64 <= int(value) < _INT64
    if is_number or value in {"true", "false"}:
        found.append(f"{value} == {attribute}")
    elif version_of(value) is not None:
        version = f"semver({_text(value)})"
        found.append(f"{_is_of(attribute, f'type({version})')} && {attribute} == {version}")
    return found


def _compares(found: _Property, value: str, sign: str, method: str) -> str:
    amount = amount_of(value)
    if amount is not None:
        limit = f"quantity({_text(str(amount))})"
        written = found.attribute + (_WITHOUT_RATE if _is_rate(value) else "")
        text = f"isQuantity({written}) && quantity({written}).{method}({limit})"
        number = _integer(found.attribute, amount, sign)
        is_integer, is_text = _is_of(found.attribute, "int"), _is_of(found.attribute, "string")
        by_attribute = f"({is_integer} ? {number} : {is_text} && {text})"
        return found.choose(by_attribute, f"{found.capacity}.{method}({limit})")
    if version_of(value) is not None:
        limit = f"semver({_text(value)})"
        text = f"isSemver({found.attribute}) && semver({found.attribute}).{method}({limit})"
        version = f"{_is_of(found.attribute, f'type({limit})')} && {found.attribute}.{method}({limit})"
        return found.choose(f"({_is_of(found.attribute, 'string')} ? {text} : {version})", "")
    raise RequirementError("values[0]", f"{shown(value)} is neither an amount such as 15G, nor a version such as 1.2.3")


def _integer(attribute: str, amount: Quantity, sign: str) -> str:
    """Compares a whole number with an amount, by the whole number next to the amount."""
    limit = amount.nano // _NANO if sign == ">" else -(-amount.nano // _NANO)
    if -_INT64 <= limit < _INT64:
        return f"{attribute} {sign} {limit}"
    return "true" if (limit < 0) == (sign == ">") else "false"


def _is_of(attribute: str, kind: str) -> str:
    """Whether an attribute has a type. An API server refuses ``==`` of types: it takes its cost for unlimited."""
    return f"type({attribute}) in [{kind}]"


def _text(value: str) -> str:
    """A literal of CEL. JSON's escapes are CEL's, except for pairs of surrogates."""
    return json.dumps(value, ensure_ascii=False)
