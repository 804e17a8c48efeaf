"""The conditions that a selector joins with ``&&``: what each reads, and which value it wants."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from allocator.cel import CompileError, Reads
from allocator.cel.ast import Call, Literal, Node
from allocator.cel.parse import parse
from allocator.model.devices import Device
from allocator.model.quantity import Quantity
from allocator.model.semver import Version

ReadValues = tuple[tuple[str, str], ...]
"""What an expression reads of a device, by short name, and the values in words."""

ABSENT: Final = "absent"

_TOKEN: Final = re.compile(
    r'''(?P<text>[rRbB]{0,2}(?:"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))'''
    r"|(?P<comment>//)|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<and>&&)|(?P<or>\|\|)|(?P<optional>\.\?|\[\?)|(?P<choice>\?)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Wish:
    """The one value that a condition of the form ``attribute == value`` wants."""

    value: bool | int | str


@lru_cache(maxsize=4096)
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


def without_condition(expression: str, part: int) -> str:
    """The selector without one of its conditions; empty if there is no other."""
    return " && ".join(each for number, each in enumerate(conditions_of(expression)) if number != part)


def relaxed(expression: str, gone: str) -> str:
    """The selector with ``true`` in the place of a condition, so that the other conditions keep their numbers."""
    return " && ".join("true" if each == gone else each for each in conditions_of(expression))


def with_attribute(expression: str, missing: str, meant: str) -> str:
    """The selector, reading another attribute."""
    (domain, _, name), (right_domain, _, right) = missing.rpartition("/"), meant.rpartition("/")
    pattern = re.compile(
        rf"""device\.attributes\[(["']){re.escape(domain)}\1\]"""
        rf"""\s*(?:\.\s*{re.escape(name)}\b|\[(["']){re.escape(name)}\2\])"""
    )
    return pattern.sub(lambda _: f'device.attributes["{right_domain}"].{right}', expression)


@lru_cache(maxsize=4096)
def wish(condition: str) -> Wish | None:
    """What a condition of the form ``attribute == literal`` wants, either way round."""
    try:
        node = parse(condition)
    except CompileError:
        return None
    if not isinstance(node, Call) or node.function != "_==_":
        return None
    return next(_literals(node.arguments), None)


def _literals(nodes: Sequence[Node]) -> Iterator[Wish]:
    for node in nodes:
        if isinstance(node, Literal) and isinstance(node.value, bool | int | str):
            yield Wish(node.value)


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
