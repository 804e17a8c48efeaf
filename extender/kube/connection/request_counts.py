"""Counts requests to an API server, with their answers and durations."""

from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from extender.kube.connection.transport import HttpReply, HttpRequest, Stream, Transport

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets of durations; a last bucket has all longer ones."""

NO_ANSWER: Final = "<error>"
"""In place of the HTTP status if there was no answer, as in client-go's metrics."""

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class RequestKind(NamedTuple):
    """A verb of RBAC, and a resource with its subresource; no resource for discovery."""

    verb: str
    resource: str


@dataclass(slots=True)
class Durations:
    """Durations: their number per bucket of `SECONDS`, and their sum."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds


@dataclass(slots=True)
class RequestCounts:
    """Answers by request and HTTP status; durations by verb, for watches until the head of the answer."""

    answers: Counter[tuple[RequestKind, str]] = field(default_factory=Counter)
    durations: dict[str, Durations] = field(default_factory=dict)

    def add(self, asked: RequestKind, code: str, seconds: float) -> None:
        """One answer."""
        self.answers[asked, code] += 1
        self.durations.setdefault(asked.verb, Durations()).add(seconds)


class CountingTransport:
    """A transport whose requests are counted; implements `extender.kube.connection.transport.Transport`."""

    def __init__(self, transport: Transport, request_counts: RequestCounts, clock: Callable[[], float]) -> None:
        self._transport = transport
        self._request_counts = request_counts
        self._clock = clock

    async def call(self, request: HttpRequest) -> HttpReply:
        """Send a request and read the whole answer."""
        started, code = self._clock(), NO_ANSWER
        try:
            reply = await self._transport.call(request)
            code = str(reply.status)
        finally:
            # Cancelled calls count too: they show a server that is too slow.
            self._request_counts.add(asked(request), code, self._clock() - started)
        return reply

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Stream]:
        """Send a request and read the answer bit by bit."""
        async with AsyncExitStack() as stack:
            started, code = self._clock(), NO_ANSWER
            try:
                stream = await stack.enter_async_context(self._transport.stream(request))
                code = str(stream.status)
            finally:
                self._request_counts.add(asked(request), code, self._clock() - started)
            yield stream


def asked(request: HttpRequest) -> RequestKind:
    """Verb and resource of a request."""
    parts = request.path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    resource = "/".join([*rest[:1], *rest[2:]])
    if request.method != "GET":
        return RequestKind(_VERBS.get(request.method, request.method.lower()), resource)
    if "watch" in request.query:
        return RequestKind("watch", resource)
    return RequestKind("list" if len(rest) == 1 else "get", resource)
