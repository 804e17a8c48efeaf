"""Text or JSON: what a reader can do with, by its Accept header (RFC 9110, 12.5.1)."""

from enum import Enum
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request


class Format(Enum):
    """How an answer is written."""

    TEXT = "text"
    JSON = "json"


_TYPES: Final = {Format.TEXT: "text/plain", Format.JSON: "application/json"}


def format_for(request: Request) -> Format:
    """What the request's reader prefers; text where it names neither.

    Raises:
        HTTPException: 406, if it takes neither.
    """
    ranges = [_range(each) for each in request.headers.get("accept", "").split(",")]
    quality = {form: _quality(name, ranges) for form, name in _TYPES.items()}
    if max(quality.values()) > _REFUSED:
        return max(Format, key=lambda form: quality[form])
    # A reader of other types, such as a browser of old, gets on with text; not so one that says it does not take it.
    if quality[Format.TEXT] == _UNNAMED:
        return Format.TEXT
    raise HTTPException(HTTPStatus.NOT_ACCEPTABLE, f"there is {' and '.join(_TYPES.values())}")


def _range(text: str) -> tuple[str, float]:
    """A media range and its weight, 1 unless it says otherwise; one that can't be read counts in full."""
    name, *parameters = (part.strip().lower() for part in text.split(";"))
    given = next((value for key, _, value in (each.partition("=") for each in parameters) if key.strip() == "q"), "1")
    try:
        return name, min(1.0, max(0.0, float(given)))
    except ValueError:
        return name, 1.0


_UNNAMED: Final = (-1.0, 0, 0)
_REFUSED: Final = (0.0, 2, 0)


def _quality(name: str, ranges: list[tuple[str, float]]) -> tuple[float, int, int]:
    """Weight of a type by the range that says most about it, how much that says, and how early it comes."""
    for precision, wanted in ((2, name), (1, f"{name.partition('/')[0]}/*"), (0, "*/*")):
        for index, (each, weight) in enumerate(ranges):
            if each == wanted:
                return weight, precision, -index
    return _UNNAMED
