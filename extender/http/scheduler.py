"""kube-scheduler's verbs on HTTP: each between its decoder and its encoder."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Final, TypeVar

from anyio.to_thread import run_sync
from starlette.requests import Request

from extender.config.settings import Settings
from extender.http.bodies import FREE_BYTES, Bodies
from extender.http.endpoint import Application, Endpoints
from extender.http.openapi import VERBS
from extender.kube.api import ObjectKey
from extender.observe.decision_log import Draft
from extender.observe.overview import Overview
from extender.service import SchedulerVerbs, Service
from extender.tracing.tracing import Tracing
from extender.verbs import wire

_T = TypeVar("_T")

_IN_VAIN: Final = "evicting pods would not suffice"


@dataclass(frozen=True, slots=True)
class _Verbs:
    """Bytes in, bytes out."""

    verbs: SchedulerVerbs
    overview: Overview

    async def filter(self, _: Request, body: bytes) -> bytes:
        args = await _decoded(wire.decode_filter, body)
        with self._noted("filter", args.pod.key, needs_devices=args.pod.needs_devices) as draft:
            result = await self.verbs.filter(args)
            draft.nodes(len(result.passed), chain(result.failed.values(), result.unresolvable.values()))
        return wire.encode_filter(args, result.passed, result.failed, result.unresolvable)

    async def prioritize(self, _: Request, body: bytes) -> bytes:
        args = await _decoded(wire.decode_filter, body)
        return wire.encode_scores(args.names, await self.verbs.prioritize(args))

    async def preempt(self, _: Request, body: bytes) -> bytes:
        args = await _decoded(wire.decode_preempt, body)
        with self._noted("preempt", args.pod.key, needs_devices=args.pod.needs_devices) as draft:
            result = await self.verbs.preempt(args)
            draft.nodes(len(result), repeat(_IN_VAIN, len(args.victims) - len(result)))
        return wire.encode_victims(result)

    async def bind(self, _: Request, body: bytes) -> bytes:
        args = wire.decode_bind(body)
        needs_devices = self.overview.state.snapshot.pod(args.uid) is not None
        with self._noted("bind", ObjectKey(args.namespace, args.name), args.node, needs_devices=needs_devices) as draft:
            await self.verbs.bind(args)
            draft.nodes(1, [])
        return wire.encode_bound()

    def _noted(
        self, verb: str, pod: ObjectKey, node: str = "", *, needs_devices: bool
    ) -> AbstractContextManager[Draft]:
        """Notes a decision, but for pods that are none of our business: they would push out all others."""
        return self.overview.decision_log.deciding(verb, pod, node) if needs_devices else nullcontext(Draft())


async def _decoded(decode: Callable[[bytes], _T], body: bytes) -> _T:
    """What a body says; a long one is decoded in a thread: a hundred thousand victims take a tenth of a second."""
    return decode(body) if len(body) <= FREE_BYTES else await run_sync(decode, body)


def add_verbs(
    app: Application,
    service: Service,
    settings: Settings,
    bodies: Bodies,
    clock: Callable[[], float],
    tracing: Tracing,
) -> None:
    """filter, prioritize, preempt and bind under the prefix of the settings."""
    verbs = _Verbs(tracing.scheduler(service), service.overview)
    endpoints = Endpoints(service.metrics, clock, bodies, settings.scheduling.deadline_seconds)
    for name, verb in (
        ("filter", verbs.filter),
        ("prioritize", verbs.prioritize),
        ("preempt", verbs.preempt),
        ("bind", verbs.bind),
    ):
        path = f"{settings.server.prefix}/{name}"
        app.add_verb(endpoints.route(path, name, tracing.call(name, verb), VERBS[name], "verbs"))
