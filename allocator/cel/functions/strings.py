"""Strings: the language's functions and those of cel-go's string extension, version 2."""

from typing import Final

from allocator.cel.cost import FIRST, PRODUCT, RESULT_TWICE, SECOND, TRAVERSAL, TWICE
from allocator.cel.errors import CostLimitError, EvaluationError
from allocator.cel.functions.declare import Library, free, function, member
from allocator.cel.types import BOOL, INT, STRING, list_of

MAX_SIZE: Final = 1_000_000
"""Limit on the length of a string that an expression builds: other work waits while a function reads it."""

_SMALL_PRODUCT: Final = 100_000
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_QUOTED: Final = str.maketrans(
    {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""}
)


def check_size(length: int) -> None:
    """Refuse to build a string that is too long.

    Raises:
        CostLimitError: it would be.
    """
    if length > MAX_SIZE:
        raise CostLimitError


def _char_at(text: str, index: int) -> str:
    if 0 <= index <= len(text):
        return text[index : index + 1]
    raise EvaluationError(f"index out of range: {index}")


def _index_of(text: str, part: str, start: int = 0) -> int:
    """The position of a part, or -1; an empty part is found where the search begins, at most at the end."""
    _check_offset(start)
    return text.find(part, min(start, len(text)))


def _last_index_of(text: str, part: str, end: int | None = None) -> int:
    if end is None:
        return _found_last(text, part)
    _check_offset(end)
    if part == "":
        return min(end, len(text))
    return _found_last(text[: end + len(part)], part) if end < len(text) else -1


def _found_last(text: str, part: str) -> int:
    """Like ``rfind``, whose time grows with the product of the lengths: long texts are searched forward, reversed."""
    if len(text) * len(part) <= _SMALL_PRODUCT:
        return text.rfind(part)
    found = text[::-1].find(part[::-1])
    return found if found < 0 else len(text) - found - len(part)


def _check_offset(offset: int) -> None:
    if offset < 0:
        raise EvaluationError(f"index out of range: {offset}")


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    times = text.count(old) if limit < 0 else min(limit, text.count(old))
    check_size(len(text) + times * (len(new) - len(old)))
    return text.replace(old, new, limit)


def _split(text: str, separator: str, limit: int = -1) -> tuple[str, ...]:
    if limit == 0:
        return ()
    if separator == "":
        count = len(text) if limit < 0 else min(limit, len(text))
        return (*text[: count - 1], text[count - 1 :]) if text else ()
    return tuple(text.split(separator, -1 if limit < 0 else limit - 1))


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    if not 0 <= stop <= len(text):
        raise EvaluationError(f"index out of range: {stop}")
    if start > stop:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {stop}")
    return text[start:stop]


def _join(parts: tuple[str, ...], separator: str = "") -> str:
    if any(type(part) is not str for part in parts):
        raise EvaluationError("no such overload")
    check_size(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def _quote(text: str) -> str:
    return f'"{text.translate(_QUOTED)}"'


LIBRARY: Final[Library] = (
    function("contains", member(STRING, STRING, result=BOOL, call=lambda text, part: part in text, cost=PRODUCT)),
    function("startsWith", member(STRING, STRING, result=BOOL, call=str.startswith, cost=SECOND)),
    function("endsWith", member(STRING, STRING, result=BOOL, call=str.endswith, cost=SECOND)),
    function("charAt", member(STRING, INT, result=STRING, call=_char_at)),
    function(
        "indexOf",
        member(STRING, STRING, result=INT, call=_index_of),
        member(STRING, STRING, INT, result=INT, call=_index_of),
        cost=TRAVERSAL,
    ),
    function(
        "lastIndexOf",
        member(STRING, STRING, result=INT, call=_last_index_of),
        member(STRING, STRING, INT, result=INT, call=_last_index_of),
        cost=TRAVERSAL,
    ),
    function("lowerAscii", member(STRING, result=STRING, call=lambda text: text.translate(_LOWER)), cost=FIRST),
    function("upperAscii", member(STRING, result=STRING, call=lambda text: text.translate(_UPPER)), cost=FIRST),
    function("trim", member(STRING, result=STRING, call=lambda text: text.strip(_SPACE)), cost=FIRST),
    function(
        "replace",
        member(STRING, STRING, STRING, result=STRING, call=_replace, grows=True),
        member(STRING, STRING, STRING, INT, result=STRING, call=_replace, grows=True),
        cost=TWICE,
    ),
    function(
        "split",
        member(STRING, STRING, result=list_of(STRING), call=_split, grows=True),
        member(STRING, STRING, INT, result=list_of(STRING), call=_split, grows=True),
        cost=TWICE,
    ),
    function(
        "substring",
        member(STRING, INT, result=STRING, call=_substring),
        member(STRING, INT, INT, result=STRING, call=_substring),
        cost=FIRST,
    ),
    function(
        "join",
        member(list_of(STRING), result=STRING, call=_join, grows=True),
        member(list_of(STRING), STRING, result=STRING, call=_join, grows=True),
        cost=RESULT_TWICE,
    ),
    function("strings.quote", free(STRING, result=STRING, call=_quote, cost=FIRST)),
)
