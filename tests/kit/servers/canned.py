"""An HTTP server with answers that are given beforehand, and a kubeconfig that names it."""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from extender.kube.connection.connection import ApiConnection, open_connection
from extender.kube.connection.credentials import Origin
from tests.kit import service


@dataclass(slots=True)
class Seen:
    """A request as it arrived; header names in lower case."""

    start: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Server:
    """An HTTP server that gives its answers in their order, the last one for ever; None: it cuts the connection."""

    answers: deque[bytes | None]
    seen: list[Seen] = field(default_factory=list)
    url: str = ""
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def connections(self) -> int:
        """How many there have been."""
        return len(self._writers)

    def end(self) -> None:
        """Send no more on any connection."""
        for writer in self._writers:
            writer.write_eof()

    def cut(self) -> None:
        """Cut all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                self.seen.append(await read_request(reader))
                answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
                if answer is None:
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> Seen:
    start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return Seen(start, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def answer(status: int, body: bytes = b"{}", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Something", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


OK = answer(200)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def serving(*answers: bytes | None, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    found = Server(deque(answers))
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=tls)
    found.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield found


def kubeconfig(folder: Path, url: str, user: Mapping[str, object]) -> Origin:
    return Origin(str(service.kubeconfig(folder, url, user)))


@asynccontextmanager
async def connected(
    folder: Path, *answers: bytes | None, user: Mapping[str, object] | None = None
) -> AsyncIterator[tuple[Server, ApiConnection]]:
    async with serving(*answers) as server:
        origin = kubeconfig(folder, server.url, user or {"token": "secret"})
        async with open_connection(origin) as connection:
            yield server, connection


HTTPS = "server: 'https://127.0.0.1'"


def config_text(cluster: str, user: str = "token: t") -> str:
    return (
        f"current-context: x\nclusters: [{{name: c, cluster: {{{cluster}}}}}]\n"
        f"users: [{{name: u, user: {{{user}}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
    )
