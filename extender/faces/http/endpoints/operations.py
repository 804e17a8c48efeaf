"""Health, metrics and the index on HTTP."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final

import anyio.to_thread
from fastapi import FastAPI, Query
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from extender.answers.observe.overview import Overview
from extender.faces.assembly import Extender
from extender.faces.http.endpoints.console import VARY, page_files, page_reply
from extender.faces.http.replies import Shared, prefers_page
from extender.framework import wire
from extender.framework.service import Service
from extender.tools.version import __version__

_PAUSE: Final = 9
"""The pause after a rendering, in times of its duration: so rendering takes at most a tenth of the time."""

_MOST_LARGE: Final = 10
"""Pools and nodes with too many devices that ``/readyz?verbose`` names."""


def add_health(app: FastAPI, extender: Extender) -> None:
    """Health and metrics."""
    service, overview = extender.service, extender.overview

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
    async def readyz(verbose: Annotated[str | None, Query(description="Each kind of object.")] = None) -> Response:
        problem = service.not_ready
        text = f"not ready: {problem}\n" if problem else "ok\n"
        if verbose is not None:
            text = "".join(f"{line}\n" for line in _checks(overview)) + text
        return PlainTextResponse(text, HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK)

    async def rendered() -> bytes:
        # The count may take long, so it is done in a thread. The rendering then counts only what has changed since.
        await anyio.to_thread.run_sync(overview.recount)
        return await in_pieces(service.metrics.registry)

    text = Shared(rendered, time.monotonic, _PAUSE)

    @app.get("/metrics", tags=["operations"], summary="Prometheus metrics.", response_class=PlainTextResponse)
    async def metrics_text() -> Response:
        return Response(await text.latest(), media_type=CONTENT_TYPE_LATEST)


@dataclass(frozen=True, slots=True)
class _Only(Collector):
    """One metric."""

    metric: Metric

    def collect(self) -> Iterator[Metric]:
        yield self.metric


async def in_pieces(registry: Collector) -> bytes:
    """The text of all metrics, as `generate_latest` makes it; after each metric, other work gets the event loop."""
    texts = []
    for metric in registry.collect():
        texts.append(generate_latest(_Only(metric)))
        await asyncio.sleep(0)
    return b"".join(texts)


def add_index(app: FastAPI, service: Service) -> None:
    """The index of endpoints, and the console for browsers."""
    page = page_files()["index.html"]

    @app.get("/", tags=["operations"], summary="What this service offers; for browsers, the console.")
    async def index(request: Request) -> Response:
        if prefers_page(request):
            return page_reply(request, page)
        found = {
            "name": "dra-extender",
            "version": __version__,
            "ready": not service.not_ready,
            "cluster": service.summary(),
            "seen": service.seen(),
            "endpoints": [*_endpoints(app), f"GET {app.openapi_url}"],
        }
        return Response(wire.as_line(found), media_type="application/json", headers=VARY)


def _checks(overview: Overview) -> Iterator[str]:
    """A line for each kind of object, as in the API server's ``/readyz?verbose``; then what has too many devices."""
    for health in overview.kinds():
        age = "" if health.age is None else f", heard of {health.age:.0f} s ago"
        state = f"[-]{health.kind}: {health.problem}" if health.problem else f"[+]{health.kind} ok"
        yield f"{state} ({health.objects} objects{age})"
    too_large = overview.sizes.too_large(overview.state.snapshot)
    yield from (f"[!]{each}" for each in too_large[:_MOST_LARGE])
    if len(too_large) > _MOST_LARGE:
        yield f"[!]and {len(too_large) - _MOST_LARGE} more"


def _endpoints(app: FastAPI) -> list[str]:
    routes = (route for route in app.routes if isinstance(route, APIRoute))
    return [f"{method} {route.path}" for route in routes for method in sorted(route.methods or ())]
