"""A verb on HTTP, and where its errors become replies.

kube-scheduler throws away the body of any status but 200, so verbs answer 200 with ``Error``, whatever is wrong with
the request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from allocator.errors import InvalidObjectError
from extender import wire
from extender.body import WireError
from extender.http.openapi import VerbDoc
from extender.metrics import Metrics
from extender.service import RefusedError

logger = structlog.get_logger()

Verb = Callable[[Request, bytes], Awaitable[bytes]]
"""A request and its body in, the reply's body out."""


class TooLargeError(Exception):
    """A body over the limit."""


class _VerbRoute(APIRoute):
    """A route in FastAPI's documentation, without its work on parameters and results: a verb has neither."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint as it is."""
        return self.endpoint


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

    def route(self, path: str, name: str, verb: Verb, doc: VerbDoc, tag: str) -> APIRoute:
        """A verb at a path; ``name`` is what messages and metrics call it."""
        return _VerbRoute(
            path,
            self._endpoint(name, verb),
            methods=["POST"],
            name=name,
            summary=doc.summary,
            response_model=None,
            tags=[tag],
            openapi_extra=doc.as_openapi(),
        )

    def _endpoint(self, name: str, verb: Verb) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            started = self.clock()
            code = "error"
            try:
                async with asyncio.timeout(self.deadline):
                    reply = await verb(request, await read_body(request, self.body_limit))
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
            return Response(reply, media_type="application/json")

        return endpoint


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body. One that is too long is read to its end and not kept, so that the client gets to our answer."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
    if size > limit:
        raise TooLargeError
    return b"".join(chunks)
