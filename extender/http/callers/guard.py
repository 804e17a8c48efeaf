"""The guard before an application: requests whose callers are not known, or may not send them, are answered here.

The answers are Status objects, as an API server sends them: clients of Kubernetes understand them.
"""

from functools import partial
from http import HTTPStatus
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from allocator.tools import JSON
from extender.access.gate import AccessError, Gate, Knock
from extender.http.callers.handshakes import CERTIFICATE
from extender.http.callers.refusals import Refusals
from extender.verbs import wire

USER: Final = "dra_extender.user"
"""Key of the scope of a request: the name of the user that sends it."""

MAY: Final = "dra_extender.may"
"""Key of the scope of a request: whether the user has a further right (`extender.access.gate.Gate.may`)."""


class Guard:
    """An ASGI application that asks a gate before another one.

    Args:
        app: gets the requests of callers that may send them.
        gate: knows who may.
        refusals: is told about those who may not.
    """

    def __init__(self, app: ASGIApp, gate: Gate, refusals: Refusals) -> None:
        self._app = app
        self._gate = gate
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        knock = _knock(scope)
        try:
            user = await self._gate.admit(knock)
        except AccessError as error:
            self._refusals.tell(error.why, str(error), knock.address)
            await _refusal(error)(scope, receive, send)
        else:
            scope[USER] = user.name
            scope[MAY] = partial(self._gate.may, user)
            await self._app(scope, receive, send)


def _knock(scope: Scope) -> Knock:
    client = scope.get("client")
    return Knock(
        address=str(client[0]) if client else "",
        certificate=scope.get("state", {}).get(CERTIFICATE),
        authorization=tuple(value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"),
        verb=scope["method"].lower(),
        path=scope["path"],
    )


def _refusal(error: AccessError) -> Response:
    status: JSON = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        "reason": error.reason,
        "code": int(error.status),
    }
    headers = {}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers = {"WWW-Authenticate": "Bearer"}
    elif error.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        headers = {"Retry-After": "1"}
    return Response(wire.as_line(status), error.status, headers, media_type="application/json")
