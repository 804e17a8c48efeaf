"""YAML and JSON texts to the JSON values that kubectl would send for them.

In full YAML 1.1, as PyYAML reads it, ``0000:01:00.0`` (a PCI address) is a number in base 60 and ``2024-01-01`` a date.
Here only what kubectl reads as a number, a boolean or null is one. All else is a string, and so is every key.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isinf
from typing import Any, Final

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from allocator import shown

_SEPARATOR: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_SCALARS: Final = {
    "null": (r"~|null|Null|NULL|", ("~", "n", "N", "")),
    "bool": (
        r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
        "yYnNtTfFoO",
    ),
    "int": (r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)", "-+0123456789"),
    "float": (r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    "merge": (r"<<", "<"),
}


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """A document that cannot be read; ``line`` counts from 1 in the whole text."""

    message: str
    line: int

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


_TAG: Final = "tag:yaml.org,2002:"
_MAX_NESTING: Final = 200
"""libyaml recurses in C without a limit: deeper nesting could crash the process, or could not be written as JSON."""

_MAX_VALUES: Final = 100_000
_MAX_EXPANSION: Final = 10
"""A document has at most `_MAX_VALUES` values, or this many per character: aliases of aliases could fill any memory.
Merge keys may add at most `_MAX_VALUES` pairs."""

_TOO_DEEP: Final = f"nested deeper than {_MAX_NESTING}"
_BRACKET: Final = re.compile(r"[\[\]{}]")
_DEEP_BLOCK: Final = re.compile(rf"^[ ?-]{{{2 * _MAX_NESTING},}}", re.MULTILINE)


class _Loader(yaml.CSafeLoader):
    """Plain JSON values; keys are strings and unique."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._merged = 0

    def mapping(self, node: MappingNode) -> dict[str, object]:
        seen: set[str] = set()
        _check_keys(node)
        for key, _ in node.value:
            if key.value in seen and key.tag != f"{_TAG}merge":
                raise ConstructorError(None, None, f'the key "{key.value}" is there twice', key.start_mark)
            seen.add(key.value)
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=True) for key, value in node.value}

    def flatten_mapping(self, node: MappingNode) -> None:
        """Replace merge keys (``<<``) by what they name; PyYAML's own method has no limit."""
        merged: dict[str, tuple[ScalarNode, Node]] = {}
        merges = [(key, value) for key, value in node.value if key.tag == f"{_TAG}merge"]
        node.value = [pair for pair in node.value if pair[0].tag != f"{_TAG}merge"]
        for at, value in merges:
            for each in value.value if isinstance(value, SequenceNode) else [value]:
                if not isinstance(each, MappingNode):
                    raise ConstructorError(
                        None, None, "a merge key needs a mapping, or a list of mappings", at.start_mark
                    )
                _check_keys(each)
                self.flatten_mapping(each)
                self._merged += len(each.value)
                if self._merged > _MAX_VALUES:
                    raise ConstructorError(None, None, "merge keys make the document too large", at.start_mark)
                for key, inner in each.value:
                    merged.setdefault(key.value, (key, inner))
        own = {key.value for key, _ in node.value}
        node.value = [*(pair for name, pair in merged.items() if name not in own), *node.value]

    def sequence(self, node: SequenceNode) -> list[object]:
        return [self.construct_object(item, deep=True) for item in node.value]

    def finite(self, node: ScalarNode) -> float:
        try:
            return _finite(node.value)
        except ValueError as error:
            raise ConstructorError(None, None, str(error), node.start_mark) from error


def _check_keys(node: MappingNode) -> None:
    for key, _ in node.value:
        if not isinstance(key, ScalarNode):
            raise ConstructorError(None, None, "a key is not a string", key.start_mark)


_Loader.yaml_implicit_resolvers = {}
_Loader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.CSafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(_TAG) in {"null", "bool", "int", "float", "str"}
}
for _name, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"^(?:{_pattern})$"), list(_first))
_Loader.add_constructor(f"{_TAG}map", _Loader.mapping)
_Loader.add_constructor(f"{_TAG}seq", _Loader.sequence)
_Loader.add_constructor(f"{_TAG}float", _Loader.finite)


def documents(text: str, *, is_json: bool = False) -> Iterator[object]:
    """The documents of a text, in order; a `SyntaxProblem` for each that cannot be read, None for an empty one.

    Each document is read on its own, so that one mistake does not hide others.
    """
    if is_json:
        yield _json(text)
        return
    starts = [0, *(match.start() for match in _SEPARATOR.finditer(text) if match.start())]
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


def _yaml(text: str, line: int) -> object:
    if _is_too_deep(text):
        return SyntaxProblem(_TOO_DEEP, line + 1)
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader, of our own
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last = text.rstrip().count("\n")
        return SyntaxProblem(str(error.problem or error.context), line + 1 + (min(mark.line, last) if mark else 0))
    except yaml.reader.ReaderError as error:
        return SyntaxProblem(f"{error.reason}: character {error.character!r}", line + 1)
    except ValueError as error:
        return SyntaxProblem(str(error), line + 1)
    except RecursionError:
        return SyntaxProblem(_TOO_DEEP, line + 1)
    return _within_limits(value, len(text), line + 1)


def _within_limits(value: object, length: int, line: int) -> object:
    """The value, or a `SyntaxProblem` if it is too large for a text of this length."""
    left = max(_MAX_VALUES, _MAX_EXPANSION * length)
    level = [value]
    for _ in range(_MAX_NESTING + 1):
        nests = [each for each in level if isinstance(each, (dict, list))]
        if not nests:
            return value
        level = [inner for each in nests for inner in (each.values() if isinstance(each, dict) else each)]
        left -= len(level)
        if left < 0:
            return SyntaxProblem("aliases make the document too large", line)
    return SyntaxProblem(_TOO_DEEP, line)


def _is_too_deep(text: str) -> bool:
    depth = deepest = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if match.group() in "[{" else -1
        deepest = max(deepest, depth)
    return deepest > _MAX_NESTING or _DEEP_BLOCK.search(text) is not None


def _json(text: str) -> object:
    try:
        value = (
            json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique)
            if text.strip()
            else None
        )
    except json.JSONDecodeError as error:
        return SyntaxProblem(error.msg, error.lineno)
    except _DuplicateKeyError as error:
        found = _yaml(text, 0)  # The JSON parser does not say where it is.
        return found if isinstance(found, SyntaxProblem) else SyntaxProblem(str(error), 1)
    except RecursionError:
        return SyntaxProblem(_TOO_DEEP, 1)
    except ValueError as error:
        return SyntaxProblem(str(error), 1)
    return _within_limits(value, len(text), 1)


class _DuplicateKeyError(ValueError):
    """An object has a key twice."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(f'the key "{key}" is there twice')
        found[key] = value
    return found


def _finite(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError(f"{shown(text)} is too large for a number")
    return value


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
