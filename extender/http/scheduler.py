"""The scheduler's verbs on HTTP, and where their errors become replies.

kube-scheduler throws away the body of any status but 200, so the verbs answer 200 with ``Error``, whatever is wrong
with the request.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from allocator.errors import InvalidObjectError
from extender import wire
from extender.http import openapi
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


def add_verbs(app: FastAPI, service: Service, settings: Settings, clock: Callable[[], float]) -> None:
    """filter, prioritize, preempt and bind under the prefix of the settings."""
    verbs = _Verbs(service)
    for name, verb in (
        ("filter", verbs.filter),
        ("prioritize", verbs.prioritize),
        ("preempt", verbs.preempt),
        ("bind", verbs.bind),
    ):
        endpoint = _endpoint(name, verb, settings, service.metrics, clock)
        app.router.routes.append(_verb_route(settings.server.prefix, name, endpoint))


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
