"""kube-scheduler's verbs on HTTP: each between its decoder and its encoder."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.requests import Request

from extender import wire
from extender.http.endpoint import Endpoints
from extender.http.openapi import VERBS
from extender.service import Service
from extender.settings import Settings


@dataclass(frozen=True, slots=True)
class _Verbs:
    """Bytes in, bytes out."""

    service: Service

    async def filter(self, _: Request, body: bytes) -> bytes:
        args = wire.decode_filter(body)
        result = await self.service.filter(args)
        return wire.encode_filter(args, result.passed, result.failed, result.unresolvable)

    async def prioritize(self, _: Request, body: bytes) -> bytes:
        return wire.encode_scores(await self.service.prioritize(wire.decode_filter(body)))

    async def preempt(self, _: Request, body: bytes) -> bytes:
        return wire.encode_victims(await self.service.preempt(wire.decode_preempt(body)))

    async def bind(self, _: Request, body: bytes) -> bytes:
        await self.service.bind(wire.decode_bind(body))
        return wire.encode_bound()


def add_verbs(app: FastAPI, service: Service, settings: Settings, clock: Callable[[], float]) -> None:
    """filter, prioritize, preempt and bind under the prefix of the settings."""
    verbs = _Verbs(service)
    endpoints = Endpoints(
        service.metrics, clock, settings.server.body_limit_bytes, settings.scheduling.deadline_seconds
    )
    for name, verb in (
        ("filter", verbs.filter),
        ("prioritize", verbs.prioritize),
        ("preempt", verbs.preempt),
        ("bind", verbs.bind),
    ):
        path = f"{settings.server.prefix}/{name}"
        app.router.routes.append(endpoints.route(path, name, verb, VERBS[name], "verbs"))
