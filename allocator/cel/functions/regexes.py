"""Regular expressions by RE2: linear time for every pattern."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import re2

from allocator.cel.cost import PATTERN
from allocator.cel.errors import CostLimitError, EvaluationError
from allocator.cel.functions.declare import Library, free, function, member
from allocator.cel.types import BOOL, INT, STRING, list_of

_SHORT: Final = 1_000
_MOST_STEPS: Final = 50_000_000
"""RE2 takes half a second for this at worst."""


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
        return re2.compile(pattern, options=_options())
    except UnicodeEncodeError:
        raise _no_character() from None
    except re2.error as error:
        reason = error.args[0] if error.args else "invalid"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise EvaluationError(f"error parsing regexp: {text}") from None


def _no_character() -> EvaluationError:
    return EvaluationError("invalid Unicode: half of a surrogate pair")


def _searches(text: str, pattern: str) -> Iterator[Any]:
    """The matches, one after the other, until they take too many steps.

    RE2 is linear in the text, but each character may take one step for each instruction of the program, and each search
    may read the whole text.

    Raises:
        EvaluationError: not a regular expression, or invalid Unicode.
        CostLimitError: too many steps.
    """
    try:
        for number, match in enumerate(_compiled_for(text, pattern).finditer(text), start=1):
            if number * len(text) > _MOST_STEPS:
                raise CostLimitError
            yield match
    except UnicodeEncodeError:
        raise _no_character() from None


def _compiled_for(text: str, pattern: str) -> Any:  # noqa: ANN401  # re2 has no types
    compiled = compile_pattern(pattern)
    if len(text) > _SHORT and len(text) * compiled.programsize > _MOST_STEPS:
        raise CostLimitError
    return compiled


def _search(text: str, pattern: str) -> Any:  # noqa: ANN401  # re2 has no types
    """The first match, or None. Raises the errors of `_searches`."""
    try:
        return _compiled_for(text, pattern).search(text)
    except UnicodeEncodeError:
        raise _no_character() from None


def _matches(text: str, pattern: str) -> bool:
    return _search(text, pattern) is not None


def _first_match(text: str, pattern: str) -> str:
    match = _search(text, pattern)
    return "" if match is None else str(match.group())


def _find_all(text: str, pattern: str, limit: int = -1) -> tuple[str, ...]:
    """All matches, without an empty one directly after another match, as in Go."""
    found: list[str] = []
    end = -1
    for match in _searches(text, pattern):
        if len(found) == limit:
            break
        if match.group() or match.start() != end:
            found.append(match.group())
        end = match.end()
    return tuple(found)


LIBRARY: Final[Library] = (
    function(
        "matches",
        free(STRING, STRING, result=BOOL, call=_matches, cost=PATTERN),
        member(STRING, STRING, result=BOOL, call=_matches, cost=PATTERN),
    ),
    function("find", member(STRING, STRING, result=STRING, call=_first_match), cost=PATTERN),
    function(
        "findAll",
        member(STRING, STRING, result=list_of(STRING), call=_find_all, grows=True),
        member(STRING, STRING, INT, result=list_of(STRING), call=_find_all, grows=True),
        cost=PATTERN,
    ),
)

PATTERNS: Final = frozenset({"matches", "find", "findAll"})
"""Functions whose second argument is a pattern; a constant pattern is checked at compile time."""
