"""What is measured on the wire: the service in a process of its own, over an API server in another."""

import asyncio
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import orjson

from tests.kit.certificates import Authority
from tests.kit.objects.worlds import Machine, RawObject, Wish, pending_claim, waiting_pod, world
from tests.kit.process import free_port, printing, running
from tests.kit.service import extender

_START_SECONDS: Final = 120.0


class CallError(Exception):
    """An answer that is no success."""


class Connection(asyncio.Protocol):
    """A connection that is kept, for one request at a time. What it does for one is next to nothing."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._wanted = 0
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def to(cls, port: int, tls: ssl.SSLContext | None = None) -> Self:
        """Connect to a port of this machine."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port, ssl=tls)
        return connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one, for TCP
        """The connection is there."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Some more of the answer is there."""
        self._received += data
        if not self._wanted:
            head, end, _ = self._received.partition(b"\r\n\r\n")
            if not end:
                return
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self._wanted = len(head) + len(end) + int(length)
        if len(self._received) >= self._wanted:
            answer, self._received, self._wanted = bytes(self._received), bytearray(), 0
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """There will be no answer."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError())

    def close(self) -> None:
        """Give the connection up."""
        if self._transport is not None:
            self._transport.close()

    async def send(self, request: bytes) -> bytes:
        """Send a request in one go, and wait for all of the answer.

        Returns:
            Its body.

        Raises:
            CallError: it is no success.
            ConnectionError: there is none.
        """
        if self._transport is None:
            raise ConnectionError("not connected")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        answer = await self._answer
        head, _, body = answer.partition(b"\r\n\r\n")
        if head.split(b" ", 2)[1][:1] != b"2":
            raise CallError(f"{head.splitlines()[0].decode()}: {body.decode()}")
        return body


def request(method: str, path: str, body: object = None) -> bytes:
    """A request as Go's client writes it."""
    data = b"" if body is None else orjson.dumps(body)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\n"
        f"Content-Length: {len(data)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + data


@dataclass(frozen=True, slots=True)
class Process:
    """A process that answers on a port."""

    pid: int
    port: int

    def computed(self) -> float:
        """Seconds that all of its threads have computed so far (Linux)."""
        clock = ~self.pid << 3 | 2  # clock_getcpuclockid(3), as the C library works it out
        return time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class Stage:
    """A service over an API server, and what is there."""

    service: Process
    api: Process
    objects: Mapping[str, Sequence[RawObject]]

    @property
    def names(self) -> list[str]:
        """Of the nodes."""
        return [each["metadata"]["name"] for each in self.objects["nodes"]]


def verb(name: str, args: Mapping[str, Any]) -> bytes:
    """A request to the extender."""
    return request("POST", f"/{name}", args)


@asynccontextmanager
async def stage(
    nodes: int,
    pods: int,
    more: Mapping[str, Sequence[RawObject]] | None = None,
    *,
    in_use: float = 0.4,
    authority: Authority | None = None,
) -> AsyncIterator[Stage]:
    """Nodes of 8 devices, 40 % of them in use, and pods that wait, each with a claim for one device.

    Args:
        nodes: how many.
        pods: how many.
        more: other objects that are there, by any name.
        in_use: the share of the devices that other claims have.
        authority: of the API server's certificate, for HTTPS; None: HTTP.
    """
    objects = world(nodes, Machine(), Wish(), in_use=in_use)
    objects["pending"] = [pending_claim(Wish(), f"claim-{number}") for number in range(pods)]
    objects["pods"] = [waiting_pod(f"pod-{number}", f"claim-{number}") for number in range(pods)]
    objects.update({name: list(each) for name, each in (more or {}).items()})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "objects.jsonl"
        file.write_bytes(b"\n".join(orjson.dumps(each) for kind in objects.values() for each in kind))
        tls = ["--tls", *map(str, authority.server().write(folder))] if authority else []
        async with printing([sys.executable, "-m", "tests.kit.servers.writable", str(file), *tls]) as (pid, output):
            api = Process(pid, int(await output.readline()))
            port = free_port()
            service = extender(folder, api.port, port, authority.pem if authority else b"")
            async with running(service, within=_START_SECONDS):
                yield Stage(Process(service.pid, port), api, objects)


def asked_names(names: Sequence[str], shuffle: Callable[[list[Sequence[str]]], None]) -> list[str]:
    """Names in an order as kube-scheduler asks: its workers check nodes in pieces, and finish them as it happens."""
    size = max(1, int(len(names) ** 0.5))
    pieces = [names[start : start + size] for start in range(0, len(names), size)]
    shuffle(pieces)
    return [name for piece in pieces for name in piece]
