"""JSON of any depth and with any number, which an API server accepts and the usual parsers refuse.

An API server keeps opaque parameters as they were sent if they are JSON: nested up to 10,000 levels, with numbers that
no float holds. Parsers that recurse stop earlier: orjson reads 1,024 levels and writes 254, Python's own about 1,000
until Python 3.11, and several times as many since.
"""

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
"""A JSON value."""

_LAYER: Final = 200
"""Levels that are read at once, if a text is nested too deeply for one call of the parser."""

_RECURSED: Final = 500
"""Levels of opaque parameters that are read as a value. How many a parser takes differs with Python and its stack."""

DEEPEST: Final = 12_000
"""The most levels of a text. An API server takes 10,000, and puts a list or an event around the object."""

_CUT_OUT: Final = "NaN"
"""Python's parser knows this as a constant; JSON does not have it."""

_MARK: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{\]}]', re.DOTALL)
"""A string, which may be cut off by the end of the text; or a bracket of a list or an object."""

_STEPS: Final = {"[": 1, "{": 1, "]": -1, "}": -1}
_OPENING: Final = frozenset("[{")
_BEFORE: Final = frozenset("{,")

_OPAQUE: Final = '"parameters":'
"""The field of an OpaqueDeviceConfiguration, as an API server writes it: after a bracket or comma, before a bracket."""

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")

_decoder: Final = json.JSONDecoder()

_ESCAPE: Final = re.compile(r"\\[^u]|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|\\u[dD][89a-fA-F]\w\w")
"""A short escape, a surrogate pair, or half of one, which is the only match of its length."""

_HALF: Final = len(r"\ud800")


class Verbatim:
    """The text of a value that Python can't hold, or would write in another way."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Verbatim) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


def loads(text: str) -> Any:  # noqa: ANN401 - JSON has any type
    """The value of a JSON text; opaque parameters that could not be written again as they are stay text.

    Halves of surrogate pairs become U+FFFD, as in Go.

    Raises:
        ValueError: the text is not JSON, or has more than `DEEPEST` levels.
    """
    return with_opaque_parts(text, opaque_parts(text))


def with_opaque_parts(text: str, parts: Sequence["OpaquePart"]) -> Any:  # noqa: ANN401 - JSON has any type
    """Like `loads`, for a caller that knows the `opaque_parts` of the text already."""
    return _read(text, parts)


def plain(text: str) -> Any:  # noqa: ANN401 - JSON has any type
    """Like `loads`, for readers that write nothing again: opaque parameters are values, too. Huge numbers stay text."""
    return _read(text, [])


def exact(text: str) -> Any:  # noqa: ANN401 - JSON has any type
    r"""The value of a JSON text if `dumps` gives the same text for it; otherwise the text.

    An API server compares the bytes of what it does not understand: 1e2 is not 100.0, and \u003c not <.
    """
    try:
        value = json.loads(text)
        is_same = not _is_deep(text, 0, len(text)) and dumps(value) == text
    except (RecursionError, ValueError):
        return Verbatim(text)
    return value if is_same else Verbatim(text)


def dumps(value: object) -> str:
    """The text of a JSON value, on one line.

    Raises:
        TypeError: the value has something that JSON does not have.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, TypeError):
        return "".join(_written(value))


# --- reading ------------------------------------------------------------------------------------------------


class OpaquePart(NamedTuple):
    """A part of a text, and its value."""

    begin: int
    end: int
    value: object


def _read(text: str, opaque: Sequence[OpaquePart]) -> object:
    """The value of a text, in which these parts are known."""
    try:
        return _cut(text, 0, len(text), [*opaque]).value
    except RecursionError:
        return _layered(text, deque(opaque))


def opaque_parts(text: str) -> list[OpaquePart]:
    """The opaque parameters in a text that must stay text, in their order.

    Raises:
        ValueError: a list or an object is not closed, or is nested deeper than `DEEPEST` levels.
    """
    found: list[OpaquePart] = []
    at = text.find(_OPAQUE)
    while at >= 0:
        begin = at + len(_OPAQUE)
        if text[at - 1 : at] in _BEFORE and text[begin : begin + 1] in _OPENING:
            value, end = _exact_at(text, begin)
            if isinstance(value, Verbatim):
                found.append(OpaquePart(begin, end, value))
            begin = end
        at = text.find(_OPAQUE, begin)
    return found


