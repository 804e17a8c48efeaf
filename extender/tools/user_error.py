"""Errors of users: what they have asked for and cannot have, and what they have written, in words for them.

A command prints such an error as a message, without a traceback.
"""

from collections.abc import Iterable
from typing import Final

from pydantic_core import ErrorDetails

from allocator.tools import nearest, shown


class UserError(Exception):
    """An error that the user can mend: what was asked for cannot be done.

    Attributes:
        problems: each names what the user has to change.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


_WANTED: Final = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "string_too_short": "a text that is not empty",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "model_type": "keys and values",
    "dict_type": "keys and values",
    "list_type": "a list",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}",
    "enum": "{expected}",
}
"""What was expected, by pydantic's error type."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """``, did you mean "port"?`` for the nearest known word; else a list of the known words, if it is short."""
    names = sorted(known)
    meant = nearest(word, names)
    if meant:
        return f', did you mean "{meant}"?'
    return f" (known: {', '.join(names)})" if 0 < len(names) <= 20 else ""


def expected(problem: ErrorDetails) -> str:
    """A problem that pydantic found, without the terms of Python."""
    kind, message = problem["type"], problem["msg"]
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    wanted = _WANTED.get(kind)
    if wanted is None:
        return f"{shown(problem['input'])} cannot be used: {message[0].lower()}{message[1:]}"
    return f"expected {wanted.format(**problem.get('ctx', {}))}, not {shown(problem['input'])}"


def installing(extra: str) -> str:
    """The way to install an extra, as the middle of a sentence. No package is published, so it is done in a clone."""
    return f"run pip install '.[{extra}]' in a clone of dra-extender"
