"""Connections to one server that are kept: HTTP/1.1, one request at a time on each.

A request takes a tenth of the Python calls that it takes with aiohttp, which can do more: proxies, redirects, cookies,
compression. Nothing is repeated here: a request goes over one connection, once.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import httptools

from extender.kube.connection.transport import HttpReply, HttpRequest, LongAnswerError, NotSentError, TransportError

_CONNECT_SECONDS: Final = 5.0
_BUFFER_BYTES: Final = 256 * 1024
"""Of a stream: while its reader has not taken so much, no more is received."""

_BODY_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})
_HEADER_BREAKS: Final = str.maketrans(dict.fromkeys("\r\n\0", " "))


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server, and its name.

    Attributes:
        name: for the server's certificate.
        authority: the header Host.
        prefix: the path before that of each request.
        tls: None: plain HTTP.
    """

    host: str
    port: int
    name: str
    authority: str
    prefix: str
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, url: str, tls: ssl.SSLContext | None, name: str = "") -> "Address":
        """The address in a URL.

        Args:
            url: without a query.
            tls: for HTTPS.
            name: in the server's certificate, if it is not the host.
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (80 if tls is None else 443)
        authority = parts.netloc.rpartition("@")[2]
        return cls(host, port, name or host, authority, parts.path.rstrip("/"), tls)


class Line(asyncio.Protocol):
    """One connection: the answer that is being received, in the parts that have come.

    Attributes:
        lost: done once the connection is closed.
        since: when it became idle.
        status: of the answer.
        retry_after: in seconds, as the server says.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._is_asked = self._is_answered = self._is_last = self._streams = False
        self._pieces: list[bytes] = []
        self._size = self._most = 0
        self._error: TransportError | None = None
        self._news: asyncio.Future[None] | None = None
        self._is_paused = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.since = 0.0
        self.status, self.retry_after = 0, 0.0
        self._has_length = False

    @property
    def is_usable(self) -> bool:
        """Another request can be sent."""
        return not self._is_asked and self._transport is not None and not self._transport.is_closing()

    async def call(self, data: bytes, most: int) -> HttpReply:
        """Send a request, and wait for all of the answer.

        Args:
            data: the request.
            most: the most bytes of the body.

        Raises:
            LongAnswerError, TransportError: there is no answer.
        """
        self._send_request(data, most, streams=False)
        while self._is_asked:
            await self._more()
        return HttpReply(self.status, self._joined_pieces(), self.retry_after)

    async def open(self, data: bytes) -> None:
        """Send a request, and wait for the head of the answer; raises TransportError."""
        self._send_request(data, 0, streams=True)
        while self._is_asked and not self._is_answered:
            await self._more()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body of an answer as it comes; raises TransportError if it is cut."""
        while True:
            if self._pieces:
                chunk = self._joined_pieces()
                if self._is_paused and self._transport is not None:
                    self._is_paused = False
                    self._transport.resume_reading()
                yield chunk
            elif self._is_asked:
                await self._more()
            else:
                return

    def close(self) -> None:
        """Close the connection, whatever is on its way."""
        if self._transport is not None:
            self._transport.abort()

    def _send_request(self, data: bytes, most: int, *, streams: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            raise TransportError("the connection is closed")
        self._is_asked, self._is_answered, self._streams = True, False, streams
        self._size, self._most = 0, most
        self._transport.write(data)

    async def _more(self) -> None:
        """Wait until something has come. Raises TransportError; from a stream, what came before is taken first."""
        if self._error is None:
            self._news = asyncio.get_running_loop().create_future()
            try:
                await self._news
            finally:
                self._news = None
        if self._error is not None and not (self._streams and self._pieces):
            # Another one: an error that is raised knows the frames on its way, and these know this object.
            raise type(self._error)(*self._error.args)

    def _joined_pieces(self) -> bytes:
        pieces, self._pieces, self._size = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _wake_reader(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _fail(self, error: TransportError) -> None:
        if self._is_asked and self._error is None:
            self._error = error
            self._wake_reader()
        self.close()

    # --- what is received: called by the event loop, and by the parser -------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = transport  # type: ignore[assignment]  # a Transport, for TCP

    def data_received(self, data: bytes) -> None:
        """Some bytes have come. Nobody has asked for those that come without a request."""
        if not self._is_asked:
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(TransportError(f"the answer is not HTTP/1.1: {error}"))
        if self._streams and self._size > _BUFFER_BYTES and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing comes any more. Without a length, this is the end of a body."""
        self.lost.set_result(None)
        if self._is_asked and self._is_answered and not self._has_length and exc is None and self._error is None:
            self._is_asked = False
            self._wake_reader()
        self._fail(TransportError(f"the connection was cut{f': {exc}' if exc else ''}"))
        self._transport = None
        del self._parser  # as the transport, it knows this object, which would wait for a garbage collection

    def on_message_begin(self) -> None:
        """An answer begins."""
        self.retry_after, self._has_length = 0.0, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of the answer."""
        name = name.lower()
        if name in _BODY_HEADERS:
            self._has_length = True
        elif name == b"retry-after" and value.isdigit():
            self.retry_after = float(value)

    def on_headers_complete(self) -> None:
        """The head of the answer is complete."""
        self.status = self._parser.get_status_code()
        self._is_answered = self.status >= 200  # below, another one follows
        if self._streams and self._is_answered:
            self._wake_reader()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(body)
        self._size += len(body)
        if self._streams:
            self._wake_reader()
        elif self._size > self._most:
            self._pieces.clear()
            self._fail(LongAnswerError(f"the answer has more than {self._most} bytes"))

    def on_message_complete(self) -> None:
        """The answer is complete, unless it is one that announces another."""
        if not self._is_answered or self._error is not None:
            return
        self._is_asked = False
        if not self._parser.should_keep_alive():
            self.close()
        self._wake_reader()


class ConnectionPool:
    """Connections to one server.

    Args:
        address: of the server.
        headers: lines that each request has.
        most: how many connections there may be.
        idle_seconds: after which a connection without a request is closed.
    """

    def __init__(self, address: Address, headers: bytes, *, most: int, idle_seconds: float) -> None:
        self._address = address
        self._headers = b"Host: %b\r\n%b" % (address.authority.encode(), headers)
        self._most = most
        self._idle_seconds = idle_seconds
        self._open = 0
        self._lines: set[Line] = set()
        self._idle: deque[Line] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None

    async def call(self, request: HttpRequest, headers: dict[str, str]) -> HttpReply:
        """Send a request, and wait for all of the answer.

        Raises:
            NotSentError: there is no connection.
            LongAnswerError, TransportError: there is no answer.
        """
        data = self._written(request, headers)
        line = await self._line()
        try:
            return await line.call(data, request.most_bytes)
        finally:
            self._give_back(line)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, headers: dict[str, str]) -> AsyncIterator[Line]:
        """Send a request; within, there is the head of the answer, and the body can be read.

        Raises:
            NotSentError: there is no connection.
            TransportError: there is no answer.
        """
        data = self._written(request, headers)
        line = await self._line()
        try:
            await line.open(data)
            yield line
        finally:
            self._give_back(line)

    async def close(self) -> None:
        """Close all connections."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._idle.clear()
        lines = list(self._lines)
        for line in lines:
            line.close()
        if lines:
            await asyncio.wait([line.lost for line in lines])

    def _written(self, request: HttpRequest, headers: dict[str, str]) -> bytes:
        query = f"?{urlencode(request.query, quote_via=quote, safe='/:,')}" if request.query else ""
        own = "".join(f"{name}: {value.translate(_HEADER_BREAKS)}\r\n" for name, value in headers.items())
        body = request.body
        if body is not None:
            own += f"Content-Type: {request.media_type}\r\nContent-Length: {len(body)}\r\n"
        elif request.method not in {"GET", "HEAD"}:
            own += "Content-Length: 0\r\n"
        start = f"{request.method} {self._address.prefix}{request.path}{query} HTTP/1.1\r\n{own}"
        return b"%b%b\r\n%b" % (start.encode("latin-1"), self._headers, body or b"")

    async def _line(self) -> Line:
        while True:
            while self._idle:
                line = self._idle.pop()
                if line.is_usable:
                    return line
                self._open -= 1
            if self._open < self._most:
                return await self._connected()
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next()
                raise

    async def _connected(self) -> Line:
        self._open += 1
        address, loop = self._address, asyncio.get_running_loop()
        name = None if address.tls is None else address.name
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, line = await loop.create_connection(
                    Line, address.host, address.port, ssl=address.tls, server_hostname=name
                )
        except BaseException as error:
            self._open -= 1
            self._next()
            if isinstance(error, TimeoutError):
                raise NotSentError(f"no connection to {address.authority} within {_CONNECT_SECONDS:g} s") from error
            if isinstance(error, OSError):
                raise NotSentError(f"no connection to {address.authority}: {error.strerror or error}") from error
            raise
        self._lines.add(line)
        line.lost.add_done_callback(lambda _: self._lines.discard(line))
        return line

    def _give_back(self, line: Line) -> None:
        if line.is_usable:
            loop = asyncio.get_running_loop()
            line.since = loop.time()
            self._idle.append(line)
            if self._sweep is None:
                self._sweep = loop.call_later(self._idle_seconds, self._close_idle)
        else:
            line.close()
            self._open -= 1
        self._next()

    def _next(self) -> None:
        """Wake the request that has waited the longest for a connection."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _close_idle(self) -> None:
        """Close the connections that have been idle for long: the ones that were used last stand at the end."""
        loop = asyncio.get_running_loop()
        self._sweep = None
        while self._idle and self._idle[0].since + self._idle_seconds <= loop.time():
            self._idle.popleft().close()
            self._open -= 1
        if self._idle:
            self._sweep = loop.call_at(self._idle[0].since + self._idle_seconds, self._close_idle)
