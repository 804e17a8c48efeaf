"""Changes of the fields of an object that is written anew."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from allocator import Problem

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one field.

    Attributes:
        path: of the old field.
        today: what has its place; or, if the field is lost, why nothing has it, or what to do.
    """

    path: str
    today: str
    is_lost: bool = False

    @property
    def problem(self) -> Problem:
        """The problem with an object that has the field."""
        if self.is_lost:
            return Problem(self.path, f"has no counterpart: {self.today}")
        return Problem(self.path, f"is {self.today} today; dra-extender convert writes it")


class Changes:
    """Collects what becomes of the fields of one object."""

    def __init__(self) -> None:
        self.found: list[Change] = []

    def become(self, path: str, today: str) -> None:
        """A field has another place, or another name, today."""
        self.found.append(Change(path, today))

    def lose(self, path: str, why: str) -> None:
        """A field has none."""
        self.found.append(Change(path, why, is_lost=True))

    def lose_others(self, data: Mapping[str, Any], path: str, known: Collection[str]) -> None:
        """All fields that are not known are lost."""
        for name in sorted(data.keys() - set(known)):
            self.lose(f"{path}.{name}".removeprefix("."), "the old API had no such field, or it is read no more")


def mapping(value: object) -> Object:
    """A JSON object; empty if the value is none."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> list[Object]:
    """The JSON objects in a list; empty if the value is no list."""
    return [mapping(each) for each in value] if isinstance(value, list) else []


def without(data: Mapping[str, Any], names: Iterable[str]) -> Object:
    """An object without some of its fields."""
    left_out = set(names)
    return {name: value for name, value in data.items() if name not in left_out}
