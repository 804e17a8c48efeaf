"""HTTP to a port of a pod through the API server, as `kubectl port-forward` has it, without a local port.

A connection speaks the subprotocol ``v4.channel.k8s.io``: each message begins with a byte that names its channel, and
the first message of a channel has the number of the port (Kubernetes, `pkg/kubelet` and
`k8s.io/kubelet/pkg/cri/streaming`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from ssl import SSLContext
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import aiohttp
import httpcore
import httpx

from extender.kube.api import ObjectKey
from extender.kube.connection.connection import ApiConnection, WebSocketRefusedError
from extender.kube.connection.transport import TransportError

_PROTOCOL: Final = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
"""The channels of the first port."""

_LARGEST_FRAME: Final = 32 * 1024

Dial: TypeAlias = Callable[[], Awaitable["PodStream"]]
"""Opens a connection; raises PortForwardError."""


class PortForwardError(Exception):
    """There is no connection to the port, or it was cut; the text says why."""


class PodStream:
    """Bytes to a port of a pod and back."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self._websocket = websocket
        self._begun: set[int] = set()
        self._rest = b""

    async def read(self, most: int) -> bytes:
        """The next bytes, at least one; none at the end.

        Raises:
            PortForwardError: the other end tells an error, for example that nobody listens on the port.
        """
        while not self._rest:
            message = await self._websocket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return b""
            self._rest = self._data_of(message.data)
        found, self._rest = self._rest[:most], self._rest[most:]
        return found

    async def write(self, data: bytes) -> None:
        """Send bytes. Raises PortForwardError: the connection is gone."""
        try:
            for start in range(0, len(data), _LARGEST_FRAME):
                await self._websocket.send_bytes(bytes([_DATA]) + data[start : start + _LARGEST_FRAME])
        except (aiohttp.ClientError, OSError) as error:
            raise PortForwardError(f"the connection to the pod is gone: {error}") from error

    async def close(self) -> None:
        """Close the connection; it may be gone already."""
        with suppress(aiohttp.ClientError, OSError, asyncio.TimeoutError):
            await self._websocket.close()

    def _data_of(self, message: bytes) -> bytes:
        channel, rest = message[0] if message else _DATA, message[1:]
        if channel not in self._begun:
            self._begun.add(channel)
            return b""
        if channel == _ERROR and rest:
            raise PortForwardError(rest.decode(errors="replace").strip())
        return rest if channel == _DATA else b""


async def forward(connection: ApiConnection, pod_path: str, port: int) -> PodStream:
    """A connection to a port of a pod.

    Args:
        connection: to the API server.
        pod_path: of the pod at the API server.
        port: in the pod; it may be bound to the loopback address of the pod.

    Raises:
        PortForwardError: the API server refuses it, or does not reach the node.
    """
    try:
        return PodStream(await connection.websocket(f"{pod_path}/portforward", {"ports": str(port)}, _PROTOCOL))
    except WebSocketRefusedError as error:
        raise PortForwardError(
            f"the API server refuses a port-forward ({error}){_HINTS.get(error.status, '')}"
        ) from error
    except TransportError as error:
        raise PortForwardError(f"no port-forward: {error}") from error


def pod_path(pod: ObjectKey) -> str:
    """The path of a pod at the API server."""
    return f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"


_HINTS: Final = {
    403: ": the user may not",
    404: ": the pod is gone",
    500: ": it may not reach the kubelet of the node",
    502: ": it does not reach the kubelet of the node",
    503: ": it does not reach the kubelet of the node",
}


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
