"""A verb on HTTP, and where its errors become replies.

kube-scheduler throws away the body of any status but 200, so verbs answer 200 with ``Error``, whatever is wrong with
the request.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from allocator.errors import InvalidObjectError
from extender import wire
from extender.body import WireError
from extender.http.openapi import VerbDoc
from extender.metrics import Metrics
from extender.service import RefusedError

logger = structlog.get_logger()

_JSON: Final = (b"content-type", b"application/json")

Verb = Callable[[Request, bytes], Awaitable[bytes]]
"""A request and its body in, the reply's body out."""


class TooLargeError(Exception):
    """A body over the limit."""


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
    """FastAPI's, with a short way to verbs: the one through middleware and routes costs more than many an answer."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  # as FastAPI's own
        super().__init__(**options)
        self._verbs: dict[str, ASGIApp] = {}

    def add_verb(self, route: VerbRoute) -> None:
        """Answer at the route's path."""
        self.router.routes.append(route)
        self._verbs[route.path] = route.app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        verb = self._verbs.get(scope["path"]) if scope.get("method") == "POST" else None
        await (super().__call__ if verb is None else verb)(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Makes verbs into endpoints.

    Attributes:
        body_limit: longest body of a request, in bytes.
        deadline: seconds that a verb may take.
    """

    metrics: Metrics
    clock: Callable[[], float]
    body_limit: int
    deadline: float

    def route(self, path: str, name: str, verb: Verb, doc: VerbDoc, tag: str) -> VerbRoute:
        """A verb at a path; ``name`` is what messages and metrics call it."""
        app = self._app(name, verb)
        return VerbRoute(path, app, name=name, summary=doc.summary, tags=[tag], openapi_extra=doc.as_openapi())

    def _app(self, name: str, verb: Verb) -> ASGIApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            started = self.clock()
            code = "error"
            try:
                async with asyncio.timeout(self.deadline):
                    reply = await verb(Request(scope), await read_body(receive, self.body_limit))
                code = "ok"
            except ClientDisconnect:
                reply = b""
            except TooLargeError:
                reply = wire.encode_error(f"the body is longer than the limit of {self.body_limit} bytes")
            except (WireError, InvalidObjectError) as error:
                reply = wire.encode_error(str(error))
            except RefusedError as error:
                reply = wire.encode_error(str(error), error.code)
            except TimeoutError:
                reply = wire.encode_error(f"{name} was not done within its deadline of {self.deadline:g} s")
            except Exception:
                logger.exception("verb failed", verb=name)
                reply = wire.encode_error(f"internal error in {name}; the service's log has the details")
            self.metrics.verb(name, code, self.clock() - started)
            length = str(len(reply)).encode()
            await send({"type": "http.response.start", "status": 200, "headers": [_JSON, (b"content-length", length)]})
            await send({"type": "http.response.body", "body": reply})

        return app


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole body. One that is too long is read to its end and not kept, so that the client gets to our answer.

    Raises:
        ClientDisconnect: the client is gone.
        TooLargeError: so is most of the body.
    """
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
    if size > limit:
        raise TooLargeError
    return b"".join(chunks)
