"""Reading API objects strictly: a value of a wrong type is a `Problem` with its path.

A reader notes the problem and goes on with an empty value, so that one pass finds all problems. As in the API, null
means absent. Unknown fields are ignored: a newer API server may have more fields.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import repeat
from typing import Any, Final, TypeAlias, TypeGuard

from allocator.tools.printable import shown
from allocator.tools.spelling import hint

_INT64: Final = 2**63
_MOST_CHILDREN: Final = 5000
"""Objects in a list; bounds the time. An API server allows far fewer in almost every list that we read."""

_MOST_PROBLEMS: Final = 10
"""Problems of an object that are told; the others are counted."""

_LONGEST_PROBLEM: Final = 300
"""Characters. Problems stay in memory and are part of answers."""

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)


_TEXTS: Final = frozenset({str})

_Place: TypeAlias = "tuple[Fields, str, str | int | None]"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an object, e.g. ``spec.devices[3].capacity[memory].value``."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class AllocatorError(Exception):
    """Base of all errors of `allocator`. The answer "no" is no error but a value: `Unsatisfiable`."""


class InvalidObjectError(AllocatorError):
    """An API object that cannot be used; all of its problems, not only the first."""

    def __init__(self, kind: str, name: str, problems: tuple[Problem, ...]) -> None:
        self.kind = kind
        self.name = name
        self.problems = problems
        super().__init__("; ".join(f"{kind} {name}: {problem}" for problem in problems))

    @property
    def summary(self) -> str:
        """The first problems, without the object's name, cut to a bounded length."""
        texts = [_cut(str(problem)) for problem in self.problems[:_MOST_PROBLEMS]]
        more = len(self.problems) - len(texts)
        return "; ".join([*texts, *([f"and {more} more"] if more else [])])


