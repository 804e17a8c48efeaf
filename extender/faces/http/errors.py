"""The one table of errors that become replies on HTTP, with the status of each type."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from allocator import InvalidObjectError, SearchLimitError
from extender.answers.whatif.question import QuestionError
from extender.faces.console.feed import FullError
from extender.faces.http.limits.bodies import BusyError, TooLargeError
from extender.framework import wire
from extender.framework.wire import WireError
from extender.tools.fairness.places import CrowdedError
from extender.tools.faults import RefusedError
from extender.tools.table import QueryError

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
