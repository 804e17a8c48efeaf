"""A verb on HTTP, and where its errors become replies.

kube-scheduler throws away the body of any status but 200, so verbs answer 200 with ``Error``, whatever is wrong with
the request.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from allocator import InvalidObjectError
from extender.http.bodies import SMALL_BYTES, Bodies, Body, BusyError, TooLargeError
from extender.http.openapi import VerbDoc
from extender.http.origins import Callers
from extender.observe.metrics import Metrics
from extender.service import RefusedError
from extender.verbs import wire
from extender.verbs.body import WireError

logger = structlog.get_logger()

_JSON: Final = (b"content-type", b"application/json")

TOO_DEEP: Final = "the body is nested too deeply"

Verb = Callable[[Request, bytes], Awaitable[bytes]]
"""A request and its body in, the reply's body out."""


class VerbRoute(APIRoute):
    """A route in FastAPI's documentation, without its work on parameters and results: a verb has neither.

    Args:
        app: answers, in place of the endpoint, which is there for the documentation.
    """

    def __init__(self, path: str, app: ASGIApp, **options: Any) -> None:  # noqa: ANN401  # as FastAPI's own
        super().__init__(path, _documented, methods=["POST"], response_model=None, **options)
        self.app = app


async def _documented() -> None:  # without a docstring, which would be the verb's description
    pass


class Application(FastAPI):
    """FastAPI's, with a short way to verbs: the one through middleware and routes costs more than many an answer.

    Args:
        callers: who is answered; None: everybody.
    """

    def __init__(self, callers: Callers | None = None, **options: Any) -> None:  # noqa: ANN401  # as FastAPI's own
        super().__init__(**options)
        self._callers = callers
        self._verbs: dict[str, ASGIApp] = {}

    def add_verb(self, route: VerbRoute) -> None:
        """Answer at the route's path."""
        self.router.routes.append(route)
        self._verbs[route.path] = route.app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        verb = self._verbs.get(scope["path"]) if scope.get("method") == "POST" else None
        if self._callers is not None and (refusal := self._callers.refusal(scope["method"], scope["headers"])):
            if verb is None:
                await _answer(send, HTTPStatus.FORBIDDEN, wire.as_line({"error": refusal}))
            else:
                await _answer(send, HTTPStatus.OK, wire.encode_error(refusal))
        else:
            await (super().__call__ if verb is None else verb)(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Makes verbs into endpoints.

    Attributes:
        bodies: of all requests.
        deadline: seconds that a verb may take.
    """

    metrics: Metrics
    clock: Callable[[], float]
    bodies: Bodies
    deadline: float

    def route(self, path: str, name: str, verb: Verb, doc: VerbDoc, tag: str) -> VerbRoute:
        """A verb at a path; ``name`` is what messages and metrics call it."""
        app = self._app(name, verb, SMALL_BYTES if doc.is_small else None)
        return VerbRoute(path, app, name=name, summary=doc.summary, tags=[tag], openapi_extra=doc.as_openapi())

    def _app(self, name: str, verb: Verb, limit: int | None) -> ASGIApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            started = self.clock()
            code = "error"
            try:
                async with asyncio.timeout(self.deadline):
                    with Body(self.bodies, limit) as body:
                        reply = await verb(Request(scope), await body.read(receive))
                code = "ok"
            except ClientDisconnect:
                reply = b""
            except (WireError, InvalidObjectError, TooLargeError, BusyError) as error:
                reply = wire.encode_error(str(error))
            except RecursionError:
                reply = wire.encode_error(TOO_DEEP)
            except RefusedError as error:
                reply = wire.encode_error(str(error), error.code)
            except TimeoutError:
                reply = wire.encode_error(f"{name} was not done within its deadline of {self.deadline:g} s")
            except Exception:
                logger.exception("verb failed", verb=name)
                reply = wire.encode_error(f"internal error in {name}; the service's log has the details")
            self.metrics.verb(name, code, self.clock() - started)
            await _answer(send, HTTPStatus.OK, reply)

        return app


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [_JSON, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
