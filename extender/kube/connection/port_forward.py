"""A connection to a port of a pod through the API server, as `kubectl port-forward` has it, without a local port.

It speaks the subprotocol ``v4.channel.k8s.io``: each message begins with a byte that names its channel, and the first
message of a channel has the number of the port (Kubernetes, `pkg/kubelet` and `k8s.io/kubelet/pkg/cri/streaming`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias
from urllib.parse import quote

import aiohttp

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
