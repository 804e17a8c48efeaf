"""Tables on HTTP: text for terminals, JSON for whoever accepts it; page by page. Nothing is written."""

from enum import Enum
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import anyio.to_thread
from fastapi import FastAPI, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from allocator import JSON
from extender.http.negotiation import Format, format_for
from extender.kube.api import RESOURCES
from extender.observe.overview import Overview
from extender.observe.tables.claims import ClaimState, claims
from extender.observe.tables.decisions import decisions
from extender.observe.tables.devices import DeviceState, devices, pools
from extender.observe.tables.kinds import kinds
from extender.observe.tables.problems import problems
from extender.observe.tables.table import TokenError, View, page
from extender.verbs import wire

_MOST: Final = 10_000
_DEFAULT: Final = 500

_EXAMPLES: Final[dict[str, dict[str, JSON]]] = {
    "cluster": {
        "kind": "nodes",
        "objects": 2,
        "unreadable": 0,
        "revision": 17,
        "age": 3.2,
        "ready": True,
        "problem": "",
    },
    "pools": {
        "driver": "gpu.example.com",
        "pool": "node-0",
        "generation": 1,
        "slices": "1/1",
        "node": "node-0",
        "devices": 8,
        "free": 7,
        "problem": "",
    },
    "devices": {
        "driver": "gpu.example.com",
        "pool": "node-0",
        "device": "gpu-0",
        "node": "node-0",
        "state": "allocated",
        "claims": ["default/gpu"],
        "taints": [],
    },
    "claims": {
        "namespace": "default",
        "claim": "gpu",
        "uid": "6a1f43f0-6b0a-4a57-a6d5-6f4f5c1e1c6e",
        "created": "2026-01-01T00:00:00Z",
        "state": "reserved",
        "devices": ["gpu.example.com/node-0/gpu-0"],
        "reservedFor": ["training"],
    },
    "problems": {
        "kind": "ResourceSlice",
        "object": "node-0-gpu.example.com-x7k2p",
        "problem": 'spec.pool.generation: expected an integer, not "1"',
    },
    "decisions": {
        "time": "2026-01-01T00:00:00.000+00:00",
        "id": "9f86d081",
        "verb": "filter",
        "namespace": "default",
        "pod": "training",
        "node": "",
        "passed": 1,
        "rejected": {"no free device for request gpu": 2},
        "milliseconds": 0.8,
        "error": "",
    },
}
"""A row of each table."""


class Paging(BaseModel):
    """Which rows, and in which format. Unknown parameters are refused, because they are misspelled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(default=_DEFAULT, ge=1, le=_MOST, description="The largest number of rows.")
    token: str = Field(default="", alias="continue", description="The token at the end of the page before.")
    format: Format | None = Field(default=None, description="Overrides the Accept header.")


class Pools(Paging):
    """Which pools."""

    driver: str = Field(default="", description="Of this driver.", examples=["gpu.example.com"])
    node: str = Field(default="", description="With devices for this node only.", examples=["node-0"])


class Devices(Paging):
    """Which devices."""

    driver: str = Field(default="", description="Of this driver.", examples=["gpu.example.com"])
    pool: str = Field(default="", description="Of the pools of this name.", examples=["node-0"])
    node: str = Field(default="", description="For this node only.", examples=["node-0"])
    state: DeviceState | None = Field(default=None, description="In this state.", examples=["allocated"])
    free: bool | None = Field(default=None, description="Only free devices, or only others.", examples=["true"])


class Claims(Paging):
    """Which claims."""

    namespace: str = Field(default="", description="Of this namespace.", examples=["default"])
    state: ClaimState | None = Field(default=None, description="In this state.", examples=["pending"])
    pod: str = Field(default="", description="Reserved for a pod of this name.", examples=["plain"])


def _kind(name: str) -> str:
    if name not in RESOURCES:
        raise ValueError(f'unknown kind "{name}" (known: {", ".join(RESOURCES)})')
    return name


class Problems(Paging):
    """Which objects that can't be read."""

    kind: Annotated[str, AfterValidator(_kind)] = Field(
        default="", description="Of this kind.", examples=["ResourceSlice"], json_schema_extra={"enum": [*RESOURCES]}
    )


