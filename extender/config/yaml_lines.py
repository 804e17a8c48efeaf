"""YAML documents with one key or one entry of a list in each line, as programs write API objects.

libyaml reads such a document in a tenth of the time that PyYAML takes: the rest makes Python objects of its events.
That counts for the manifests of a big cluster, so a regular expression reads such lines here. A document with anything
else (comments, anchors, tags, block scalars, values of several lines, mistakes) is left to `YamlDocument`. For the
documents that are read here, `YamlDocument` gives the same value.
"""

import re
from typing import Any, Final

from extender.config.yaml_values import MAX_NESTING, plain_value

OTHER: Final = object()
"""Stands for a document that `read_lines` does not read."""

_MOST_OPEN: Final = MAX_NESTING - 20
"""The most mappings and lists around a line. A line may begin ten more. `YamlDocument` reads deeper documents."""

_FIRST: Final = "[A-Za-z0-9_./+=()]"
_MORE: Final = "[A-Za-z0-9_./+=()-]"
_KEY: Final = f"{_FIRST}{_MORE}{{,99}}"
_PLAIN: Final = f"(?:{_FIRST}|-(?={_MORE}))(?:{_MORE}|:(?={_MORE})| (?={_FIRST}))*"
_VALUE: Final = rf"{_PLAIN}|'[ -&(-~]*'|\"[ !#-\[\]-~]*\"|\[\]|{{}}"
_LINE: Final = re.compile(rf"\n( *)((?:- ){{,9}})(?:({_KEY}):(?: ({_VALUE}))?|({_VALUE}))(?=\n|\Z)")
"""Indentation, dashes, a key, its value, or an entry of a list that is no mapping."""


def read_lines(text: str) -> Any:  # noqa: ANN401 - JSON has any type
    """The mapping that a document is, or `OTHER`."""
    text = "\n" + text.removeprefix("---\n").rstrip("\n")
    root: dict[str, Any] = {}
    here: Any = root
    column, key, end, outer = 0, "", 0, [(0, here)]
    for line in _LINE.finditer(text):
        indent, dashes, name, value, entry = line.groups()
        at = len(indent)
        if at > column or (dashes and at == column and type(here) is dict):
            if not key:  # only a key without a value has lines of its own
                return OTHER
            here[key] = here = [] if dashes else {}
            outer.append((column := at, here))
        while at < column or (at == column and not dashes and type(here) is list):
            outer.pop()
            column, here = outer[-1]
        if line.start() != end or at != column or (type(here) is list) != bool(dashes) or len(outer) > _MOST_OPEN:
            return OTHER
        end, key = line.end(), ""
        for _ in range(2, len(dashes), 2):
            here.append(here := [])
            outer.append((column := column + 2, here))
        if dashes and name:
            here.append(here := {})
            outer.append((column := column + 2, here))
        try:
            found = _value(value or entry) if value or entry else None
        except ValueError:
            return OTHER
        if type(here) is list:
            here.append(found)
        elif not name or name in here:
            return OTHER
        else:
            here[name] = found
            key = "" if value else name
    return root if end == len(text) else OTHER


def _value(text: str) -> object:
    """The value of a scalar, or of an empty list or mapping. Raises ValueError: it is too large for a number."""
    if text[0] in "'\"":
        return text[1:-1]
    if text[0] in "[{":
        return [] if text[0] == "[" else {}
    return plain_value(text)
