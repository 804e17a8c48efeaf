"""Connections with limits: on the size of a request's head, on time, and on the number; a reply goes in one packet.

uvicorn has none of these limits, and its parser keeps each header until the header is complete. A limit that no
operator has a reason to change is a constant; the constant says the reason for its size.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol

import httptools
import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from extender.tools.intake import CycleTurns

HEAD_BYTES: Final = 32 * 1024
"""Request line, headers and trailers of one request. kube-scheduler sends 200 bytes; nginx takes 32 KiB as well."""

HEADERS: Final = 128
"""Headers and trailers of one request. A short header takes much more memory than it has bytes."""

PIPELINED: Final = 16
"""The most requests of one connection that wait for the answer to the first. kube-scheduler sends only one."""

CHUNKS: Final = 1024
"""The most chunks of a body in one piece of at most 256 KiB. Clients send chunks of kilobytes; each takes time."""

HEAD_SECONDS: Final = 10.0
"""The longest time from the first byte of a request to the end of its headers. Clients send them in one piece."""

BODY_SECONDS: Final = 60.0
"""The longest time from the headers to the end of the body: 64 MiB at 9 Mbit/s. Verbs have a deadline, too."""

REPLY_SECONDS: Final = 60.0
"""The longest time until the client has taken a reply. The reply is kept in memory until then."""

UNSENT_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of replies that the clients of one listener have not taken yet: a reply with 5,000 whole nodes."""

LONG_BODY_BYTES: Final = 64 * 1024
"""A request with a body of this length, or of a length that is not told, begins `LONG_PAUSE` after the one before. 200
bodies of 256 KiB that come at once would keep the calls between them waiting for 0.2 s."""

LONG_PAUSE: Final = 0.001
"""In seconds. One of these bodies takes about half of it until it is decoded."""

LONG_PIECE_BYTES: Final = 16 * 1024
"""A piece of this length, as the kernel hands it over, is read in one cycle of the event loop with no other one. Longer
ones take up to half a millisecond to copy, and 200 connections may have one each at the same time."""

_BODY_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """The limits that differ between listeners.

    Attributes:
        connections: the most connections at the same time. One more replaces the one that has been idle the longest.
        pause: seconds between the starts of two requests, over all connections; 0 for no pause.
        long_pause: the same for requests with long bodies, where there is no pause for all.
        unsent: the most bytes of replies that the clients have not taken yet.
    """

    connections: int
    pause: float = 0.0
    long_pause: float = LONG_PAUSE
    unsent: int = UNSENT_BYTES


VERBS: Final = ListenerLimits(connections=1280)
"""A scheduler has a connection for each bind that runs, and the pods of a group, 1,024 of them, are bound at once."""

OTHER_DESCRIPTORS: Final = 768
"""Descriptors for all but the connections of the verbs: other listeners, the API server, controllers, files."""


def verbs_within(descriptors: int) -> ListenerLimits:
    """The limits for the verbs in a process that may have this number of descriptors."""
    left = max(1, descriptors - OTHER_DESCRIPTORS)
    return replace(VERBS, connections=min(left, VERBS.connections))


API: Final = ListenerLimits(connections=128, unsent=32 * 1024 * 1024, pause=0.002)
"""Limits for callers off the node: at most 500 answers a second. The scheduler's verbs share the event loop."""

OPERATIONS: Final = ListenerLimits(connections=32, unsent=8 * 1024 * 1024, pause=0.005)
"""Limits for kubelet and a few Prometheus servers: at most 200 answers a second. Each takes half a millisecond, so all
of them together take at most a tenth of the event loop."""


class BoundedConfig(uvicorn.Config):
    """uvicorn's configuration of one server, with limits of its own."""

    def __init__(self, app: Any, limits: ListenerLimits, **options: Any) -> None:  # noqa: ANN401  # as uvicorn's own
        # uvloop accepts all waiting connections at once. Those over the limit hold a descriptor until the event loop's
        # next iteration. So no more connections may wait than may be kept.
        super().__init__(app, http=BoundedProtocol, ws="none", backlog=limits.connections, **options)
        self.limits = limits
        self.pieces = CycleTurns()
        self.pacer = Pacer(limits.pause)
        self.pacer_of_long = self.pacer if limits.pause else Pacer(limits.long_pause)


class AcceptingConfig(BoundedConfig):
    """A configuration that accepts the connections of its server itself."""

    async def accept(self, listener: socket.socket, state: ServerState) -> None:
        """Accept connections until cancelled."""
        raise NotImplementedError


