"""The fields that objects of Kubernetes have: an API server's strict decoding, which `kubectl` asks for by default.

The table ``fields.json`` is made from the OpenAPI of Kubernetes (``python -m tests.conformance.schema``). It has the
fields of each type, and the types of their values; ``[T]`` is a list of T, ``{T}`` a map with values of T.
"""

import json
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple, TypeAlias

from allocator.model.json.common import GROUP
from allocator.model.json.interner import Interner
from allocator.tools.fields import Problem, is_int64, is_time
from allocator.tools.printable import shown
from allocator.tools.spelling import did_you_mean, meant_by, nearest

_INT32: Final = 2**31
_OURS: Final = "dra-extender.dev"
"""The group of the kinds whose definitions we ship."""
_METADATA: Final = "meta.v1.ObjectMeta"


class _Table(NamedTuple):
    """The types of kinds (``apiVersion kind``), and the fields of types."""

    kinds: Mapping[str, str]
    types: Mapping[str, Mapping[str, str]]


_Path: TypeAlias = "tuple[str | int, ...]"
"""Names of fields (``.name``), keys of maps (``[key]``) and indexes of lists. Most paths are never shown as text."""


def _text(path: _Path, *more: str) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else part for part in (*path, *more)).removeprefix(".")


class _Outer(NamedTuple):
    """An object around a field: its path, and the fields that objects of its type have."""

    path: _Path
    fields: Mapping[str, str]

    def at(self, name: str) -> str:
        return _text(self.path, f".{name}")


def schema_problems(obj: Mapping[str, object]) -> tuple[Problem, ...]:
    """Unknown fields of a manifest, and values of a wrong type; or that an API version does not have the kind.

    The table has all kinds of resource.k8s.io. Other kinds that it does not have are not checked, unless their name or
    group misspells one of the table. This is for manifests only: an object of a live API server may have fields of a
    newer release.

    Args:
        obj: decoded JSON with apiVersion and kind.
    """
    version, kind, table = obj.get("apiVersion"), obj.get("kind"), _table()
    if not isinstance(version, str) or not isinstance(kind, str):
        return ()
    root, group = table.kinds.get(f"{version} {kind}"), version.rpartition("/")[0]
    if root is None:
        return (*_kind_problems(version, group, kind, table), *(_metadata_problems(obj) if group == _OURS else ()))
    if _test(root)(obj):
        return ()
    decoder = _Decoder(table.types, group)
    decoder.read(obj, root, (), ())
    return tuple(decoder.problems)


def _metadata_problems(obj: Mapping[str, object]) -> Sequence[Problem]:
    """The problems of the metadata of a kind that the table does not have: they have the fields of all kinds."""
    decoder = _Decoder(_table().types, _OURS)
    decoder.read(obj.get("metadata"), _METADATA, (".metadata",), ())
    return decoder.problems


def _kind_problems(version: str, group: str, kind: str, table: _Table) -> Iterator[Problem]:
    """Whether the kind or its group is misspelled, or the kind is of another version or group of Kubernetes."""
    groups = _kinds_by_group(table)
    if group not in groups:
        meant = meant_by(group, groups)
        if meant and kind in groups[meant]:
            yield Problem("apiVersion", f"unknown group {shown(group)}{did_you_mean(groups[meant][kind][0])}")
        return
    versions = [each for kinds in (groups[group], *groups.values()) for each in kinds.get(kind, ())]
    if versions:
        own = groups[group].get(kind) or versions
        yield Problem("apiVersion", f"{shown(version)} has no {kind}; {_have_it(own)}")
    elif group == GROUP:
        yield Problem("kind", f"unknown kind{did_you_mean(nearest(kind, groups[group]))}")
    elif meant := meant_by(kind, {name for kinds in groups.values() for name in kinds}):
        yield Problem("kind", f"unknown kind{did_you_mean(meant)}")


def _kinds_by_group(table: _Table) -> dict[str, dict[str, list[str]]]:
    """The API versions of each kind, by group."""
    groups: dict[str, dict[str, list[str]]] = {}
    for each in table.kinds:
        version, _, name = each.partition(" ")
        groups.setdefault(version.rpartition("/")[0], {}).setdefault(name, []).append(version)
    return groups


def _have_it(versions: Sequence[str]) -> str:
    return f"{', '.join(versions)} {'has' if len(versions) == 1 else 'have'} it"


@cache
def _table() -> _Table:
    return _Table(**json.loads(pkgutil.get_data(__name__, "fields.json") or b""))


_Test: TypeAlias = "Callable[[object], bool]"


@cache
def _test(type_: str) -> _Test:
    """Whether a value other than null has no problem. This is faster than `_Decoder`, which also tracks the path."""
    if type_.startswith("["):
        of_item = _test(type_[1:-1])
        return lambda value: isinstance(value, list) and all(each is None or of_item(each) for each in value)
    if type_.startswith("{"):
        of_items = _test(f"[{type_[1:-1]}]")
        return lambda value: isinstance(value, dict) and of_items(list(value.values()))
    if type_ in _table().types:
        return _test_of_fields(_table().types[type_])
    if type_ == "quantity":
        return lambda value: isinstance(value, str) and _is_quantity(value)
    return _SCALARS[type_].fits


