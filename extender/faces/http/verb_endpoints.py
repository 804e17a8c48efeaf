"""A verb on HTTP, and the place where its errors become replies.

kube-scheduler ignores the body of a reply unless its status is 200. So verbs always answer 200, errors with ``Error``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Generic, TypeAlias, TypeVar

import structlog
from anyio.to_thread import run_sync
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from allocator.tools import JSON
from extender.faces.http.bodies import FREE_BYTES, LOOKED_BYTES, SMALL_BYTES, TOO_DEEP, Bodies, Body, is_costly
from extender.faces.http.callers import Callers, caller_of
from extender.faces.http.replies import status_of
from extender.faces.tracing import Call, Tracing
from extender.framework import wire
from extender.framework.metrics import Metrics
from extender.framework.verb import Doc, Verb
from extender.tools.faults import RefusedError
from extender.tools.intake import CycleTurns
from extender.tools.offload import to_the_end

logger = structlog.get_logger()

_JSON: Final = (b"content-type", b"application/json")

BODILESS: Final = "dra_extender.bodiless"
"""Key of the scope of a GET that stands for a HEAD. An answer without an end leaves out its body."""

_HEALTH: Final = ("/livez", "/healthz", "/readyz")
"""Paths of health checks."""

_By = TypeVar("_By")

Elsewhere: TypeAlias = Callable[[Request, bytes], Awaitable[bytes | None]]
"""Has a request and its body answered at another place; None: the request is to be answered here."""


async def nowhere_else(_request: Request, _body: bytes) -> bytes | None:
    """The request is to be answered here."""
    return None


class VerbRoute(APIRoute):
    """A route that FastAPI documents but does not run: verbs read and write their bodies themselves.

    Args:
        app: answers the requests.
    """

    def __init__(self, path: str, app: ASGIApp, **options: Any) -> None:  # noqa: ANN401  # as FastAPI's own
        super().__init__(path, _documented, methods=["POST"], response_model=None, **options)
        self.app = app


async def _documented() -> None:  # without a docstring, which would be the verb's description
    pass


class Application(FastAPI):
    """FastAPI's application with a short way to verbs: middleware and routing take longer than many answers.

    HEAD is answered at each path as GET is.

    kube-scheduler asks for one pod at a time, and waits for each answer. So its verbs begin at once, as health checks
    do. Of all other requests, one begins in each cycle of the event loop, in turns of the callers: some hundred at once
    would keep the loop for half a second.

    Args:
        callers: whose requests are answered; None for all.
    """

    def __init__(self, callers: Callers | None = None, **options: Any) -> None:  # noqa: ANN401  # as FastAPI's own
        super().__init__(**options)
        self._callers = callers
        self._verbs: dict[str, ASGIApp] = {}
        self._prompt = set(_HEALTH)
        self._turns = CycleTurns()

    def add_verb(self, route: VerbRoute, *, is_prompt: bool) -> None:
        """Answer at the route's path, at once or in turns."""
        self.router.routes.append(route)
        self._verbs[route.path] = route.app
        if is_prompt:
            self._prompt.add(route.path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        verb = self._verbs.get(scope["path"]) if scope.get("method") == "POST" else None
        if self._callers is not None and (refusal := self._callers.refusal(scope["method"], scope["headers"])):
            if verb is None:
                await _answer(send, HTTPStatus.FORBIDDEN, wire.as_line({"error": refusal}))
            else:
                await _answer(send, HTTPStatus.OK, wire.encode_error(refusal))
            return
        if scope.get("path") not in self._prompt:
            await self._turns.turn(caller_of(scope))
        if scope.get("method") == "HEAD":
            # The server leaves out the body. It looks at its own scope.
            await super().__call__({**scope, "method": "GET", BODILESS: True}, receive, send)
        else:
            await (super().__call__ if verb is None else verb)(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Makes verbs into endpoints.

    Attributes:
        bodies: of all requests that share their room.
        deadline: seconds that a verb may take.
    """

    metrics: Metrics
    tracing: Tracing
    clock: Callable[[], float]
    bodies: Bodies
    deadline: float

    def route(
        self,
        path: str,
        name: str,
        verb: Verb[_By, Any, Any],
        by: Callable[[Request], _By],
        tag: str,
        elsewhere: Elsewhere = nowhere_else,
    ) -> VerbRoute:
        """A verb at a path; ``name`` is what metrics and traces call it, and ``by`` says who answers a request."""
        self.metrics.verbs.expect(name)
        call = self.tracing.call(name, _Exchange(verb, by, elsewhere, self.tracing, self.bodies))
        free = 0 if verb.has_whole_objects else FREE_BYTES
        app = self._app(name, call, SMALL_BYTES if verb.is_small else None, free)
        return VerbRoute(path, app, name=name, summary=verb.doc.summary, tags=[tag], openapi_extra=_operation(verb.doc))

    def _app(self, name: str, call: Call, limit: int | None, free: int) -> ASGIApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            started = self.clock()
            code = "error"
            try:
                async with asyncio.timeout(self.deadline):
                    with Body(self.bodies, limit, free, caller_of(scope)) as body:
                        reply = await call(Request(scope), await body.read(receive))
                code = "ok"
            except ClientDisconnect:
                reply = b""
            except Exception as error:  # noqa: BLE001 - the one place where errors of verbs become replies
                reply = self._refusal(name, error)
            self.metrics.verbs.answered(name, code, self.clock() - started)
            await _answer(send, HTTPStatus.OK, reply)

        return app

    def _refusal(self, name: str, error: Exception) -> bytes:
        if isinstance(error, TimeoutError):
            return wire.encode_error(f"{name} was not done within its deadline of {self.deadline:g} s")
        if isinstance(error, RecursionError):
            return wire.encode_error(TOO_DEEP)
        if status_of(error) is not None:
            return wire.encode_error(str(error), error.code if isinstance(error, RefusedError) else "")
        logger.error("verb failed", verb=name, exc_info=error)
        return wire.encode_error(f"internal error in {name}; the service's log has the details")


@dataclass(frozen=True, slots=True)
class _Exchange(Generic[_By]):
    """A verb on HTTP: a request and its body in, the reply's body out."""

    verb: Verb[_By, Any, Any]
    by: Callable[[Request], _By]
    elsewhere: Elsewhere
    tracing: Tracing
    bodies: Bodies

    async def __call__(self, request: Request, body: bytes) -> bytes:
        reply = await self.elsewhere(request, body)
        if reply is not None:
            return reply
        verb, tell = self.verb, self.tracing.tell
        by, is_long = self.by(request), len(body) > FREE_BYTES
        # To decode a hundred thousand victims, or a Pod with ten thousand resources, takes a tenth of a second.
        if verb.has_whole_objects or (len(body) > LOOKED_BYTES and is_costly(body)):
            whose = self.bodies.whose_turn(caller_of(request.scope), body)
            asked = await self.bodies.decoded(whose, verb.decode, body)
        else:
            asked = verb.decode(body)
        with verb.deciding(by, asked) as draft:
            tell(verb.asked, asked)
            answer = await verb.answer(by, asked)
            if draft is not None:
                verb.found(draft, asked, answer)
            tell(verb.answered, answer)
        return await to_the_end(run_sync(verb.encode, asked, answer)) if is_long else verb.encode(asked, answer)


def _operation(doc: Doc) -> dict[str, object]:
    """The parts of an OpenAPI operation that FastAPI can't know: verbs decode their bodies themselves."""
    ok = {"description": 'The answer, or {"Error": "..."}.', "content": _content(doc.reply)}
    return {
        "parameters": [
            {"name": name, "in": "header", "description": meaning, "schema": {"type": "string"}}
            for name, meaning in doc.headers.items()
        ],
        "requestBody": {"required": True, "content": _content(doc.request)},
        "responses": {"200": ok},
    }


def _content(example: JSON) -> Mapping[str, object]:
    return {"application/json": {"schema": {"title": "extender/v1"}, "example": example}}


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [_JSON, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