class BoundedServer(uvicorn.Server):
    """uvicorn's server, which also checks the limits on time once a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. A configuration that accepts connections itself does so from here on."""
        if not isinstance(self.config, AcceptingConfig):
            await super().startup(sockets)
            return
        await super().startup([])
        accept = self.config.accept
        self._accepting = [asyncio.create_task(accept(each, self.server_state)) for each in sockets or ()]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and end those that there are."""
        for each in self._accepting:
            each.cancel()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if counter % 10 == 0:
            limits: ListenerLimits = self.config.limits  # type: ignore[attr-defined]  # ours, as the connections
            sweep(self.server_state.connections, time.monotonic(), limits.unsent)  # type: ignore[arg-type]
        return await super().on_tick(counter)


class LimitedConnection(Protocol):
    """A connection among those of a server."""

    since: float

    @property
    def is_idle(self) -> bool:
        """No complete request waits for its answer."""
        ...

    @property
    def unsent(self) -> int:
        """Bytes of replies that the client has not taken yet."""
        ...

    def check(self, now: float) -> None:
        """End the connection if its time is up."""
        ...

    def abort(self) -> None:
        """End the connection at once."""
        ...


def make_room(connections: set[Any], limit: int) -> None:
    """If there are too many connections, close the one that has been idle the longest. The newest one is idle."""
    if len(connections) > limit:
        found: Iterable[LimitedConnection] = connections
        leaving = min((each for each in found if each.is_idle), key=lambda each: each.since)
        connections.discard(leaving)
        leaving.abort()


class _Stage(Enum):
    """The part of a request that is being received; NONE between requests."""

    NONE = auto()
    HEAD = auto()
    BODY = auto()


_NONE, _HEAD, _BODY = _Stage  # a look-up of an Enum's member is slow, and a request takes twenty of them


class _LimitError(Exception):
    """The request is over a limit."""


class OnePacketProtocol(HttpToolsProtocol):
    """uvicorn's protocol on a transport that joins writes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Join the writes of this connection."""
        super().connection_made(_Collecting(transport, self.loop))