class Fields:
    """The fields of one JSON object.

    Attributes:
        data: the object; treated as read-only.
        problems: shared by all parts of one object; readers append to it.
    """

    __slots__ = ("_place", "data", "problems")

    def __init__(self, data: Mapping[str, object], place: "str | _Place", problems: list[Problem]) -> None:
        """``place`` is the path, or three parts: the object around it, its field there, its key in a list or map."""
        self.data = data
        self.problems = problems
        self._place = place

    @property
    def path(self) -> str:
        """The path of this object in the whole object, e.g. ``spec.devices[3]``; empty at the top."""
        if isinstance(self._place, str):
            return self._place
        outer, name, key = self._place
        return outer.at(name) if key is None else f"{outer.at(name)}[{key}]"

    def at(self, name: str) -> str:
        """The path of a field, e.g. ``spec.driver``, or ``spec.capacity[memory]`` for the name ``capacity[memory]``."""
        path = self.path
        return f"{path}.{name}" if path else name

    def only(self, names: Iterable[str]) -> "Fields":
        """The object with some of its fields alone: whatever is read of it depends on no other field."""
        return Fields({name: self.data[name] for name in names if name in self.data}, self._place, self.problems)

    def problem(self, name: str, message: str) -> None:
        """Note what is wrong with a field; with an empty name, with the object."""
        self.problems.append(Problem(self.at(name) if name else self.path, message))

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Note fields that are not known: an API server drops them, and in a manifest they are mistakes."""
        for name in sorted(self.data.keys() - known):
            self.problem(name, f"unknown field{hint(name, known)}")

    def has(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self.data.get(name) is not None

    def text(self, name: str) -> str:
        """A string; empty if it is absent."""
        value = self.data.get(name)
        if value is None:
            return ""
        return value if isinstance(value, str) else self.text_or_none(name) or ""

    def each_text(self, *names: str) -> tuple[str, ...]:
        """Several strings; empty where they are absent."""
        found: tuple[Any, ...] = tuple(map(self.data.get, names, repeat("")))
        return found if _TEXTS.issuperset(map(type, found)) else tuple(map(self.text, names))

    def text_or_none(self, name: str) -> str | None:
        """A string, or None if it is absent."""
        value = self.data.get(name)
        if value is None or isinstance(value, str):
            return value
        self.problem(name, f"{shown(value)} is not a string")
        return None

    def required_text(self, name: str) -> str:
        """A string that must be there and not be empty."""
        value = self.data.get(name)
        if isinstance(value, str) and value:
            return value
        self.problem(name, "is required" if value is None or value == "" else f"{shown(value)} is not a string")
        return ""

    def each_required_text(self, *names: str) -> tuple[str, ...]:
        """Several strings that must be there and not be empty."""
        return tuple(map(self.required_text, names))

    def time_or_none(self, name: str) -> str | None:
        """A time as the API writes it (RFC 3339), or None if it is absent."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            return self.text_or_none(name)
        if not is_time(value):
            self.problem(name, f"{shown(value)} is not a time such as 2025-01-31T12:00:00Z")
        return value

    def integer(self, name: str, default: int = 0) -> int:
        """A whole number of 64 bits, or the default if it is absent."""
        value = self.data.get(name)
        if value is None:
            return default
        if is_int64(value):
            return value
        self.problem(name, f"{shown(value)} is not a whole number of 64 bits")
        return default

    def flag(self, name: str) -> bool:
        """A boolean; false if it is absent."""
        return name in self.data and bool(self.flag_or_none(name))

    def flag_or_none(self, name: str) -> bool | None:
        """A boolean, or None if it is absent."""
        value = self.data.get(name)
        if value is None or isinstance(value, bool):
            return value
        self.problem(name, f"{shown(value)} is not true or false")
        return None

    def mapping(self, name: str) -> Mapping[str, object]:
        """An object whose keys are data; empty if it is absent."""
        value = self.data.get(name)
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.problem(name, f"{shown(value)} is not an object")
        return {}

    def text_mapping(self, name: str) -> Mapping[str, str]:
        """An object of strings."""
        if name not in self.data:
            return {}
        mapping = self.mapping(name)
        for key, value in mapping.items():
            if not isinstance(value, str):
                self.problem(f"{name}[{key}]", f"{shown(value)} is not a string")
        return {key: value for key, value in mapping.items() if isinstance(value, str)} if mapping else {}

    def child(self, name: str) -> "Fields":
        """An object with fields; an empty one if it is absent."""
        value = self.data.get(name)
        return Fields(value if isinstance(value, dict) else self.mapping(name), (self, name, None), self.problems)

    def child_or_none(self, name: str) -> "Fields | None":
        """An object with fields, or None if it is absent."""
        return self.child(name) if self.data.get(name) is not None else None

    def entries(self, name: str, inner: str = "") -> list[tuple[str, "Fields"]]:
        """A map of objects: the keys with their objects. ``inner`` is the field for a text in place of an object."""
        found = []
        for key, value in self.mapping(name).items():
            if isinstance(value, dict):
                found.append((key, Fields(value, (self, name, key), self.problems)))
            else:
                meant = f"; write {{{inner}: {shown(value)}}}" if inner and isinstance(value, str) else ""
                self.problem(f"{name}[{key}]", f"{shown(value)} is not an object{meant}")
        return found

    def items(self, name: str) -> list[object]:
        """A list; empty if it is absent."""
        value = self.data.get(name)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        self.problem(name, f"{shown(value)} is not a list")
        return []

    def children(self, name: str) -> list["Fields"]:
        """A list of objects with fields; empty if it is absent or too long."""
        if name not in self.data:
            return []
        value = self.data[name]
        found, items = [], value if isinstance(value, list) else self.items(name)
        if len(items) > _MOST_CHILDREN:
            self.problem(name, f"has {len(items)} entries; at most {_MOST_CHILDREN} are read")
            return []
        for i, item in enumerate(items):
            if isinstance(item, dict):
                found.append(Fields(item, (self, name, i), self.problems))
            else:
                self.problem(f"{name}[{i}]", f"{shown(item)} is not an object")
        return found

    def each_children(self, *names: str) -> tuple[list["Fields"], ...]:
        """Several lists of objects with fields, each as `children`."""
        return tuple(map(self.children, names))

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty if it is absent."""
        return (self.texts_or_none(name) or ()) if name in self.data else ()

    def texts_or_none(self, name: str) -> tuple[str, ...] | None:
        """A list of strings, or None if it is absent."""
        if self.data.get(name) is None:
            return None
        items = self.items(name)
        for i, item in enumerate(items):
            if not isinstance(item, str):
                self.problem(f"{name}[{i}]", f"{shown(item)} is not a string")
        return tuple(item for item in items if isinstance(item, str))


class ObjectReader:
    """One API object that is being read.

    Attributes:
        top: its fields.
        metadata: the fields of its metadata.
        api_version: e.g. ``resource.k8s.io/v1``.
        name: its name; `finish` refuses objects without one.
        created: when it was created; empty if unknown.
        deleting: a deletionTimestamp is set.
    """

    def __init__(self, kind: str, obj: Mapping[str, object], versions: tuple[str, ...]) -> None:
        self.kind = kind
        self.top = Fields(obj, "", [])
        self.metadata = self.top.child("metadata")
        self.name = self.metadata.required_text("name")
        self.created = self.metadata.time_or_none("creationTimestamp") or ""
        self.deleting = self.metadata.time_or_none("deletionTimestamp") is not None
        self.api_version, own_kind = self.top.each_text("apiVersion", "kind")
        if self.api_version not in versions:
            self.top.problem("apiVersion", f"{shown(obj.get('apiVersion'))} is not one of {', '.join(versions)}")
        if own_kind not in {"", kind}:
            self.top.problem("kind", f"{shown(obj.get('kind'))} is not {kind}")

    def finish(self) -> None:
        """End reading; raises InvalidObjectError with all problems, if there are any."""
        raise_if_invalid(self.kind, self.name, self.top.problems)


def raise_if_invalid(kind: str, name: str, problems: list[Problem]) -> None:
    """Raise InvalidObjectError if there are problems."""
    if problems:
        raise InvalidObjectError(kind, name, tuple(problems))


@lru_cache(maxsize=1024)  # an object is read several times
def is_time(text: str) -> bool:
    """Whether a text is a time as the API writes it (RFC 3339)."""
    if not _TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_int64(value: object) -> TypeGuard[int]:
    """Whether a JSON value is a whole number that fits 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_PROBLEM else f"{text[:_LONGEST_PROBLEM]}..."
