"""Connections to pods: `v4.channel.k8s.io` as kubelet speaks it, and HTTP over it."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import httpx
import pytest

from extender.faces.commands.port_forward import PodStream, PortForwardError, Tunnel, forward, pod_path
from extender.kube.api import ObjectKey
from extender.kube.connection.connection import ApiConnection, WebSocketRefusedError
from extender.kube.connection.transport import TransportError

PORT = (8888).to_bytes(2, "little")
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class FakeWebSocket:
    """A WebSocket with a script of messages; None: the other end closes it."""

    def __init__(self, messages: Sequence[bytes | None]) -> None:
        self.messages = list(messages)
        self.sent: list[bytes] = []
        self.closed = False

    async def receive(self) -> Any:
        if not self.messages:
            await asyncio.Event().wait()
        data = self.messages.pop(0)
        kind = aiohttp.WSMsgType.CLOSED if data is None else aiohttp.WSMsgType.BINARY
        return SimpleNamespace(type=kind, data=data)

    async def send_bytes(self, data: bytes) -> None:
        if self.closed:
            raise aiohttp.ClientConnectionResetError("closed")
        self.sent.append(data)

    async def close(self) -> None:
        self.closed = True


class FakeConnection:
    """Answers one request for a WebSocket."""

    def __init__(self, answer: FakeWebSocket | Exception) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, str], str]] = []

    async def websocket(self, path: str, query: dict[str, str], protocol: str) -> FakeWebSocket:
        self.asked.append((path, query, protocol))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def stream(*messages: bytes | None) -> tuple[PodStream, FakeWebSocket]:
    fake = FakeWebSocket(messages)
    return PodStream(cast("aiohttp.ClientWebSocketResponse", fake)), fake


async def test_the_number_of_the_port_is_no_data_and_data_is_read_in_any_pieces() -> None:
    pod, _ = stream(b"\x00" + PORT, b"\x01" + PORT, b"\x00abc", b"\x00", b"\x01", b"\x00de", None)
    assert [await pod.read(2) for _ in range(4)] == [b"ab", b"c", b"de", b""]


async def test_an_error_of_the_other_end_is_told() -> None:
    pod, _ = stream(b"\x00" + PORT, b"\x01" + PORT, b"\x01connection refused\n")
    with pytest.raises(PortForwardError, match=r"^connection refused$"):
        await pod.read(10)


async def test_each_message_begins_with_the_channel() -> None:
    pod, fake = stream()
    await pod.write(b"x" * 40_000)
    assert [(each[0], len(each)) for each in fake.sent] == [(0, 32_769), (0, 7_233)]
    await pod.close()
    with pytest.raises(PortForwardError, match="the connection to the pod is gone"):
        await pod.write(b"x")


async def test_the_pod_and_the_port_are_in_the_request() -> None:
    fake = FakeConnection(FakeWebSocket([]))
    await forward(cast("ApiConnection", fake), pod_path(ObjectKey("kube-system", "dra-extender-0")), 8888)
    path = "/api/v1/namespaces/kube-system/pods/dra-extender-0/portforward"
    assert fake.asked == [(path, {"ports": "8888"}, "v4.channel.k8s.io")]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (WebSocketRefusedError(403), "the API server refuses a port-forward (HTTP 403): the user may not"),
        (WebSocketRefusedError(404), "the API server refuses a port-forward (HTTP 404): the pod is gone"),
        (WebSocketRefusedError(418), "the API server refuses a port-forward (HTTP 418)"),
        (TransportError("cut"), "no port-forward: cut"),
    ],
)
async def test_why_there_is_no_connection(error: Exception, text: str) -> None:
    with pytest.raises(PortForwardError) as found:
        await forward(cast("ApiConnection", FakeConnection(error)), "/pod", 8888)
    assert str(found.value) == text


async def test_http_goes_through_the_connection() -> None:
    opened: list[FakeWebSocket] = []

    async def dial() -> PodStream:
        pod, fake = stream(b"\x00" + PORT, b"\x00" + ANSWER[:10], b"\x00" + ANSWER[10:])
        opened.append(fake)
        return pod

    async with httpx.AsyncClient(transport=Tunnel(dial), base_url="http://127.0.0.1:8888") as http:
        assert (await http.get("/pods", params={"state": "pending"})).json() == {}
    (fake,) = opened
    assert b"".join(each[1:] for each in fake.sent).startswith(b"GET /pods?state=pending HTTP/1.1\r\n")
    assert fake.closed


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([b"\x00" + PORT, b"\x01" + PORT, b"\x01nobody listens"], "nobody listens"),
        ([b"\x00" + PORT, None], "Server disconnected without sending a response."),
    ],
)
async def test_errors_of_the_connection_are_errors_of_http(messages: list[bytes | None], text: str) -> None:
    async def dial() -> PodStream:
        return stream(*messages)[0]

    async with httpx.AsyncClient(transport=Tunnel(dial), base_url="http://127.0.0.1") as http:
        with pytest.raises(httpx.TransportError) as found:
            await http.get("/")
    assert str(found.value) == text


async def test_an_answer_that_does_not_come_ends_with_the_timeout() -> None:
    async def dial() -> PodStream:
        return stream()[0]

    async with httpx.AsyncClient(transport=Tunnel(dial), base_url="http://127.0.0.1", timeout=0.01) as http:
        with pytest.raises(httpx.TransportError, match="no answer within"):
            await http.get("/")
