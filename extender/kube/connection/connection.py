"""A connection to an API server: raw JSON over HTTP.

Requests go over connections of our own (`extender.kube.connection.pool`). aiohttp is for WebSockets, and for API
servers behind a proxy or with a password in their URL.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import structlog

from extender.kube.api import ConnectError
from extender.kube.connection.credentials import Credentials, Origin, load_credentials
from extender.kube.connection.pool import Address, ConnectionPool
from extender.kube.connection.transport import (
    JSON_TYPE,
    HttpReply,
    HttpRequest,
    LongAnswerError,
    NotSentError,
    Stream,
    TransportError,
)

_log = structlog.get_logger()

REFRESH_SECONDS: Final = 60.0
"""Between two reads of the files and plugins that credentials come from."""

_HEADERS: Final = {"Accept": JSON_TYPE, "Accept-Encoding": "identity", "User-Agent": "dra-extender"}
"""Of each request. Inside a cluster, compression costs more time than it saves."""

_CONNECT_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 60.0
"""Idle connections are closed before the server does it: kube-apiserver waits 90 s."""

_CONNECTIONS: Final = 200
_BUFFER_BYTES: Final = 256 * 1024
"""Read buffer of a stream; a slow reader holds at most twice as much."""


class HttpStream:
    """An answer of aiohttp; implements `extender.kube.connection.transport.Stream`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status

    @property
    def retry_after(self) -> float:
        """Seconds, 0 if the server did not say."""
        return _retry_after(self._response)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            # aiohttp raises RuntimeError if the connection was lost before the read.
            raise TransportError(_text(error)) from error


class WebSocketRefusedError(Exception):
    """The server opens no WebSocket.

    Attributes:
        status: of its answer.
    """

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"HTTP {status}")