class _Collecting(asyncio.Transport):
    """A transport that writes once per iteration of the event loop, and before it closes."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes | bytearray | memoryview] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._transport.is_closing():  # the connection was ended while the answer was made
            return
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._pending.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._pending))

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._flush()
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

    def _flush(self) -> None:
        if self._pending and not self._transport.is_closing():
            data = b"".join(self._pending)
            self._pending.clear()
            self._transport.write(data)


class BoundedProtocol(OnePacketProtocol):
    """uvicorn's protocol with limits."""

    def __init__(
        self,
        config: BoundedConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = config.limits
        self._pieces = config.pieces
        self._pacer = config.pacer
        self._pacer_of_long = config.pacer_of_long
        self._stage = _NONE
        self._head = 0  # bytes of what is complete of the head and of the trailers
        self._incomplete = 0  # bytes since anything was complete
        self._chunks = 0  # of what is being received
        self.since = 0.0
        self._patience = float(config.timeout_keep_alive)
        self._unsent_since: float | None = None
        self._is_leaving = False

    # --- a connection ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """If there are too many connections now, close the one that has been idle the longest."""
        super().connection_made(transport)
        self.since = time.monotonic()
        make_room(self.connections, self._limits.connections)

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's never keeps the connection
        """The client sends no more. It still gets the answer to a complete request."""
        if self._is_answering and self._stage is _NONE:
            self.cycle.keep_alive = False
            return True
        self.transport.close()
        return False

    def pause_writing(self) -> None:
        """The client is slower than we are."""
        super().pause_writing()
        self._unsent_since = time.monotonic()

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        self._unsent_since = None

    @property
    def is_idle(self) -> bool:
        """No complete request waits for its answer."""
        return self._stage is not _NONE or not self._is_answering

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None at first, which uvicorn does not declare
        return cycle is not None and not cycle.response_complete

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    # --- what is received ------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Read a piece; a long one in its turn, and no other piece of this connection before."""
        if len(data) <= LONG_PIECE_BYTES or self._pieces.is_free():
            self._read(data)
        else:
            self.transport.pause_reading()
            self._pieces.wait(self.client[0] if self.client else "", partial(self._resume, data))

    def _resume(self, data: bytes) -> bool:
        is_open = not self.transport.is_closing()
        if is_open:
            self.transport.resume_reading()
            self._read(data)
        return is_open

    def _read(self, data: bytes) -> None:
        """Like uvicorn's, but bytes of an incomplete line count, and nothing that is sent is logged."""
        self._incomplete += len(data)
        self._chunks = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return  # we speak no other protocol, and answer the request as it is
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _LimitError):
                self._refuse_excess()
            else:
                self._refuse(HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1")
            return
        if self._stage is _NONE:
            self._incomplete = 0
        elif self._incomplete > len(data) and self._head + self._incomplete > HEAD_BYTES:
            self._refuse_excess()

    def on_message_begin(self) -> None:
        """A request begins: count from 0."""
        super().on_message_begin()
        self._head = 0
        self._enter(_HEAD, HEAD_SECONDS)

    def on_url(self, url: bytes) -> None:
        """A piece of the URL."""
        self._incomplete = 0
        self._head += len(url)
        if self._head > HEAD_BYTES:
            raise _LimitError
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header or a trailer. A trailer is left out: it is no header."""
        self._incomplete = 0
        self._head += len(name) + len(value) + 4
        if self._head > HEAD_BYTES or len(self.headers) == HEADERS:
            raise _LimitError
        name = name.lower()
        if name == b"expect":
            super().on_header(name, value)
        elif self._stage is _HEAD:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The request can be answered from here on."""
        if len(self.pipeline) == PIPELINED:
            raise _LimitError
        self._incomplete = 0
        super().on_headers_complete()
        self._enter(_BODY, BODY_SECONDS)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._incomplete = 0
        self._chunks += 1
        if self._chunks > CHUNKS:
            raise _LimitError
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete. From here on the application limits the time."""
        self._enter(_NONE, float("inf") if self._is_answering else self.timeout_keep_alive)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Like uvicorn's, without its timer. The connection is idle unless the request's body still comes."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._stage is _NONE:
            self._enter(_NONE, self.timeout_keep_alive)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401  # as uvicorn's own
        start = super()._start_asgi_task
        if _has_long_body(cycle.scope["headers"]):
            self._pacer_of_long.begin(cycle, lambda: start(cycle, app), self.loop)
        elif self._limits.pause:
            self._pacer.begin(cycle, lambda: start(cycle, app), self.loop)
        else:
            start(cycle, app)

    def _enter(self, stage: _Stage, patience: float) -> None:
        self._stage, self._patience, self.since = stage, patience, time.monotonic()

    # --- limits ----------------------------------------------------------------------------------------------

    @property
    def unsent(self) -> int:
        """Bytes of replies that the client has not taken yet."""
        return self.transport.get_write_buffer_size()

    def check(self, now: float) -> None:
        """End the connection if its time is up."""
        if self.transport.is_closing():
            if not self._is_leaving:
                self._is_leaving, self.since = True, now
            elif now - self.since > REPLY_SECONDS:
                self.transport.abort()
        elif self._unsent_since is not None and now - self._unsent_since > REPLY_SECONDS:
            self.transport.abort()
        elif now - self.since > self._patience:
            self._time_out()

    def _time_out(self) -> None:
        if self._stage is _NONE:
            self.transport.close()
        else:
            received = "headers" if self._stage is _HEAD else "body"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the {received} took longer than {self._patience:g} s")

    def _refuse_excess(self) -> None:
        if self._chunks > CHUNKS:
            self._refuse(HTTPStatus.BAD_REQUEST, f"the body comes in more than {CHUNKS} chunks at once")
        else:
            limits = f"{HEAD_BYTES} bytes, {HEADERS} headers or {PIPELINED} requests at once"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the request is over the limit of {limits}")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Close the connection; before that send an error, unless the client would take it for another answer."""
        is_taken = self.cycle.response_started if self._stage is _BODY else self._is_answering
        if self.pipeline or is_taken:
            self.transport.abort()
            return
        body = orjson.dumps({"error": message}, option=orjson.OPT_APPEND_NEWLINE)
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()


def _has_long_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the body is long, or may be. The parser has checked the length: digits alone."""
    for name, value in headers:
        if name in _BODY_HEADERS and (name == b"transfer-encoding" or int(value) > LONG_BODY_BYTES):
            return True
    return False


def sweep(connections: Iterable[LimitedConnection], now: float, most_unsent: int) -> None:
    """End the connections whose time is up, and the slowest readers if more bytes than this wait for readers."""
    found = list(connections)
    for connection in found:
        connection.check(now)
    unsent = sum(connection.unsent for connection in found)
    for connection in sorted(found, key=lambda each: each.unsent, reverse=True):
        if unsent <= most_unsent:
            break
        unsent -= connection.unsent
        connection.abort()


class Pacer:
    """Starts requests one after the other, with a pause in between. A request whose client has gone never starts."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._waiting: deque[tuple[RequestResponseCycle, Callable[[], None]]] = deque()
        self._free_at = 0.0  # by the loop's clock

    def begin(self, cycle: RequestResponseCycle, start: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Call ``start`` as soon as the pause after the request before is over."""
        if not self._waiting and loop.time() >= self._free_at:  # most often: no timer
            self._start(start, loop)
            return
        self._waiting.append((cycle, start))
        if len(self._waiting) == 1:
            loop.call_at(self._free_at, self._next, loop)

    def _start(self, start: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        self._free_at = loop.time() + self._pause
        start()

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            cycle, start = self._waiting.popleft()
            if not cycle.disconnected:
                self._start(start, loop)
                break
        if self._waiting:
            loop.call_at(self._free_at, self._next, loop)
