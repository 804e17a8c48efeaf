"""The autoscaler's verbs on HTTP: each between its decoder and its encoder, in the session that the header names.

Requests with whole nodes and pods are large: they are decoded off the event loop.
"""

from collections.abc import Callable
from dataclasses import dataclass

from anyio.to_thread import run_sync
from starlette.requests import Request

from extender.autoscaler import wire
from extender.autoscaler.service import AutoscalerVerbs
from extender.config.settings import AUTOSCALER_PREFIX, Settings
from extender.http.bodies import Bodies
from extender.http.endpoint import Application, Endpoints
from extender.http.openapi import AUTOSCALER_VERBS
from extender.observe.metrics import Metrics
from extender.tracing.tracing import Tracing
from extender.verbs import wire as scheduler_wire

SESSION = "session"
"""The header."""


@dataclass(frozen=True, slots=True)
class _Verbs:
    """Bytes in, bytes out."""

    autoscaler: AutoscalerVerbs

    async def start(self, _: Request, body: bytes) -> bytes:
        wire.decode_start(body)
        return wire.encode_started(self.autoscaler.start())

    async def filter(self, request: Request, body: bytes) -> bytes:
        args = await run_sync(wire.decode_simulated, body)
        result = await self.autoscaler.filter(args, request.headers.get(SESSION))
        return scheduler_wire.encode_filter(args.asked, result.passed, result.failed, result.unresolvable)

    async def prioritize(self, request: Request, body: bytes) -> bytes:
        args = await run_sync(wire.decode_simulated, body)
        scores = await self.autoscaler.prioritize(args, request.headers.get(SESSION))
        return scheduler_wire.encode_scores(args.asked.names, scores)

    async def select(self, request: Request, body: bytes) -> bytes:
        await self.autoscaler.select(wire.decode_selected(body), request.headers.get(SESSION))
        return wire.encode_selected()

    async def ready(self, request: Request, body: bytes) -> bytes:
        return wire.encode_ready(
            await self.autoscaler.node_ready(wire.decode_ready(body), request.headers.get(SESSION))
        )

    async def estimate(self, request: Request, body: bytes) -> bytes:
        args = await run_sync(wire.decode_estimate, body)
        return wire.encode_plan(await self.autoscaler.estimate(args, request.headers.get(SESSION)))


def add_autoscaler(
    app: Application,
    autoscaler: AutoscalerVerbs,
    settings: Settings,
    bodies: Bodies,
    metrics: Metrics,
    clock: Callable[[], float],
    tracing: Tracing,
) -> None:
    """start, filter, prioritize, NodeSelected, NodeReady and estimate under a prefix of their own."""
    verbs = _Verbs(tracing.autoscaler(autoscaler))
    endpoints = Endpoints(metrics, clock, bodies, settings.autoscaler.deadline_seconds)
    for name, verb in (
        ("start", verbs.start),
        ("filter", verbs.filter),
        ("prioritize", verbs.prioritize),
        ("NodeSelected", verbs.select),
        ("NodeReady", verbs.ready),
        ("estimate", verbs.estimate),
    ):
        path, told = f"{AUTOSCALER_PREFIX}/{name}", f"autoscaler/{name}"
        traced = tracing.call(told, verb)
        app.add_verb(endpoints.route(path, told, traced, AUTOSCALER_VERBS[name], "autoscaler"))