def _test_of_fields(fields: Mapping[str, str]) -> _Test:
    def fits(value: object) -> bool:
        if not isinstance(value, dict):
            return False
        for name, item in value.items():
            type_ = fields.get(name)
            if type_ is None or (item is not None and not _test(type_)(item)):
                return False
        return True

    return fits


@lru_cache(maxsize=1024)
def _is_quantity(text: str) -> bool:
    try:
        Interner().quantity(text)
    except ValueError:
        return False
    return True


class _Decoder:
    """Compares one object with the table, and says what is wrong.

    Attributes:
        problems: what was found to be wrong.
    """

    def __init__(self, types: Mapping[str, Mapping[str, str]], group: str) -> None:
        self.problems: list[Problem] = []
        self._types = types
        self._group = group
        self._interner = Interner()

    def read(self, value: object, type_: str, path: _Path, around: tuple[_Outer, ...]) -> None:
        """Note what is wrong with a value of a type; null stands for an absent value."""
        if value is None:
            return
        if type_ in self._types or type_.startswith("{"):
            if not isinstance(value, dict):
                self._wrong(value, path, "an object")
            elif type_ in self._types:
                self._fields(value, type_, path, around)
            else:
                for key, item in value.items():
                    self.read(item, type_[1:-1], (*path, f"[{key}]"), around)
        elif type_.startswith("["):
            if not isinstance(value, list):
                self._wrong(value, path, "a list")
                return
            for index, item in enumerate(value):
                self.read(item, type_[1:-1], (*path, index), around)
        elif type_ == "quantity":
            self._quantity(value, path)
        elif not _SCALARS[type_].fits(value):
            self._wrong(value, path, _SCALARS[type_].words)

    def _wrong(self, value: object, path: _Path, wanted: str) -> None:
        self.problems.append(Problem(_text(path), f"{shown(value)} is not {wanted}"))

    def _fields(self, value: Mapping[str, object], type_: str, path: _Path, around: tuple[_Outer, ...]) -> None:
        here = _Outer(path, self._types[type_])
        inside = (here, *around)
        for name, item in value.items():
            known = here.fields.get(name)
            if known is None:
                hint = self._hint(name, type_, here, around)
                self.problems.append(Problem(here.at(name), f"unknown field{hint}"))
            else:
                self.read(item, known, (*path, f".{name}"), inside)

    def _quantity(self, value: object, path: _Path) -> None:
        try:
            self._interner.quantity(value)
        except ValueError as error:
            self.problems.append(Problem(_text(path), str(error)))

    def _hint(self, name: str, type_: str, here: _Outer, around: tuple[_Outer, ...]) -> str:
        """A hint where a field belongs: too deep or not deep enough, another API version, or a misspelled name."""
        inner = [here.at(outer) for outer, inside in here.fields.items() if name in self._types.get(inside, ())]
        if inner:
            return did_you_mean(f"{inner[0]}.{name}")
        versions = [f"{self._group}/{version}" for version in self._versions_with(name, type_)]
        if versions:
            return f"; {_have_it(versions)}"
        outer = [each.at(name) for each in around if name in each.fields]
        return did_you_mean(outer[0] if outer else nearest(name, here.fields))

    def _versions_with(self, name: str, type_: str) -> Iterator[str]:
        """The API versions in which a type of the same name has a field."""
        group, _, short = type_.split(".", 2)
        for other, fields in self._types.items():
            other_group, version, other_short = other.split(".", 2)
            if (other_group, other_short) == (group, short) and name in fields:
                yield version


class _Scalar(NamedTuple):
    """Which JSON values a type has, and what such a value is called."""

    fits: Callable[[object], bool]
    words: str


def _is_int32(value: object) -> bool:
    return is_int64(value) and -_INT32 <= value < _INT32


_SCALARS: Final[Mapping[str, _Scalar]] = {
    "any": _Scalar(lambda _: True, ""),
    "bool": _Scalar(lambda value: isinstance(value, bool), "true or false"),
    "int-or-string": _Scalar(
        lambda value: isinstance(value, str) or _is_int32(value), "a whole number of 32 bits or a string"
    ),
    "int32": _Scalar(_is_int32, "a whole number of 32 bits"),
    "int64": _Scalar(is_int64, "a whole number of 64 bits"),
    "object": _Scalar(lambda value: isinstance(value, dict), "an object"),
    "string": _Scalar(lambda value: isinstance(value, str), "a string"),
    "time": _Scalar(lambda value: isinstance(value, str) and is_time(value), "a time such as 2025-01-31T12:00:00Z"),
}
