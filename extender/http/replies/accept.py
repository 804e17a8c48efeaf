"""Text, JSON or a page: what a client prefers, by its Accept header (RFC 9110, 12.5.1)."""

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
    """The format that the client prefers; text if it names neither.

    Raises:
        HTTPException: 406, if the client takes neither.
    """
    ranges = _ranges(request)
    quality = {form: _quality(name, ranges) for form, name in _TYPES.items()}
    if max(quality.values()) > _REFUSED:
        return max(Format, key=lambda form: quality[form])
    # A client that only names other types can show text, unless it refuses text.
    if quality[Format.TEXT] == _UNNAMED:
        return Format.TEXT
    raise HTTPException(HTTPStatus.NOT_ACCEPTABLE, f"there is {' and '.join(_TYPES.values())}")


def prefers_page(request: Request) -> bool:
    """Whether the client names HTML, as browsers do, and does not prefer JSON to HTML."""
    ranges = _ranges(request)
    weight, precision, _ = _quality("text/html", ranges)
    return precision == _NAMED and weight > 0 and weight >= _quality(_TYPES[Format.JSON], ranges)[0]


def _ranges(request: Request) -> list[tuple[str, float]]:
    return [_range(each) for each in request.headers.get("accept", "").split(",")]


def _range(text: str) -> tuple[str, float]:
    """A media range and its weight. The weight is 1 if there is none, or none that can be read."""
    name, *parameters = (part.strip().lower() for part in text.split(";"))
    given = next((value for key, _, value in (each.partition("=") for each in parameters) if key.strip() == "q"), "1")
    try:
        return name, min(1.0, max(0.0, float(given)))
    except ValueError:
        return name, 1.0


_NAMED: Final = 2
_UNNAMED: Final = (-1.0, 0, 0)
_REFUSED: Final = (0.0, _NAMED, 0)


def _quality(name: str, ranges: list[tuple[str, float]]) -> tuple[float, int, int]:
    """A type's weight by the most specific range for it; how specific that range is, and how early it comes."""
    for precision, wanted in ((_NAMED, name), (1, f"{name.partition('/')[0]}/*"), (0, "*/*")):
        for index, (each, weight) in enumerate(ranges):
            if each == wanted:
                return weight, precision, -index
    return _UNNAMED
