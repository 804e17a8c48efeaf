"""Feature gates that an API server has on, as its metrics tell.

Source: ``kubernetes_feature_enabled`` of k8s.io/component-base, a metric of each component since Kubernetes 1.26. The
account needs ``get`` of the path ``/metrics``.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from allocator import DEFAULTS_OF, GATES, NO_FEATURES, Features
from extender.kube.connection.transport import HttpReply, HttpRequest, Stream, Transport, TransportError, succeeded
from extender.kube.discovery import server_version
from extender.kube.errors import ApiError, OutcomeUnknownError

GATES_SECONDS: Final = 15.0
"""For all metrics of the server: on large clusters they are tens of megabytes."""

_METRICS: Final = HttpRequest("GET", "/metrics", headers={"Accept": "text/plain"})
_GATE: Final = re.compile(rb'kubernetes_feature_enabled\{(?:[^}]*,)?name="(\w+)"[^}]*\} ([01])\s*')


@dataclass(frozen=True, slots=True)
class ServerGates:
    """What an API server tells of feature gates.

    Attributes:
        gates: whether each gate of `allocator.GATES` is on; empty if the server does not tell.
        problem: why the server does not tell; empty if it does.
    """

    gates: Mapping[str, bool] = field(default_factory=dict)
    problem: str = ""


async def server_gates(transport: Transport) -> ServerGates:
    """Ask an API server which feature gates it has on. A problem is a part of the answer, not an error.

    A server does not tell gates that its version does not have. Such a gate is off on a server up to the version of our
    defaults: its fields do not exist there. On a newer server, the gate was removed because its feature stays as it is.
    """
    try:
        async with asyncio.timeout(GATES_SECONDS):
            told = await _told(transport)
            is_newer = await server_version(transport) > DEFAULTS_OF
    except TimeoutError:
        return ServerGates(problem=f"{_METRICS}: no answer within {GATES_SECONDS:g} s")
    except (ApiError, OutcomeUnknownError, TransportError) as error:
        return ServerGates(problem=str(error))
    if not told:
        return ServerGates(problem=f"{_METRICS}: there is no metric kubernetes_feature_enabled")
    absent = Features() if is_newer else NO_FEATURES
    return ServerGates({name: told.get(name, getattr(absent, feature)) for name, feature in GATES.items()})


async def _told(transport: Transport) -> dict[str, bool]:
    """All gates of the server; empty if it tells none."""
    told: dict[str, bool] = {}
    async with transport.stream(_METRICS) as answer:
        if answer.status != HTTPStatus.OK:
            body = b"".join([chunk async for chunk in answer.chunks()])
            succeeded(_METRICS, HttpReply(answer.status, body))
        async for line in _lines(answer):
            if found := _GATE.fullmatch(line):
                told[found[1].decode()] = found[2] == b"1"
            elif told:  # The lines of one metric are together.
                break
    return told


async def _lines(answer: Stream) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in answer.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    yield rest