def _exact_at(text: str, begin: int) -> tuple[object, int]:
    """The list or object that begins at a character, as `exact` returns it, and where it ends."""
    try:
        value, end = _decoder.raw_decode(text, begin)  # in C, so a long text takes little time
        if not _is_deep(text, begin, end) and dumps(value) == text[begin:end]:
            return value, end
    except (RecursionError, ValueError):
        end = _end(text, begin)
    return Verbatim(text[begin:end]), end


def _is_deep(text: str, begin: int, end: int) -> bool:
    """Whether a value has more levels than `_RECURSED`."""
    if text.count("[", begin, end) + text.count("{", begin, end) <= _RECURSED:
        return False
    depth = 0
    for mark in _MARK.finditer(text, begin, end):
        depth += _STEPS.get(mark[0], 0)
        if depth > _RECURSED:
            return True
    return False


def _end(text: str, begin: int) -> int:
    """The position at which a list or an object ends."""
    depth = 0
    for mark in _MARK.finditer(text, begin):
        depth += _STEPS.get(mark[0], 0)
        if not depth:
            return mark.end()
        _check_depth(depth, mark.start())
    raise ValueError(f"{text[begin]} is not closed: character {begin}")


def _check_depth(depth: int, at: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"more than {DEEPEST} levels: character {at}")


def _layered(text: str, opaque: deque[OpaquePart]) -> object:
    """Read a text from the inside out: each part of `_LAYER` levels is read, and cut out of the part around it."""
    begins: list[int] = []
    heights = [0]
    cuts: list[OpaquePart] = []
    at = 0
    while mark := _MARK.search(text, at):
        at = mark.end()
        step = _STEPS.get(mark[0], 0)
        if opaque and mark.start() == opaque[0].begin:
            cuts.append(opaque.popleft())
            at = cuts[-1].end
        elif step > 0:
            begins.append(mark.start())
            heights.append(0)
            _check_depth(len(begins), mark.start())
        elif step < 0:
            if not begins:
                raise ValueError(f"{mark[0]} closes nothing: character {mark.start()}")
            begin, height = begins.pop(), heights.pop() + 1
            if height == _LAYER:
                height = 0
                cuts.append(_cut(text, begin, at, cuts))
            heights[-1] = max(heights[-1], height)
    if begins:
        raise ValueError(f"{text[begins[-1]]} is not closed: character {begins[-1]}")
    return _cut(text, 0, len(text), cuts).value


def _cut(text: str, begin: int, end: int, cuts: list[OpaquePart]) -> OpaquePart:
    """Read a part of a text; the cuts within it are removed from the list."""
    parts: list[str] = []
    inner: list[object] = []
    rest = end
    while cuts and cuts[-1].begin >= begin:
        last = cuts.pop()
        parts += (text[last.end : rest], _CUT_OUT)
        inner.append(last.value)
        rest = last.begin
    parts.append(text[begin:rest])
    return OpaquePart(begin, end, _parsed("".join(reversed(parts)), reversed(inner)))


def _parsed(text: str, inner: Iterator[object]) -> object:
    """The value of a text in which `_CUT_OUT` stands for each of the inner values."""
    if _SURROGATE.search(text):
        text = _ESCAPE.sub(lambda found: r"\ufffd" if len(found[0]) == _HALF else found[0], text)
    return json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=lambda name: _next(inner, name))


def _next(inner: Iterator[object], name: str) -> object:
    for value in inner:
        return value
    raise ValueError(f"{name} is not JSON")


def _integer(text: str) -> int | Verbatim:
    try:
        return int(text)
    except ValueError:  # Python's limit on digits
        return Verbatim(text)


def _float(text: str) -> float | Verbatim:
    value = float(text)
    return value if math.isfinite(value) else Verbatim(text)


# --- writing ------------------------------------------------------------------------------------------------


def _written(value: object) -> Iterator[str]:
    """The text in pieces, without recursion."""
    todo: list[tuple[bool, object]] = [(False, value)]
    while todo:
        is_text, each = todo.pop()
        if is_text:
            yield str(each)
        elif isinstance(each, dict):
            yield "{"
            members = [((True, f"{json.dumps(name)}:"), (False, inner)) for name, inner in each.items()]
            todo += [(True, "}"), *_backward(members)]
        elif isinstance(each, list):
            yield "["
            todo += [(True, "]"), *_backward([((False, inner),) for inner in each])]
        else:
            yield each.text if isinstance(each, Verbatim) else json.dumps(each, ensure_ascii=False)


def _backward(groups: Sequence[tuple[tuple[bool, object], ...]]) -> Iterator[tuple[bool, object]]:
    """The groups with commas between them, in reverse."""
    for index in range(len(groups) - 1, -1, -1):
        yield from reversed(groups[index])
        if index:
            yield True, ","
