"""Regular expressions, by RE2: linear time whatever the pattern."""

from functools import lru_cache
from typing import Any, Final

import re2

from allocator.cel.cost import PATTERN
from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Library, free, function, member
from allocator.cel.types import BOOL, INT, STRING, list_of


def _options() -> "re2.Options":
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = 4 << 20
    return options


@lru_cache(maxsize=64)
def compile_pattern(pattern: str) -> Any:  # noqa: ANN401  # re2 has no types
    """The compiled pattern.

    Raises:
        EvaluationError: not a regular expression.
    """
    try:
        return re2.compile(checked_text(pattern), options=_options())
    except re2.error as error:
        reason = error.args[0] if error.args else "invalid"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise EvaluationError(f"error parsing regexp: {text}") from None


def checked_text(text: str) -> str:
    """A text as it is, if it has an encoding.

    Raises:
        EvaluationError: half of a surrogate pair has none.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise EvaluationError("half of a surrogate pair is no character") from None
    return text


def _matches(text: str, pattern: str) -> bool:
    return compile_pattern(pattern).search(checked_text(text)) is not None


def _find(text: str, pattern: str) -> str:
    match = compile_pattern(pattern).search(checked_text(text))
    return "" if match is None else str(match.group())


def _find_all(text: str, pattern: str, limit: int = -1) -> tuple[str, ...]:
    """All matches, but for empty ones right behind another, as Go finds them."""
    found: list[str] = []
    end = -1
    for match in compile_pattern(pattern).finditer(checked_text(text)):
        if len(found) == limit:
            break
        if match.group() or match.start() != end:
            found.append(match.group())
        end = match.end()
    return tuple(found)


LIBRARY: Final[Library] = (
    function(
        "matches",
        member(STRING, STRING, result=BOOL, call=_matches, cost=PATTERN),
        free(STRING, STRING, result=BOOL, call=_matches, cost=PATTERN),
    ),
)
"""The language's own."""

KUBERNETES: Final[Library] = (
    function("find", member(STRING, STRING, result=STRING, call=_find), cost=PATTERN),
    function(
        "findAll",
        member(STRING, STRING, result=list_of(STRING), call=_find_all, grows=True),
        member(STRING, STRING, INT, result=list_of(STRING), call=_find_all, grows=True),
        cost=PATTERN,
    ),
)

PATTERNS: Final = frozenset({"matches", "find", "findAll"})
"""The second argument of these is a pattern; a constant one is checked when compiling."""