class ApiConnection:
    """HTTP to one API server; implements `extender.kube.connection.transport.Transport`.

    Args:
        pool: for requests; None: they go through the session.
    """

    def __init__(
        self, session: aiohttp.ClientSession, credentials: Credentials, pool: ConnectionPool | None = None
    ) -> None:
        self._session = session
        self._credentials = credentials
        self._pool = pool

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._credentials.url

    async def call(self, request: HttpRequest) -> HttpReply:
        """Send a request and read the whole answer; after 401, that of a second try with renewed credentials."""
        if self._pool is not None:
            headers = self._credentials.headers
            reply = await self._pool.call(request, {**request.headers, **headers})
            if reply.status != HTTPStatus.UNAUTHORIZED:
                return reply
            await self._renew(refused=headers)
            return await self._pool.call(request, {**request.headers, **self._credentials.headers})
        try:
            async with await self._send(request) as response:
                return HttpReply(response.status, await _whole(response, request.most_bytes), _retry_after(response))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSentError(_text(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(_text(error)) from error

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Stream]:
        """Send a request and read the answer bit by bit; after 401, that of a second try with renewed credentials."""
        if self._pool is not None:
            async with AsyncExitStack() as stack:
                yield await self._opened_stream(self._pool, request, stack)
            return
        try:
            response = await self._send(request)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSentError(_text(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(_text(error)) from error
        async with response:
            yield HttpStream(response)

    async def _opened_stream(self, pool: ConnectionPool, request: HttpRequest, stack: AsyncExitStack) -> Stream:
        headers = self._credentials.headers
        async with AsyncExitStack() as first:
            stream = await first.enter_async_context(pool.stream(request, {**request.headers, **headers}))
            if stream.status != HTTPStatus.UNAUTHORIZED:
                stack.push_async_callback(first.pop_all().aclose)
                return stream
        await self._renew(refused=headers)
        return await stack.enter_async_context(pool.stream(request, {**request.headers, **self._credentials.headers}))

    async def websocket(self, path: str, query: Mapping[str, str], protocol: str) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket; the caller closes it.

        Args:
            path: absolute and quoted.
            query: the parameters.
            protocol: the subprotocol.

        Raises:
            WebSocketRefusedError: the server answers with another status than 101.
            TransportError: there is no answer.
        """
        try:
            return await self._opened(path, query, protocol)
        except aiohttp.WSServerHandshakeError as error:
            raise WebSocketRefusedError(error.status) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(_text(error)) from error

    async def _opened(self, path: str, query: Mapping[str, str], protocol: str) -> aiohttp.ClientWebSocketResponse:
        opened: aiohttp.ClientWebSocketResponse = await self._session.ws_connect(
            f"{self.url}{path}",
            params=query,
            protocols=(protocol,),
            headers=self._credentials.headers,
            max_msg_size=0,  # the other end decides on the size of its frames
            **self._credentials.request_options,
        )
        return opened

    async def keep_fresh(self) -> None:
        """Renew the credentials regularly, until cancelled."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            await self._renew()

    async def _send(self, request: HttpRequest) -> aiohttp.ClientResponse:
        """The head of the answer; after 401, that of a second try with renewed credentials."""
        headers = self._credentials.headers
        response = await self._send_once(request, headers)
        if response.status != HTTPStatus.UNAUTHORIZED:
            return response
        response.release()
        await self._renew(refused=headers)
        return await self._send_once(request, self._credentials.headers)

    async def _send_once(self, request: HttpRequest, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        body = None if request.body is None else SentOnce(request.body)
        return await self._session.request(
            request.method,
            f"{self.url}{request.path}",
            params=request.query,
            data=body,
            headers={
                **request.headers,
                **headers,
                **({"Content-Type": request.media_type} if body is not None else {}),
            },
            allow_redirects=False,
            **self._credentials.request_options,
        )

    async def _renew(self, refused: Mapping[str, str] | None = None) -> None:
        try:
            await self._credentials.renew(refused)
        except ConnectError as error:
            _log.warning("credentials not renewed", error=str(error))


class SentOnce(aiohttp.BytesPayload):
    """A body that is not sent again.

    aiohttp repeats a PUT or DELETE whose connection was cut. If the first one was done, its repetition fails at the
    precondition, and that refusal would say that nothing has happened.
    """

    @property
    def consumed(self) -> bool:
        """Whether the body is used up: it can't be had again."""
        return True


@asynccontextmanager
async def open_connection(origin: Origin) -> AsyncIterator[ApiConnection]:
    """A connection, closed in the end. Nothing is sent yet. Raises ConnectError: the configuration can't be used."""
    credentials = await load_credentials(origin)
    # In a pod, the API server is never reached through a proxy, whatever the environment says.
    proxy = _proxy_of_environment(credentials.url) if origin.files else None
    connector = aiohttp.TCPConnector(
        limit=_CONNECTIONS,
        keepalive_timeout=_IDLE_SECONDS,
        ssl=credentials.tls or True,
    )
    session = aiohttp.ClientSession(
        connector=connector,
        # Callers limit the time of their calls; this is the limit for connecting.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        headers=_HEADERS,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=_BUFFER_BYTES,
        proxy=proxy,
    )
    pool = _pool(credentials, proxy)
    async with session:
        try:
            yield ApiConnection(session, credentials, pool)
        finally:
            if pool is not None:
                await pool.close()


def _pool(credentials: Credentials, proxy: str | None) -> ConnectionPool | None:
    """Connections of our own; None if they can't do what the configuration asks for."""
    options = credentials.request_options
    if proxy or "proxy" in options or "@" in urlsplit(credentials.url).netloc:
        return None
    lines = "".join(f"{name}: {value}\r\n" for name, value in _HEADERS.items())
    address = Address.of(credentials.url, credentials.tls, options.get("server_hostname", ""))
    return ConnectionPool(address, lines.encode(), most=_CONNECTIONS, idle_seconds=_IDLE_SECONDS)


def _proxy_of_environment(url: str) -> str | None:
    """The proxy for an address by HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

    aiohttp's own lookup runs at each request, in two threads, and reads passwords from ~/.netrc.
    """
    address = urlsplit(url)
    return None if proxy_bypass(address.netloc) else getproxies().get(address.scheme)


async def _whole(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body of an answer. Raises LongAnswerError: it is longer than this."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > most:
            response.close()
            raise LongAnswerError(f"the answer has more than {most} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _retry_after(response: aiohttp.ClientResponse) -> float:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
