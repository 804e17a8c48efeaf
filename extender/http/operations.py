"""Everything on HTTP that is for people and probes."""

from http import HTTPStatus

from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import PlainTextResponse, Response

from extender import __version__, wire
from extender.service import Service


def add_operations(app: FastAPI, service: Service) -> None:
    """Health, metrics, and what there is."""

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
            "seen": service.seen(),
            "endpoints": [*_endpoints(app), f"GET {app.openapi_url}"],
        }
        return Response(wire.as_line(found), media_type="application/json")


def _endpoints(app: FastAPI) -> list[str]:
    routes = (route for route in app.routes if isinstance(route, APIRoute))
    return [f"{method} {route.path}" for route in routes for method in sorted(route.methods or ())]
