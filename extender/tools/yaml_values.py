"""One YAML document to the JSON values that kubectl would send, from the events of libyaml's parser.

PyYAML's own loaders make a node for each value, and then find its type by rules for all of YAML. That takes twice as
long, which counts for the manifests of a big cluster.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    """What an anchor names: the event that begins it, and the mapping or list, which may be unfinished."""

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
