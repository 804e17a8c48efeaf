"""Errors of paths that are no verbs: a status, and JSON with a message."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import Response

from extender.verbs import wire


def error_reply(status: HTTPStatus | int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """``{"error": message}``."""
    return Response(wire.as_line({"error": message}), status, headers, media_type="application/json")
