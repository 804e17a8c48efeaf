"""YAML and JSON texts to the JSON values that kubectl would send for them.

In full YAML 1.1, as PyYAML reads it, ``0000:01:00.0`` (a PCI address) is a number in base 60 and ``2024-01-01`` a date.
Here only what kubectl reads as a number, a boolean or null is one. All else is a string, and so is every key.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from allocator.tools import shown
from extender.tools.yaml_lines import OTHER, read_lines
from extender.tools.yaml_values import MAX_NESTING, MAX_VALUES, TOO_DEEP, YamlDocument, finite

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
