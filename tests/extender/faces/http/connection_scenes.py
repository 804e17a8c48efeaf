"""A server of connections over loopback, with a clock of its own, and clients that send bytes."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import uvloop

from extender.config.settings import Settings
from extender.faces.http.connections import VERBS, BoundedServer, ListenerLimits, sweep
from extender.faces.serving.listeners import server_config
from extender.kube.certificates import Certificates

GET = b"GET / HTTP/1.1\r\nhost: x\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


@dataclass
class Application:
    """Answers with the method and the length of the body, once it may.

    Attributes:
        seen: headers of each request.
        reply: what to answer instead.
    """

    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[dict[bytes, bytes]] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    disconnected: int = 0
    reply: bytes = b""

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[..., Any]) -> None:
        self.seen.append(dict(scope["headers"]))
        self.begun.set()
        length, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnected += 1
                return
            length, more = length + len(message["body"]), message["more_body"]
        await self.may_answer.wait()
        body = self.reply or f"{scope['method']} {length}".encode()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@dataclass
class Client:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """As far as the other side takes it."""
        with suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        """Status and body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        return int(head.split()[1]), await self.reader.readexactly(length)

    @property
    def is_cut(self) -> bool:
        """Whether the other side has ended the connection, and everything that it sent was read."""
        return self.reader.at_eof() or self.reader.exception() is not None

    async def rest(self) -> bytes:
        """What comes until the connection ends, also by a reset."""
        with suppress(ConnectionError):
            return await self.reader.read()
        return b""


class Server(BoundedServer):
    """One that leaves signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Scene:
    """A server on loopback."""

    app: Application
    server: BoundedServer
    port: int
    limits: ListenerLimits
    clients: list[Client] = field(default_factory=list)

    async def client(self, **options: Any) -> Client:
        """A new connection."""
        self.clients.append(Client(*await asyncio.open_connection("127.0.0.1", self.port, **options)))
        return self.clients[-1]

    @property
    def connections(self) -> list[Any]:
        """Those that the server has."""
        return list(self.server.server_state.connections)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Give other tasks turns on the event loop until a condition holds."""
        # A loopback socket sets no event here. Each turn lets the loop look at the sockets; `scene` has the deadline.
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0)

    def pass_seconds(self, seconds: float) -> None:
        """What the server does once a second, so much later."""
        sweep(self.connections, time.monotonic() + seconds, self.limits.unsent)


@asynccontextmanager
async def scene(
    limits: ListenerLimits = VERBS, *, waits: bool = False, certificates: Certificates | None = None
) -> AsyncIterator[Scene]:
    """A server, with TLS if it has certificates."""
    app = Application()
    if not waits:
        app.may_answer.set()
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(server_config(app, Settings(), limits, certificates))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    found = Scene(app, server, listener.getsockname()[1], limits)
    try:
        async with asyncio.timeout(20):
            await found.until(lambda: server.started)
            try:
                yield found
            finally:
                for each in found.clients:
                    each.writer.transport.abort()
    finally:
        app.may_answer.set()
        for connection in found.connections:
            connection.abort()
        server.should_exit = True
        await serving


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test on the event loop that the service runs on: asyncio's own treats sockets differently."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        uvloop.run(test(*args, **kwargs))

    return run
