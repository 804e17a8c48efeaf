"""The conditions that a selector (CEL) joins with ``&&``, and what each reads."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from allocator.cel import Reads
from allocator.model.quantity import Quantity
from allocator.model.semver import Version
from allocator.model.slices.device import Device

ReadValues = tuple[tuple[str, str], ...]
"""What an expression reads of a device, by short name, and the values in words."""

ABSENT: Final = "absent"

STRING: Final = (
    r'''[rRbB]{0,2}(?:"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')'''
)
"""A pattern for literals of strings and bytes, which may span lines."""

_TOKEN: Final = re.compile(
    rf"(?P<text>{STRING})"
    r"|(?P<comment>//)|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<and>&&)|(?P<or>\|\|)|(?P<optional>\.\?|\[\?)|(?P<choice>\?)",
    re.DOTALL,
)


@lru_cache(maxsize=512)
def conditions_of(expression: str) -> tuple[str, ...]:
    """The parts that must all hold; the whole expression if it is not such a conjunction.

    Only ``&&`` outside of brackets counts, and only if no operator outside of brackets binds more loosely.
    """
    parts, start, depth = [], 0, 0
    for token in _TOKEN.finditer(expression):
        kind = token.lastgroup
        if kind == "comment" or (depth == 0 and kind in {"or", "choice"}):
            return (expression.strip(),)
        if kind == "open" or token.group() == "[?":
            depth += 1
        elif kind == "close":
            depth -= 1
        elif kind == "and" and depth == 0:
            parts.append(expression[start : token.start()].strip())
            start = token.end()
    return (*parts, expression[start:].strip())


def with_condition(expression: str, old: str, new: str) -> str:
    """The selector with one of its conditions replaced; ``true`` drops it, and the others keep their numbers."""
    return " && ".join(new if each == old else each for each in conditions_of(expression))


def reading(attribute: str) -> str:
    """An expression that reads an attribute of a device."""
    domain, _, name = attribute.rpartition("/")
    return f'device.attributes["{domain}"].{name}'


def readings(expression: str, attribute: str) -> tuple[str, ...]:
    """The parts of an expression that read an attribute, each text once."""
    domain, _, name = map(re.escape, attribute.rpartition("/"))
    pattern = rf"""device\.attributes\[(["']){domain}\1\]\s*(?:\.\s*{name}\b|\[(["']){name}\2\])"""
    return tuple(dict.fromkeys(found.group() for found in re.finditer(pattern, expression)))


def guarded(condition: str, attributes: Iterable[str]) -> str:
    """The condition, which is false where a device lacks an attribute that it reads; empty if that can't be written.

    A condition with alternatives may hold without one of the attributes, so it stays as it is.
    """
    read = [found[0] for name in attributes if (found := readings(condition, name))]
    if not read or any(each.endswith("]") for each in read) or "||" in condition or "?" in condition:
        return ""
    return " && ".join([*(f"has({each})" for each in read), condition])


def with_attribute(expression: str, missing: str, meant: str) -> str:
    """The expression, reading another attribute."""
    for old in readings(expression, missing):
        expression = re.sub(rf"{re.escape(old)}(?!\w)", lambda _: reading(meant), expression)
    return expression


def values_read(reads: Reads, device: Device) -> ReadValues:
    """The values of a device that an expression reads. Names in the driver's own domain are short."""
    if reads.everything:
        return ()
    found = [("driver", device.driver)] if reads.driver else []
    if reads.allow_multiple_allocations:
        found.append(("allowMultipleAllocations", value_in_words(device.allow_multiple_allocations)))
    found += [(short(name, device), value_in_words(device.attributes.get(name, ABSENT))) for name in reads.attributes]
    found += [(short(name, device), value_in_words(device.quantities.get(name, ABSENT))) for name in reads.capacities]
    return tuple(found)


def only_value(reads: Reads, device: Device) -> tuple[str, object]:
    """The only thing that an expression reads of a device, by short name, and its value; None for any other number."""
    found: list[tuple[str, object]] = [(short(name, device), device.attributes.get(name)) for name in reads.attributes]
    found += [(short(name, device), device.quantities.get(name)) for name in reads.capacities]
    found += [("driver", device.driver)] if reads.driver else []
    return found[0] if len(found) == 1 else ("", None)


def short(name: str, device: Device) -> str:
    """An attribute's or capacity's name, without the domain if that is the device's driver."""
    return name.removeprefix(f"{device.driver}/")


def value_in_words(value: object) -> str:
    """A value as people write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(value_in_words, value))}]"
    if isinstance(value, Version):
        return value.text
    if isinstance(value, Quantity):
        return str(value)
    return str(value) if value != "" else '""'
