"""The service on HTTP: routes, and the one place where errors become replies.

kube-scheduler throws away the body of any status but 200, so the verbs answer 200 with ``Error``, whatever is wrong
with the request; everything else answers with a proper status and ``{"error": ...}``.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from allocator.errors import InvalidObjectError
from extender import __version__, openapi, wire
from extender.metrics import Metrics
from extender.service import RefusedError, Service
from extender.settings import Settings

logger = structlog.get_logger()

Verb = Callable[[bytes], Awaitable[bytes]]


class _TooLargeError(Exception):
    """A body over the limit."""


@dataclass(frozen=True, slots=True)
class _Verbs:
    """Bytes in, bytes out: each verb between its decoder and its encoder."""

    service: Service

    async def filter(self, body: bytes) -> bytes:
        args = wire.decode_filter(body)
        result = await self.service.filter(args)
        return wire.encode_filter(args, result.passed, result.failed, result.unresolvable)

    async def prioritize(self, body: bytes) -> bytes:
        return wire.encode_scores(await self.service.prioritize(wire.decode_filter(body)))

    async def preempt(self, body: bytes) -> bytes:
        return wire.encode_victims(await self.service.preempt(wire.decode_preempt(body)))

    async def bind(self, body: bytes) -> bytes:
        await self.service.bind(wire.decode_bind(body))
        return wire.encode_bound()


def create_app(service: Service, settings: Settings, *, clock: Callable[[], float] = time.perf_counter) -> FastAPI:
    """The ASGI application over a service. Nothing is started: whoever runs it owns the loop and the cluster."""
    app = FastAPI(
        title="dra-extender",
        version=__version__,
        description="A kube-scheduler extender that owns Dynamic Resource Allocation.",
        docs_url=None,  # its page loads scripts from elsewhere, and clusters are often without a way out
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _http_error},
    )
    verbs = _Verbs(service)
    for name, verb in (
        ("filter", verbs.filter),
        ("prioritize", verbs.prioritize),
        ("preempt", verbs.preempt),
        ("bind", verbs.bind),
    ):
        endpoint = _endpoint(name, verb, settings, service.metrics, clock)
        app.router.routes.append(_verb_route(settings.server.prefix, name, endpoint))
    _add_operations(app, service)
    return app


def _endpoint(
    name: str, verb: Verb, settings: Settings, metrics: Metrics, clock: Callable[[], float]
) -> Callable[[Request], Awaitable[Response]]:
    limit = settings.server.body_limit_bytes
    deadline = settings.scheduling.deadline_seconds

    async def endpoint(request: Request) -> Response:
        started = clock()
        code = "error"
        try:
            async with asyncio.timeout(deadline):
                reply = await verb(await _body(request, limit))
            code = "ok"
        except ClientDisconnect:
            reply = b""
        except _TooLargeError:
            reply = wire.encode_error(f"the body is longer than the limit of {limit} bytes")
        except (wire.WireError, RefusedError, InvalidObjectError) as error:
            reply = wire.encode_error(str(error))
        except TimeoutError:
            reply = wire.encode_error(f"{name} was not done within its deadline of {deadline:g} s")
        except Exception:
            logger.exception("verb failed", verb=name)
            reply = wire.encode_error(f"internal error in {name}; the service's log has the details")
        metrics.verb(name, code, clock() - started)
        return Response(reply, media_type="application/json")

    return endpoint


async def _body(request: Request, limit: int) -> bytes:
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
        raise _TooLargeError
    return b"".join(chunks)


def _verb_route(prefix: str, name: str, endpoint: Callable[[Request], Awaitable[Response]]) -> APIRoute:
    doc = openapi.VERBS[name]
    return APIRoute(
        f"{prefix}/{name}",
        endpoint,
        methods=["POST"],
        name=name,
        summary=doc.summary,
        response_model=None,
        tags=["verbs"],
        openapi_extra=doc.as_openapi(),
    )


def _add_operations(app: FastAPI, service: Service) -> None:
    """Everything that is for people and probes."""

    @app.get("/livez", tags=["health"], summary="Is the process answering?", response_class=PlainTextResponse)
    async def livez() -> str:
        return "ok\n"

    app.add_api_route(
        "/healthz",
        livez,
        methods=["GET"],
        tags=["health"],
        summary="The same as /livez.",
        response_class=PlainTextResponse,
    )

    @app.get("/readyz", tags=["health"], summary="Can pods be decided?", response_class=PlainTextResponse)
    async def readyz() -> PlainTextResponse:
        problem = service.not_ready
        if problem:
            return PlainTextResponse(f"not ready: {problem}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return PlainTextResponse("ok\n")

    @app.get("/metrics", tags=["operations"], summary="Prometheus metrics.", response_class=PlainTextResponse)
    async def metrics_text() -> Response:
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", tags=["operations"], summary="What is here.")
    async def index() -> Response:
        found = {
            "name": "dra-extender",
            "version": __version__,
            "ready": not service.not_ready,
            "cluster": service.summary(),
            "endpoints": [*_endpoints(app), f"GET {app.openapi_url}"],
        }
        return Response(wire.as_line(found), media_type="application/json")


def _endpoints(app: FastAPI) -> list[str]:
    routes = (route for route in app.routes if isinstance(route, APIRoute))
    return [f"{method} {route.path}" for route in routes for method in sorted(route.methods or ())]


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, as JSON that says what there is."""
    if not isinstance(error, HTTPException):
        raise error
    path, method = request.url.path, request.method
    if error.status_code == HTTPStatus.NOT_FOUND:
        message = f"no such path: {path}; GET / lists what there is"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        message = f"{path} does not take {method}; use {(error.headers or {}).get('Allow', 'another method')}"
    else:
        message = str(error.detail)
    return Response(wire.as_line({"error": message}), error.status_code, error.headers, media_type="application/json")
