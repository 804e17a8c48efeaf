"""HTTPS to other replicas: who is trusted, what is sent, and what counts as no answer."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from extender.autoscaler.sessions import PassedCall, PeerConnection, PeerReply, PeerUnreachableError
from extender.tools.intake import Budget
from tests.kit.certificates import Authority

NAME = "dra-extender.kube-system.svc"
CALL = PassedCall("filter", "secret@one", b'{"Pod":{}}')


@dataclass
class Peer:
    """A replica's listener, which answers each request in the same way.

    Attributes:
        heads: what came before the bodies.
        answer: status line and body; empty: the connection ends without an answer.
    """

    port: int = 0
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    answer: tuple[str, bytes] | None = ("200 OK", b"{}\n")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].split("\r\n")[0])
        self.heads.append(head)
        self.bodies.append(await reader.readexactly(length))
        if self.answer is not None:
            status, body = self.answer
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()


@asynccontextmanager
async def peer(authority: Authority, folder: Path, *names: str) -> AsyncIterator[Peer]:
    """A listener with a certificate for these names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server(*names).write(folder))
    found = Peer()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=context)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found


def connection(folder: Path, port: int, authority: Authority, budget: Budget | None = None) -> PeerConnection:
    ca, token_file = folder / "ca.crt", folder / "token"
    ca.write_bytes(authority.pem)
    token_file.write_text("secret-token\n")
    return PeerConnection(NAME, port, ca, token_file, deadline_seconds=10.0, budget=budget or Budget())


async def test_a_call_goes_to_an_address_with_the_name_of_the_service_and_our_token(tmp_path: Path) -> None:
    authority = Authority()
    async with peer(authority, tmp_path, NAME) as there:
        way = connection(tmp_path, there.port, authority)
        assert await way.send("127.0.0.1", CALL) == PeerReply(200, b"{}\n")
        way.token.write_text("another")
        await way.send("127.0.0.1", CALL)
    first, second = there.heads
    assert first.startswith("post /autoscaler/filter http/1.1\r\n")
    for header in ("authorization: bearer secret-token", "session: secret@one", "dra-extender-forwarded: 1"):
        assert f"\r\n{header}\r\n" in first
    assert "authorization: bearer another" in second
    assert there.bodies == [CALL.body, CALL.body]


async def test_a_status_is_an_answer(tmp_path: Path) -> None:
    authority = Authority()
    async with peer(authority, tmp_path, NAME) as there:
        there.answer = ("403 Forbidden", b"no")
        assert await connection(tmp_path, there.port, authority).send("127.0.0.1", CALL) == PeerReply(403, b"no")


async def test_who_is_not_a_replica_gets_no_token(tmp_path: Path) -> None:
    authority = Authority()
    async with peer(authority, tmp_path, "127.0.0.1", "other.kube-system.svc") as there:
        with pytest.raises(PeerUnreachableError, match="certificate verify failed: Hostname mismatch"):
            await connection(tmp_path, there.port, authority).send("127.0.0.1", CALL)
        with pytest.raises(PeerUnreachableError, match="certificate verify failed"):
            await connection(tmp_path, there.port, Authority("another")).send("127.0.0.1", CALL)
    assert there.heads == []


async def test_new_authorities_are_trusted_at_the_next_call(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    async with peer(new, tmp_path, NAME) as there:
        way = connection(tmp_path, there.port, old)
        with pytest.raises(PeerUnreachableError):
            await way.send("127.0.0.1", CALL)
        way.ca.write_bytes(new.pem)
        assert (await way.send("127.0.0.1", CALL)).status == 200


async def test_tls_is_made_once_until_the_authorities_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    create = ssl.create_default_context

    def counted(*, cadata: str) -> ssl.SSLContext:
        made.append(cadata)
        return create(cadata=cadata)

    monkeypatch.setattr(ssl, "create_default_context", counted)
    old, new = Authority("old"), Authority("new")
    async with peer(old, tmp_path, NAME) as there:
        way = connection(tmp_path, there.port, old)
        for _ in range(3):
            await way.send("127.0.0.1", CALL)
        way.ca.write_bytes(new.pem + old.pem)
        for _ in range(2):
            await way.send("127.0.0.1", CALL)
    assert made == [old.pem.decode(), (new.pem + old.pem).decode()]


async def test_a_connection_without_an_answer_is_said(tmp_path: Path) -> None:
    authority = Authority()
    async with peer(authority, tmp_path, NAME) as there:
        there.answer = None
        with pytest.raises(PeerUnreachableError, match="Server disconnected without sending a response"):
            await connection(tmp_path, there.port, authority).send("127.0.0.1", CALL)
    with pytest.raises(PeerUnreachableError, match="All connection attempts failed"):
        await connection(tmp_path, there.port, authority).send("127.0.0.1", CALL)


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("ca.crt", None, "ca.crt: cannot be read: No such file or directory"),
        ("ca.crt", "nothing", "ca.crt: there is no certificate in PEM"),
        ("token", None, "token: cannot be read: No such file or directory"),
    ],
)
async def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, file: str, content: str | None, problem: str
) -> None:
    way = connection(tmp_path, 1, Authority())
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(PeerUnreachableError, match=problem):
        await way.send("127.0.0.1", CALL)


async def test_an_answer_that_is_too_long_for_the_memory_is_not_read_to_its_end(tmp_path: Path) -> None:
    authority, budget = Authority(), Budget(8 * 1024 * 1024)
    async with peer(authority, tmp_path, NAME) as there:
        there.answer = ("200 OK", b"x" * 20_000_000)
        way = connection(tmp_path, there.port, authority, budget)
        with pytest.raises(PeerUnreachableError, match="too long for the memory that is left"):
            await way.send("127.0.0.1", CALL)
        there.answer = ("200 OK", b"x" * 500_000)
        assert len((await way.send("127.0.0.1", CALL)).body) == 500_000
    assert not any(budget.taken.values())
