"""YAML and JSON texts to the JSON values that kubectl would send for them.

In full YAML 1.1, as PyYAML reads it, ``0000:01:00.0`` (a PCI address) is a number in base 60 and ``2024-01-01`` a date.
Here only what kubectl reads as a number, a boolean or null is one. All else is a string, and so is every key.

A document is read from the events of libyaml's parser. PyYAML's own loaders make a node for each value, and then find
its type by rules for all of YAML. That takes twice as long, which counts for the manifests of a big cluster. Documents
with one key or one entry of a list in each line, as programs write API objects, are read faster still, by a regular
expression: libyaml takes a tenth of PyYAML's time, and the rest makes Python objects of its events. A document with
anything else (comments, anchors, tags, block scalars, values of several lines, mistakes) is left to `YamlDocument`,
which gives the same value for the others.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isinf
from typing import Any, Final, NamedTuple

import yaml
from yaml.constructor import ConstructorError
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from allocator.tools import shown

MAX_NESTING: Final = 200
"""The deepest nesting of a document. libyaml recurses in C without a limit, so deeper nesting could crash the process.
It also could not be written as JSON."""

MAX_VALUES: Final = 100_000
"""Merge keys may add at most this number of pairs to a document."""

TOO_DEEP: Final = f"nested deeper than {MAX_NESTING}"

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = "<<"
_OF_OBJECTS: Final = frozenset({"apiVersion", "kind", "metadata", "spec"})
"""Keys at the top of each object of Kubernetes."""

_WORDS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_STARTS_OF_NUMBERS: Final = frozenset("-+.0123456789")
_INTEGER: Final = re.compile(r"([-+]?)(?:0b([01_]*[01]_*)|0x([0-9a-fA-F_]*[0-9a-fA-F]_*)|(0[0-7_]*)|([1-9][0-9_]*))")
_BASES: Final = (2, 16, 8, 10)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


class _Anchored(NamedTuple):
    """The value of an anchor: the event that begins it, and the mapping or list, which may be unfinished."""

    event: NodeEvent
    collection: Collection[object] | None = None


class YamlDocument:
    """One document, read once; keys are strings and unique.

    Attributes:
        is_shared: an alias or a merge key uses a value again. So the value may be larger than the text of the document.
    """

    def __init__(self, text: str) -> None:
        self.is_shared = False
        self._next: Callable[[], Any] = yaml.CSafeLoader(text).get_event
        self._anchors: dict[str, _Anchored] = {}
        self._open: list[Collection[object]] = []
        self._merged = 0

    def read(self) -> object:
        """The value; None if the document is empty.

        Raises:
            MarkedYAMLError: a problem at a place of the text.
            ReaderError, ValueError: the text has characters that YAML does not have, or is nested too deep.
        """
        value, is_read = None, False
        while not isinstance(event := self._next(), StreamEndEvent):
            if isinstance(event, NodeEvent):
                if is_read:
                    raise _problem("a document ends before this line; write --- between documents", event)
                value, is_read = self._value(event), True
        return value

    def _value(self, event: NodeEvent) -> object:
        """The value that begins with an event."""
        if isinstance(event, ScalarEvent):
            if event.anchor:
                self._anchors[event.anchor] = _Anchored(event)
            return _scalar(event)
        if isinstance(event, MappingStartEvent):
            return self._mapping(event)
        if isinstance(event, SequenceStartEvent):
            return self._list(event)
        return self._again(event)

    def _mapping(self, start: MappingStartEvent) -> dict[str, object]:
        found: dict[str, object] = {}
        merges: list[Mapping[str, object]] = []
        self._begin(start, found, "map")
        while not isinstance(event := self._next(), MappingEndEvent):
            key = event if isinstance(event, ScalarEvent) and event.anchor is None else self._key(event)
            name: str = key.value
            if name == _MERGE and key.implicit[0]:
                merges += self._sources(found, event)
            elif name in found:
                hint = "; a line --- separates two objects" if len(self._open) == 1 and name in _OF_OBJECTS else ""
                raise _problem(f'the key "{name}" is there twice{hint}', event)
            else:
                found[name] = self._value(self._next())
        self._open.pop()
        if merges:
            _merge(found, merges)
        return found

    def _list(self, start: SequenceStartEvent) -> list[object]:
        found: list[object] = []
        self._begin(start, found, "seq")
        while not isinstance(event := self._next(), SequenceEndEvent):
            found.append(self._value(event))
        self._open.pop()
        return found

    def _begin(self, start: MappingStartEvent | SequenceStartEvent, collection: Collection[object], tag: str) -> None:
        if len(self._open) == MAX_NESTING:
            raise ValueError(TOO_DEEP)
        if start.tag not in {None, "!", _TAG + tag}:
            raise _unknown_tag(start)
        self._open.append(collection)
        if start.anchor:
            self._anchors[start.anchor] = _Anchored(start, collection)

    def _key(self, event: NodeEvent) -> ScalarEvent:
        if isinstance(event, ScalarEvent):
            if event.anchor:
                self._anchors[event.anchor] = _Anchored(event)
            return event
        if isinstance(event, AliasEvent) and isinstance(key := self._named(event).event, ScalarEvent):
            return key
        raise _problem("a key is not a string", event)

    def _named(self, alias: NodeEvent) -> _Anchored:
        if alias.anchor not in self._anchors:
            raise _problem(f"no anchor &{alias.anchor} stands before this alias", alias)
        return self._anchors[alias.anchor]

    def _again(self, alias: NodeEvent) -> object:
        """The value that an alias names."""
        event, collection = self._named(alias)
        if collection is None:
            return self._value(event)
        if any(collection is each for each in self._open):
            raise _problem(f"the value of the anchor &{alias.anchor} contains itself", alias)
        self.is_shared = True
        return collection

    def _sources(self, found: Mapping[str, object], key: NodeEvent) -> Sequence[Mapping[str, object]]:
        """The mappings that a merge key names; a mapping that names itself adds nothing."""
        event = self._next()
        if isinstance(event, AliasEvent) and self._named(event).collection is found:
            return ()
        value = self._value(event)
        named = value if isinstance(value, list) else [value]
        sources = [each for each in named if isinstance(each, dict)]
        if len(sources) < len(named):
            raise _problem("a merge key needs a mapping, or a list of mappings", key)
        self.is_shared = True
        self._merged += sum(max(1, len(each)) for each in sources)
        if self._merged > MAX_VALUES:
            raise _problem("merge keys make the document too large", key)
        return sources


def _merge(found: dict[str, object], sources: Iterable[Mapping[str, object]]) -> None:
    """Put pairs of merged mappings before the own pairs. Of equal names, the own one counts, or else the first one."""
    own = found.copy()
    found.clear()
    for source in sources:
        for name, value in source.items():
            if name not in own:
                found.setdefault(name, value)
    found.update(own)


def _scalar(event: ScalarEvent) -> object:
    text: str = event.value
    if not event.implicit[0]:
        return text if event.tag in {None, "!"} else _tagged(event)
    try:
        return plain_value(text)
    except ValueError as error:
        raise _problem(str(error), event) from error


def plain_value(text: str) -> bool | int | float | str | None:
    """The value of a plain scalar. Raises ValueError: it is too large for a number."""
    if text in _WORDS:
        return _WORDS[text]
    return _number(text) if text[0] in _STARTS_OF_NUMBERS else text


def _number(text: str) -> int | float | str:
    """The number of a plain scalar, or its text if it is no number."""
    try:
        if match := _INTEGER.fullmatch(text):
            sign, *digits = match.groups()
            base, found = next(each for each in zip(_BASES, digits, strict=True) if each[1])
            return int(sign + found.replace("_", ""), base)
        return finite(text) if _FLOAT.fullmatch(text) else text
    except ValueError as error:
        raise ValueError(f"{shown(text)} is too large for a number") from error


def finite(text: str) -> float:
    """The number that a text is. Raises ValueError: the number is too large for a float."""
    value = float(text)
    if isinf(value):
        raise ValueError(f"{shown(text)} is too large for a number")
    return value


def _tagged(event: ScalarEvent) -> object:
    """The value of a scalar whose type is given."""
    text, tag = event.value, str(event.tag).removeprefix(_TAG)
    if tag == "str":
        return text
    if tag == "null":
        return None
    try:
        number = _number(text)
    except ValueError as error:
        raise _problem(str(error), event) from error
    if tag == "bool" and isinstance(_WORDS.get(text.lower()), bool):
        return _WORDS[text.lower()]
    if tag == "int" and isinstance(number, int):
        return number
    if tag == "float" and not isinstance(number, str):
        return float(number)
    if tag in {"bool", "int", "float"}:
        raise _problem(f"{shown(text)} is not of type !!{tag}", event)
    raise _unknown_tag(event)


def _problem(text: str, event: NodeEvent) -> ConstructorError:
    mark: Any = event.start_mark
    return ConstructorError(None, None, text, mark)


def _unknown_tag(event: ScalarEvent | MappingStartEvent | SequenceStartEvent) -> ConstructorError:
    return _problem(f"the tag {str(event.tag).replace(_TAG, '!!')} is unknown here", event)


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


_NO_BREAK_SPACE: Final = "\N{NO-BREAK SPACE}"
_SEPARATOR: Final = re.compile(r"\n---(?=\s|$)")


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """A document that cannot be read; ``line`` counts from 1 in the whole text."""

    message: str
    line: int

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


_MAX_EXPANSION: Final = 10
"""A document has at most `MAX_VALUES` values, or this number for each character. Otherwise aliases of aliases could
fill any memory."""

_BRACKET: Final = re.compile(r"[\[\]{}]")
_DEEP_BLOCK: Final = re.compile(rf"\n[ ?-]{{{2 * MAX_NESTING}}}")
"""Begins with a line break, not with ``^``: Python finds a fixed first character four times as fast."""


def documents(text: str, *, is_json: bool = False) -> Iterator[object]:
    """The documents of a text, in order; a `SyntaxProblem` for each that cannot be read, None for an empty one.

    Each document is read on its own, so that one mistake does not hide others.
    """
    if is_json:
        yield _json(text)
        return
    starts = [0, *(match.start() + 1 for match in _SEPARATOR.finditer(text))]
    line = 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield _yaml(text[start:end], line)
        line += text.count("\n", start, end)


def single_mapping(text: str) -> dict[str, Any] | None:
    """The keys and values of a text with one document; None if it is empty. Raises ValueError for any other text."""
    trees = [tree for tree in documents(text) if tree is not None]
    if bad := next((tree for tree in trees if isinstance(tree, SyntaxProblem)), None):
        raise ValueError(f"not YAML: {bad}")
    if len(trees) > 1:
        raise ValueError(f"expected one document, not {len(trees)}")
    tree = trees[0] if trees else None
    if tree is not None and not isinstance(tree, dict):
        raise ValueError(f"expected keys and values at the top, not {shown(tree)}")
    return tree


def _indentation(text: str, line: int) -> str:
    """A hint if this line, or what a web page has left in one before it, is not indented with spaces; else empty."""
    *before, found = (_blanks(each) for each in text.split("\n")[: line + 1])
    if "\t" in found:
        return "; YAML is indented with spaces, not with tabs"
    if any(_NO_BREAK_SPACE in each for each in (*before, found)):
        return "; YAML is indented with spaces, not with no-break spaces"
    return ""


def _blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _yaml(text: str, line: int) -> object:
    found = read_lines(text)
    if found is not OTHER:
        return found
    if _is_too_deep(text):
        return SyntaxProblem(TOO_DEEP, line + 1)
    try:
        document = YamlDocument(text)
        value = document.read()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last = text.rstrip().count("\n")
        at = min(mark.line, last) if mark else 0
        return SyntaxProblem(f"{error.problem or error.context}{_indentation(text, at)}", line + 1 + at)
    except yaml.reader.ReaderError as error:
        return SyntaxProblem(f"{error.reason}: character {error.character!r}", line + 1)
    except ValueError as error:
        return SyntaxProblem(str(error), line + 1)
    except RecursionError:
        return SyntaxProblem(TOO_DEEP, line + 1)
    return _within_limits(value, len(text), line + 1) if document.is_shared else value


def _within_limits(value: object, length: int, line: int) -> object:
    """The value, or a `SyntaxProblem` if it is too large for a text of this length."""
    left = max(MAX_VALUES, _MAX_EXPANSION * length)
    level = [value]
    for _ in range(MAX_NESTING + 1):
        nests = [each for each in level if isinstance(each, (dict, list))]
        if not nests:
            return value
        level = [inner for each in nests for inner in (each.values() if isinstance(each, dict) else each)]
        left -= len(level)
        if left < 0:
            return SyntaxProblem("aliases make the document too large", line)
    return SyntaxProblem(TOO_DEEP, line)


def _is_too_deep(text: str) -> bool:
    if _DEEP_BLOCK.search(f"\n{text}"):
        return True
    if text.count("[") + text.count("{") <= MAX_NESTING:
        return False
    depth = deepest = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if match.group() in "[{" else -1
        deepest = max(deepest, depth)
    return deepest > MAX_NESTING


def _json(text: str) -> object:
    try:
        value = (
            json.loads(text, parse_constant=_refuse_constant, parse_float=finite, object_pairs_hook=_unique)
            if text.strip()
            else None
        )
    except json.JSONDecodeError as error:
        return SyntaxProblem(error.msg, error.lineno)
    except _DuplicateKeyError as error:
        found = _yaml(text, 0)  # The JSON parser does not say where it is.
        return found if isinstance(found, SyntaxProblem) else SyntaxProblem(str(error), 1)
    except RecursionError:
        return SyntaxProblem(TOO_DEEP, 1)
    except ValueError as error:
        return SyntaxProblem(str(error), 1)
    return _within_limits(value, len(text), 1)


class _DuplicateKeyError(ValueError):
    """An object has a key twice."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _DuplicateKeyError(f'the key "{next(key for key in counts if counts[key] > 1)}" is there twice')
    return found


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
