"""One request to an API server and its answer, as bytes; the errors of failed answers, and counts of requests.

A transport has no time limits: callers set them.
"""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

import orjson

from extender.kube.api import AnswerTooLongError, ApiError, OutcomeUnknownError, RawObject, UnreachableError
from extender.kube.encoding import loads

JSON_TYPE: Final = "application/json"
MERGE_PATCH_TYPE: Final = "application/merge-patch+json"

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of an answer. An object has 1.5 MB at most, unless etcd is told otherwise."""

_LONGEST_TEXT: Final = 500
"""Bytes of an answer that a message quotes if it is no Status object."""


class TransportError(Exception):
    """No complete answer: the connection could not be made, or was cut."""


class LongAnswerError(TransportError):
    """The answer is longer than the request allows."""


class NotSentError(TransportError):
    """The connection could not be made: the request was not sent."""


class TooManyRequestsError(ApiError):
    """The server is busy and has not looked at the request.

    Attributes:
        retry_after: seconds until the next try, as the server says; 0 if it does not.
    """

    def __init__(self, reason: str, message: str, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(HTTPStatus.TOO_MANY_REQUESTS, reason, message)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; ``path`` is absolute and quoted, ``headers`` are added to those of the connection.

    Attributes:
        most_bytes: of the answer to `Transport.call`.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    media_type: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)
    most_bytes: int = MOST_BYTES

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A complete answer; ``retry_after`` in seconds, 0 if the server did not say."""

    status: int
    body: bytes
    retry_after: float = 0.0


class Stream(Protocol):
    """An answer whose body comes in chunks."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def retry_after(self) -> float:
        """Seconds, 0 if the server did not say."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, in pieces of any size; raises TransportError if it is cut."""
        ...


class Transport(Protocol):
    """Sends requests to one API server, with its address and credentials."""

    async def call(self, request: HttpRequest) -> HttpReply:
        """Send a request, once, and wait for all of the answer.

        Raises:
            NotSentError: there is no connection.
            LongAnswerError: the answer is longer than the request allows.
            TransportError: it may have been sent or not.
        """
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[Stream]:
        """Send a request; the answer's body is there to be read until the context is left.

        Raises:
            NotSentError: there is no connection.
            TransportError: on entering; `Stream.chunks` raises it later.
        """
        ...


async def ask(transport: Transport, request: HttpRequest, seconds: float) -> RawObject:
    """Send a request once, and decode its answer; raises as `send` and `decoded`."""
    return decoded(request, await send(transport, request, seconds))


async def send(transport: Transport, request: HttpRequest, seconds: float) -> HttpReply:
    """Send a request once; returns its answer, whatever the status.

    Raises:
        UnreachableError: nothing was sent.
        AnswerTooLongError: the answer is longer than the request allows.
        OutcomeUnknownError: no complete answer within the seconds.
    """
    try:
        async with asyncio.timeout(seconds):
            return await transport.call(request)
    except TimeoutError as error:
        raise OutcomeUnknownError(str(request), f"no answer within {seconds:g} s") from error
    except NotSentError as error:
        raise UnreachableError(str(request), str(error)) from error
    except LongAnswerError as error:
        raise AnswerTooLongError(str(request), str(error)) from error
    except TransportError as error:
        raise OutcomeUnknownError(str(request), str(error)) from error


def decoded(request: HttpRequest, reply: HttpReply) -> RawObject:
    """The JSON object of a successful answer.

    Raises:
        ApiError: a refusal.
        OutcomeUnknownError: a 5xx, or an answer that is not what an API server sends.
    """
    body = succeeded(request, reply)
    try:
        found = loads(body)
    except orjson.JSONDecodeError as error:
        raise OutcomeUnknownError(str(request), f"the answer is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise OutcomeUnknownError(str(request), f"the answer is not an object: {body[:_LONGEST_TEXT]!r}")
    return found


def succeeded(request: HttpRequest, reply: HttpReply) -> bytes:
    """The body of a successful answer.

    Raises:
        ApiError: a refusal.
        OutcomeUnknownError: a 5xx, or an answer that is not what an API server sends.
    """
    if 400 <= reply.status < 500:  # numbers: to look up members of HTTPStatus takes longer than the comparisons
        raise refusal(reply)
    if not 200 <= reply.status < 300:
        raise OutcomeUnknownError(str(request), f"HTTP {reply.status}: {_status_of(reply.body)[1]}")
    return reply.body


def refusal(reply: HttpReply) -> ApiError:
    """The error for a 4xx answer."""
    reason, message = _status_of(reply.body)
    message = message or f"HTTP {reply.status}"
    if reply.status == HTTPStatus.TOO_MANY_REQUESTS:
        return TooManyRequestsError(reason, message, reply.retry_after)
    return ApiError(reply.status, reason, message)


def _status_of(body: bytes) -> tuple[str, str]:
    """Reason and message of a Status object; of anything else, no reason and the text."""
    try:
        status = loads(body)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return "", body[:_LONGEST_TEXT].decode(errors="replace").strip()
    reason, message = status.get("reason"), status.get("message")
    return reason if isinstance(reason, str) else "", message if isinstance(message, str) else ""


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
        durations = self.durations.get(asked.verb)
        if durations is None:
            durations = self.durations[asked.verb] = Durations()
        durations.add(seconds)


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
