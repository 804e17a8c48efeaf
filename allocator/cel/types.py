"""The types of the checker, and which type may stand in for which."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import Final


@dataclass(frozen=True, slots=True)
class Type:
    """A type by name and parameters; a name in angle brackets is a type parameter."""

    name: str
    parameters: tuple["Type", ...] = ()

    @property
    def is_parameter(self) -> bool:
        """Whether this stands for a type that is not found yet."""
        return self.name[0] == "<"

    @property
    def is_dynamic(self) -> bool:
        """Whether the type is known only at run time."""
        return self.name in {"dyn", "any"}

    def __str__(self) -> str:
        inner = f"({', '.join(map(str, self.parameters))})" if self.parameters else ""
        return f"{self.name}{inner}"


DYN: Final = Type("dyn")
ANY: Final = Type("any")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null_type")
TIMESTAMP: Final = Type("google.protobuf.Timestamp")
DURATION: Final = Type("google.protobuf.Duration")
TYPE: Final = Type("type")
QUANTITY: Final = Type("kubernetes.Quantity")
SEMVER: Final = Type("kubernetes.Semver")
URL: Final = Type("kubernetes.URL")
IP: Final = Type("net.IP")
CIDR: Final = Type("net.CIDR")
FORMAT: Final = Type("kubernetes.NamedFormat")
DEVICE: Final = Type("kubernetes.DRADevice")
A: Final = Type("<A>")
B: Final = Type("<B>")

NULLABLE: Final = frozenset(
    {TIMESTAMP.name, DURATION.name, QUANTITY.name, SEMVER.name, URL.name, IP.name, CIDR.name, FORMAT.name}
    | {DEVICE.name, "optional_type"}
)
"""Names of the types that allow null."""


def list_of(element: Type) -> Type:
    """``list(element)``."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """``map(key, value)``."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """``optional_type(value)``."""
    return Type("optional_type", (value,))


_NAMED: Final = (
    BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, TIMESTAMP, DURATION, TYPE, IP, CIDR,
    list_of(DYN), map_of(DYN, DYN), optional_of(DYN),
)  # fmt: skip
TYPE_NAMES: Final = {kind.name: Type(TYPE.name, (kind,)) for kind in _NAMED}
"""Identifiers that name types, and their types. Upstream names no others: ``kubernetes.Quantity`` is undeclared."""


def key_type(kind: Type) -> Type:
    """The type of a key, as a part of the type of a map. In it, a map is ``map(dyn, dyn)``, and an unknown type is dyn.

    Otherwise the type of ``{x: x}`` would be twice as large as the type of ``x``, and so on.
    """
    return _bounded(kind) if kind.parameters else kind


def _bounded(kind: Type) -> Type:
    if kind.is_parameter:
        return DYN
    if kind.name == "map":
        return map_of(DYN, DYN)
    return Type(kind.name, tuple(map(_bounded, kind.parameters))) if kind.parameters else kind


class Solution:
    """The types that were found for type parameters. Grows while an expression is checked."""

    def __init__(self) -> None:
        self._found: dict[Type, Type] = {}
        self._changes: list[tuple[Type, Type | None]] = []
        self._fresh = 0

    def fresh(self) -> Type:
        """A type parameter that is used nowhere else."""
        self._fresh += 1
        return Type(f"<{self._fresh}>")

    def resolve(self, kind: Type) -> Type:
        """The type with known types in place of their parameters."""
        while kind.is_parameter and kind in self._found:
            kind = self._found[kind]
        if not kind.parameters:
            return kind
        parameters = tuple(map(self.resolve, kind.parameters))
        same = all(map(is_, parameters, kind.parameters))
        return kind if same else Type(kind.name, parameters)

    def final(self, kind: Type) -> Type:
        """The type with known types in place of their parameters, and dyn for unknown ones."""
        return _closed(self.resolve(kind))

    def accept(self, expected: Sequence[Type], given: Sequence[Type]) -> bool:
        """Whether arguments of these types may be passed; if so, the types that were found are kept."""
        self._changes.clear()
        if all(self._assignable(have, want) for want, have in zip(expected, given, strict=True)):
            return True
        for parameter, before in reversed(self._changes):
            if before is None:
                del self._found[parameter]
            else:
                self._found[parameter] = before
        return False

    def join(self, left: Type, right: Type) -> Type:
        """The type of a list that holds both: the more general one, or dyn."""
        if self.accept((right,), (left,)):
            return _more_general(left, right)
        return DYN

    def _assignable(self, have: Type, want: Type) -> bool:
        if have is want:
            return True
        if want.is_parameter:
            agreed = self._substitute(have, want)
            if agreed is not None:
                return agreed
        if have.is_parameter:
            return bool(self._substitute(want, have))
        if want.is_dynamic or have.is_dynamic:
            return True
        if "null_type" in (want.name, have.name):
            return (have if want.name == "null_type" else want).name in NULLABLE
        if want.name != have.name:
            return False
        if want.name == "type":
            return True
        return len(want.parameters) == len(have.parameters) and all(
            map(self._assignable, have.parameters, want.parameters)
        )

    def _substitute(self, kind: Type, parameter: Type) -> bool | None:
        """Whether a parameter may be a type; it becomes the more general of the two. None if the type contains it."""
        if kind == parameter:
            return True
        known = self._found.get(parameter)
        if known is None:
            if self._mentions(kind, parameter):
                return None
            self._bind(parameter, kind)
            return True
        if kind == known:
            return True
        if not self._assignable(kind, known):
            return False
        general = _more_general(kind, known)
        if not self._mentions(general, parameter):
            self._bind(parameter, general)
        return True

    def _bind(self, parameter: Type, kind: Type) -> None:
        self._changes.append((parameter, self._found.get(parameter)))
        self._found[parameter] = kind

    def _mentions(self, kind: Type, parameter: Type) -> bool:
        if kind == parameter:
            return True
        if kind.is_parameter:
            return kind in self._found and self._mentions(self._found[kind], parameter)
        return any(self._mentions(inner, parameter) for inner in kind.parameters)


def _closed(kind: Type) -> Type:
    """The type with dyn for every type parameter."""
    if kind.is_parameter:
        return DYN
    parameters = tuple(map(_closed, kind.parameters))
    return kind if all(map(is_, parameters, kind.parameters)) else Type(kind.name, parameters)


def _more_general(left: Type, right: Type) -> Type:
    return left if _is_general(left, right) else right


def _is_general(left: Type, right: Type) -> bool:
    """Whether the left type accepts every value that the right type accepts."""
    if left.is_dynamic or left.is_parameter:
        return True
    if right.is_dynamic or right.is_parameter or left.name != right.name:
        return False
    if left.name == "type":
        return True
    return len(left.parameters) == len(right.parameters) and all(map(_is_general, left.parameters, right.parameters))
