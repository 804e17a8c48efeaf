"""Everything on HTTP that is for people and probes."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated

import anyio.to_thread
from fastapi import FastAPI, Query
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import PlainTextResponse, Response

from extender import __version__, wire
from extender.service import Service


def add_health(app: FastAPI, service: Service) -> None:
    """Health and metrics."""

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
            text = "".join(f"{line}\n" for line in _checks(service)) + text
        return PlainTextResponse(text, HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK)

    @app.get("/metrics", tags=["operations"], summary="Prometheus metrics.", response_class=PlainTextResponse)
    async def metrics_text() -> Response:
        # In a thread what may take long: after this, only what has changed since is counted.
        overview = service.overview
        await anyio.to_thread.run_sync(overview.devices.count, overview.state.snapshot)
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def add_index(app: FastAPI, service: Service) -> None:
    """What there is."""

    @app.get("/", tags=["operations"], summary="What is here.")
    async def index() -> Response:
        found = {
            "name": "dra-extender",
            "version": __version__,
            "ready": not service.not_ready,
            "cluster": service.summary(),
            "seen": service.seen(),
            "endpoints": [*_endpoints(app), f"GET {app.openapi_url}"],
        }
        return Response(wire.as_line(found), media_type="application/json")


def _checks(service: Service) -> Iterator[str]:
    """A line for each kind of object, as the API server's own ``/readyz?verbose`` has them."""
    for health in service.overview.kinds():
        age = "" if health.age is None else f", heard of {health.age:.0f} s ago"
        state = f"[-]{health.kind}: {health.problem}" if health.problem else f"[+]{health.kind} ok"
        yield f"{state} ({health.objects} objects{age})"


def _endpoints(app: FastAPI) -> list[str]:
    routes = (route for route in app.routes if isinstance(route, APIRoute))
    return [f"{method} {route.path}" for route in routes for method in sorted(route.methods or ())]