class Decisions(Paging):
    """Which decisions."""

    namespace: str = Field(default="", description="About pods of this namespace.", examples=["default"])
    pod: str = Field(default="", description="About pods of this name.", examples=["plain"])
    verb: Literal["filter", "preempt", "bind"] | None = Field(
        default=None, description="By this verb.", examples=["filter"]
    )


def add_tables(app: FastAPI, overview: Overview) -> None:
    """``/cluster``, ``/pools``, ``/devices``, ``/claims``, ``/problems`` and ``/decisions``."""
    state, features = overview.state, overview.features
    options: dict[str, Any] = {"tags": ["views"], "response_class": Response}

    @app.get("/cluster", summary="How well is each kind of object known?", responses=_responses("cluster"), **options)
    async def get_cluster(request: Request, query: Annotated[Paging, Query()]) -> Response:
        return await _reply(request, query, kinds(overview.kinds()))

    @app.get("/pools", summary="Pools, and what is free in them.", responses=_responses("pools"), **options)
    async def get_pools(request: Request, query: Annotated[Pools, Query()]) -> Response:
        return await _reply(request, query, pools(state.snapshot, features, driver=query.driver, node=query.node))

    @app.get("/devices", summary="Devices, and who holds them.", responses=_responses("devices"), **options)
    async def get_devices(request: Request, query: Annotated[Devices, Query()]) -> Response:
        wanted = {"driver": query.driver, "pool": query.pool, "node": query.node, "state": _text(query.state)}
        return await _reply(request, query, devices(state.snapshot, features, **wanted, free=query.free))

    @app.get("/claims", summary="Claims, and what they hold.", responses=_responses("claims"), **options)
    async def get_claims(request: Request, query: Annotated[Claims, Query()]) -> Response:
        wanted = {"namespace": query.namespace, "state": _text(query.state), "pod": query.pod}
        return await _reply(request, query, claims(state.snapshot, **wanted))

    @app.get("/problems", summary="Objects that can't be read.", responses=_responses("problems"), **options)
    async def get_problems(request: Request, query: Annotated[Problems, Query()]) -> Response:
        return await _reply(request, query, problems(state.snapshot, kind=query.kind))

    @app.get("/decisions", summary="What was decided, the latest first.", responses=_responses("decisions"), **options)
    async def get_decisions(request: Request, query: Annotated[Decisions, Query()]) -> Response:
        wanted = {"namespace": query.namespace, "pod": query.pod, "verb": query.verb or ""}
        return await _reply(request, query, decisions(overview.decision_log.entries, **wanted))


async def _reply(request: Request, query: Paging, view: View) -> Response:
    """A page, made in a thread: there may be tens of thousands of rows."""
    form = query.format or format_for(request)
    try:
        found = await anyio.to_thread.run_sync(lambda: page(view, limit=query.limit, token=query.token))
    except TokenError as error:
        return Response(wire.as_line({"error": str(error)}), HTTPStatus.BAD_REQUEST, media_type="application/json")
    if form is Format.JSON:
        return Response(wire.as_line(found.as_json()), media_type="application/json")
    return Response(found.as_text(), media_type="text/plain")


def _responses(name: str) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"example": {"items": [_EXAMPLES[name]]}}, "text/plain": {}}
    return {
        200: {
            "description": 'The rows. "continue", in JSON or in the last line of text, is the token of the next page.',
            "content": content,
        },
        400: {"description": "A parameter is unknown or invalid."},
        406: {"description": "Neither text nor JSON is accepted."},
    }


def _text(value: Enum | None) -> str:
    return "" if value is None else str(value.value)
