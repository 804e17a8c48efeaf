"""YAML documents with one key or one entry of a list in each line, as programs write API objects.

libyaml reads such a document in a tenth of the time that PyYAML takes: the rest makes Python objects of its events.
That counts for the manifests of a big cluster, so a regular expression reads such lines here. A document with anything
else (comments, anchors, tags, block scalars, values of several lines, mistakes) is left to `YamlDocument`. For the
documents that are read here, `YamlDocument` gives the same value.
"""

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

from extender.tools.yaml_values import MAX_NESTING, plain_value

OTHER: Final = object()
"""Stands for a document that `read_lines` does not read."""

_MOST_OPEN: Final = MAX_NESTING - 20
"""The most mappings and lists around a line. A line may begin ten more. `YamlDocument` reads deeper documents."""

_FIRST: Final = "[A-Za-z0-9_./+=()]"
_MORE: Final = "[A-Za-z0-9_./+=()-]"
_KEY: Final = f"{_FIRST}{_MORE}{{,99}}"
_PLAIN: Final = f"(?:{_FIRST}|-(?={_MORE}))(?:{_MORE}|:(?={_MORE})| (?={_FIRST}))*"
_VALUE: Final = rf"{_PLAIN}|'[ -&(-~]*'|\"[ !#-\[\]-~]*\"|\[\]|{{}}"
_LINE: Final = re.compile(rf"( *)((?:- ){{,9}})(?:({_KEY}):(?: ({_VALUE}))?|({_VALUE}))")
"""Indentation, dashes, a key, its value, or an entry of a list that is no mapping."""

_REMEMBERED: Final = 4096
"""Lines that are remembered: the devices of a cluster repeat most of their lines."""

_LONGEST: Final = 200
"""Most characters of a line that is remembered."""

_COPIED: Final = (list, dict)


class _Line(NamedTuple):
    """A line, read.

    Attributes:
        indent: the column of the first character that is no space.
        dashes: the number of lists that begin or go on in this line.
        key: empty if the line is an entry that is no mapping.
        value: a scalar; or an empty list or mapping, which has to be copied.
        is_open: whether the key has no value in this line.
    """

    indent: int
    dashes: int
    key: str
    value: Any
    is_open: bool


def read_lines(text: str) -> Any:  # noqa: ANN401 - JSON has any type
    """The mapping that a document is, or `OTHER`."""
    root: dict[str, Any] = {}
    here: Any = root
    column, open_key, outer = 0, "", [(0, here)]
    for each in text.removeprefix("---\n").rstrip("\n").split("\n"):
        line = _line(each) if len(each) <= _LONGEST else _line.__wrapped__(each)
        if line is None:
            return OTHER
        at, dashes, key, value, is_open = line
        if at > column or (dashes and at == column and type(here) is dict):
            if not open_key:  # only a key without a value has lines of its own
                return OTHER
            here[open_key] = here = [] if dashes else {}
            outer.append((column := at, here))
        while at < column or (at == column and not dashes and type(here) is list):
            outer.pop()
            column, here = outer[-1]
        if at != column or (type(here) is list) != bool(dashes) or len(outer) > _MOST_OPEN:
            return OTHER
        for _ in range(1, dashes):
            here.append(here := [])
            outer.append((column := column + 2, here))
        if dashes and key:
            here.append(here := {})
            outer.append((column := column + 2, here))
        found = value.copy() if type(value) in _COPIED else value
        if type(here) is list:
            here.append(found)
        elif not key or key in here:
            return OTHER
        else:
            here[key] = found
        open_key = key if is_open else ""
    return root


@lru_cache(maxsize=_REMEMBERED)
def _line(text: str) -> _Line | None:
    """A line, read; None if only `YamlDocument` reads it."""
    match = _LINE.fullmatch(text)
    if match is None:
        return None
    indent, dashes, key, value, entry = match.groups()
    try:
        found = _value(value or entry) if value or entry else None
    except ValueError:
        return None
    return _Line(len(indent), len(dashes) // 2, key or "", found, is_open=bool(key) and not value)


def _value(text: str) -> object:
    """The value of a scalar, or of an empty list or mapping. Raises ValueError: it is too large for a number."""
    if text[0] in "'\"":
        return text[1:-1]
    if text[0] in "[{":
        return [] if text[0] == "[" else {}
    return plain_value(text)
