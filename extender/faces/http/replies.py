"""Replies on HTTP: the form that a client prefers, texts that many clients share, and errors.

One table has the errors that become replies, with the status of each type.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from enum import Enum
from http import HTTPStatus
from typing import Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from allocator import InvalidObjectError, SearchLimitError
from extender.answers.whatif.question import QuestionError
from extender.faces.console.feed import FullError
from extender.faces.http.bodies import BusyError, TooLargeError
from extender.framework import wire
from extender.framework.wire import WireError
from extender.tools.fairness import CrowdedError
from extender.tools.faults import RefusedError
from extender.tools.table import QueryError

_T = TypeVar("_T")


class Format(Enum):
    """A form in which an answer is written."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    """Of tables alone, and only if it is asked for by name."""


_TYPES: Final = {Format.TEXT: "text/plain", Format.JSON: "application/json"}


def format_for(request: Request) -> Format:
    """The format that the client prefers; text if it names neither.

    Raises:
        HTTPException: 406, if the client takes neither.
    """
    ranges = _ranges(request)
    quality = {form: _quality(name, ranges) for form, name in _TYPES.items()}
    if max(quality.values()) > _REFUSED:
        return max(_TYPES, key=lambda form: quality[form])
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


class Shared:
    """A text that is rendered once for all clients that ask before the rendering begins.

    Args:
        clock: seconds, from any point.
        pause: after a rendering, in times of its duration.
    """

    def __init__(self, render: Callable[[], Awaitable[bytes]], clock: Callable[[], float], pause: float) -> None:
        self._render = render
        self._clock = clock
        self._pause = pause
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None
        self._not_before = 0.0

    async def latest(self) -> bytes:
        """A rendering that began after the request. A client that gives up does not cancel it for others."""
        if self._next is None:
            self._next = asyncio.create_task(self._in_turn())
        return await asyncio.shield(self._next)

    async def _in_turn(self) -> bytes:
        async with self._lock:
            await asyncio.sleep(max(0.0, self._not_before - self._clock()))
            self._next = None
            started = self._clock()
            try:
                return await self._render()
            finally:
                self._not_before = self._clock() + self._pause * (self._clock() - started)


ERRORS: Final[Mapping[type[Exception], HTTPStatus]] = {
    WireError: HTTPStatus.BAD_REQUEST,
    InvalidObjectError: HTTPStatus.BAD_REQUEST,
    QuestionError: HTTPStatus.BAD_REQUEST,
    QueryError: HTTPStatus.BAD_REQUEST,
    TooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
    CrowdedError: HTTPStatus.TOO_MANY_REQUESTS,
    FullError: HTTPStatus.SERVICE_UNAVAILABLE,
    RefusedError: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Errors of callers, and of a service that cannot answer now, by their types and bases. Their texts are for callers."""


OF_PAGES: Final = (*ERRORS, SearchLimitError, ClientDisconnect)
"""What becomes a reply on all paths that are no verbs."""

_LATER: Final = {"Retry-After": "5"}

_TOO_LONG: Final = "the selectors of the class take too long; ask for one driver, pool, node or state"


def status_of(error: Exception) -> HTTPStatus | None:
    """The status of an error; None: it is a fault of ours."""
    return next((ERRORS[each] for each in type(error).__mro__ if each in ERRORS), None)


def error_reply(status: HTTPStatus | int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """``{"error": message}``."""
    return Response(wire.as_line({"error": message}), status, headers, media_type="application/json")


async def reply_to(_request: Request, error: Exception) -> Response:
    """The reply to an error of a page; an empty one to a client that is gone."""
    if isinstance(error, ClientDisconnect):
        return Response()
    if isinstance(error, SearchLimitError):
        return error_reply(HTTPStatus.SERVICE_UNAVAILABLE, _TOO_LONG)
    status = status_of(error)
    if status is None:
        raise error
    return error_reply(status, str(error), _LATER if status is HTTPStatus.TOO_MANY_REQUESTS else None)


async def while_connected(request: Request, answering: Coroutine[Any, Any, _T]) -> _T | None:
    """An answer that takes long; None if the client is gone before, and the work has ended."""
    work = asyncio.create_task(answering)
    leaving = asyncio.create_task(_until_disconnected(request))
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return await work if work.done() else None
    finally:
        for each in (work, leaving):
            each.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(work, leaving, return_exceptions=True)


async def _until_disconnected(request: Request) -> None:
    """Comes to its end when the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
