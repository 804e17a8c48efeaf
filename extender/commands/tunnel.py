"""HTTP to a port of a pod, over connections through the API server. No port of this machine is opened."""

import asyncio
from collections.abc import Iterable
from ssl import SSLContext
from typing import Any

import httpcore
import httpx

from extender.kube.connection.port_forward import Dial, PodStream, PortForwardError


class _Stream(httpcore.AsyncNetworkStream):
    """A connection to a pod, as httpcore uses connections."""

    def __init__(self, stream: PodStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                return await self._stream.read(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(f"no answer within {timeout:g} s") from error
        except PortForwardError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._stream.write(buffer)
        except (TimeoutError, PortForwardError) as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        await self._stream.close()

    async def start_tls(
        self,
        ssl_context: SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.UnsupportedProtocol("the tunnel to a pod takes HTTP without TLS")

    def get_extra_info(self, info: str) -> Any:
        """Nothing is known of the connection."""


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, dial: Dial) -> None:
        self._dial = dial

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                return _Stream(await self._dial())
        except (TimeoutError, PortForwardError) as error:
            raise httpcore.ConnectError(str(error) or "no connection in time") from error


class Tunnel(httpx.AsyncBaseTransport):
    """A transport of httpx; whatever the host of a URL is, the request goes to the port that is dialed."""

    def __init__(self, dial: Dial) -> None:
        self._pool = httpcore.AsyncConnectionPool(network_backend=_Backend(dial))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and read the whole answer."""
        try:
            found = await self._pool.request(
                request.method,
                str(request.url),
                headers=request.headers.raw,
                content=await request.aread(),
                extensions=dict(request.extensions),
            )
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise httpx.TransportError(str(error) or type(error).__name__) from error
        return httpx.Response(found.status, headers=found.headers, content=found.content)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()
