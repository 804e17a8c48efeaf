"""Connections that are kept: which requests share one, and what becomes of those that get no whole answer."""

import asyncio
import gc
import ssl
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from extender.kube.connection.pool import Address, ConnectionPool
from extender.kube.connection.transport import HttpRequest, LongAnswerError, NotSentError, TransportError
from tests.kit.certificates import Authority, trusting
from tests.kit.servers.canned import CHUNKED, OK, Server, answer, read_request, serving

GET = HttpRequest("GET", "/x")


def pool_at(address: Address, *, most: int = 200, idle_seconds: float = 60.0) -> ConnectionPool:
    return ConnectionPool(address, b"", most=most, idle_seconds=idle_seconds)


@asynccontextmanager
async def pool_of(*answers: bytes | None, idle_seconds: float = 60.0) -> AsyncIterator[tuple[Server, ConnectionPool]]:
    async with serving(*answers) as server:
        pool = pool_at(Address.of(server.url, None), idle_seconds=idle_seconds)
        yield server, pool
        await pool.close()


@dataclass(slots=True)
class Slow:
    """A server that answers when it is told to, and counts its connections."""

    connections: int = 0
    asked: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                await read_request(reader)
                self.asked.release()
                await self.go.wait()
                writer.write(OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def slow(most: int) -> AsyncIterator[tuple[Slow, ConnectionPool]]:
    found = Slow()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        pool = pool_at(Address.of(f"http://127.0.0.1:{port}", None), most=most)
        yield found, pool
        await pool.close()


async def test_requests_one_after_the_other_share_a_connection() -> None:
    async with pool_of(OK) as (server, pool):
        for _ in range(3):
            assert (await pool.call(GET, {})).body == b"{}"
        assert len(server.seen) == 3
        assert server.connections == 1


async def test_requests_at_the_same_time_have_a_connection_each_up_to_the_limit() -> None:
    async with slow(most=2) as (server, pool):
        calls = [asyncio.create_task(pool.call(GET, {})) for _ in range(5)]
        for _ in range(2):
            await server.asked.acquire()
        assert server.connections == 2
        server.go.set()
        assert {(await call).status for call in calls} == {200}
        assert server.connections == 2


async def test_who_gives_up_leaves_the_turn_to_the_next() -> None:
    async with slow(most=1) as (server, pool):
        first, second, third = (asyncio.create_task(pool.call(GET, {})) for _ in range(3))
        await server.asked.acquire()
        second.cancel()
        first.cancel()  # its answer may still come: nobody else may take it for theirs
        await asyncio.wait([first, second])
        server.go.set()
        assert (await third).status == 200
        assert server.connections == 2


async def test_a_server_that_closes_the_connection_gets_another_one() -> None:
    async with pool_of(answer(200, Connection="close"), OK) as (server, pool):
        for _ in range(2):
            assert (await pool.call(GET, {})).status == 200
        assert server.connections == 2


async def test_a_connection_that_the_server_has_cut_meanwhile_is_not_used() -> None:
    async with pool_of(OK) as (server, pool):
        async with pool.stream(GET, {}) as line:
            assert [chunk async for chunk in line.chunks()] == [b"{}"]
        server.cut()
        await line.lost
        assert (await pool.call(HttpRequest("PUT", "/x", body=b"{}"), {})).status == 200


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (CHUNKED + b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(200, b"after"), b"after"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
async def test_bodies_of_all_forms_are_read(sent: bytes, body: bytes) -> None:
    async with pool_of(sent) as (server, pool):
        for _ in range(2):
            assert (await pool.call(GET, {})).body == body
        assert server.connections == 1


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with pool_of(b"HTTP/1.1 200 OK\r\n\r\nall of it") as (server, pool), pool.stream(GET, {}) as line:
        server.end()
        assert b"".join([chunk async for chunk in line.chunks()]) == b"all of it"


@pytest.mark.parametrize(
    ("sent", "error", "text"),
    [
        (None, TransportError, "cut"),
        (b"no HTTP at all\r\n\r\n", TransportError, "is not HTTP/1.1"),
        (answer(200, b"x" * 2000), LongAnswerError, "more than 1000 bytes"),
    ],
)
async def test_what_is_no_whole_answer_is_an_error(sent: bytes | None, error: type[Exception], text: str) -> None:
    async with pool_of(sent, OK) as (_, pool):
        with pytest.raises(error, match=text):
            await pool.call(HttpRequest("GET", "/x", most_bytes=1000), {})
        assert (await pool.call(GET, {})).status == 200


@pytest.mark.parametrize("length", [b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"])
async def test_an_answer_that_is_cut_within_its_body_is_an_error_and_holds_up_nobody(length: bytes) -> None:
    """The first half has come by then."""
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n" + length)
        await writer.drain()
        await asked.wait()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        pool = pool_at(Address.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", None))
        call = asyncio.create_task(pool.call(GET, {}))
        asyncio.get_running_loop().call_later(0.05, asked.set)
        with pytest.raises(TransportError, match="cut"):
            await call
        await pool.close()


async def test_nothing_is_left_of_a_connection_that_was_cut() -> None:
    """Without garbage collection: objects that have lived for long are examined once an hour."""
    gc.disable()
    try:
        async with pool_of(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n") as (server, pool):
            async with pool.stream(GET, {}) as line:
                known = weakref.ref(line)
                server.cut()
                with pytest.raises(TransportError, match="cut"):
                    assert [chunk async for chunk in line.chunks()] == []
            del line
            assert known() is None
    finally:
        gc.enable()


async def test_bytes_that_nobody_has_asked_for_end_the_connection() -> None:
    """Else the next request would take them for its answer."""
    async with pool_of(OK + answer(200, b"not yours"), OK) as (_, pool):
        await pool.call(GET, {})
        assert (await pool.call(GET, {})).body == b"{}"


async def test_a_header_has_no_line_breaks() -> None:
    async with pool_of(OK) as (server, pool):
        await pool.call(HttpRequest("GET", "/x"), {"Authorization": "Bearer a\r\nEvil: yes"})
        assert server.seen[0].headers["authorization"] == "Bearer a  Evil: yes"


async def test_tls_is_verified_and_the_path_of_the_address_stands_before_each_path(tmp_path: Path) -> None:
    authority, other = Authority(), Authority("other")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.server().write(tmp_path))
    async with serving(OK, tls=context) as server:
        pool = pool_at(Address.of(f"{server.url}/cluster/", trusting(authority)))
        assert (await pool.call(GET, {})).status == 200
        assert server.seen[0].start == "GET /cluster/x HTTP/1.1"
        await pool.close()
        for address in (
            Address.of(server.url, trusting(other)),
            Address.of(server.url, trusting(authority), "elsewhere.example.com"),
        ):
            with pytest.raises(NotSentError, match="no connection to 127"):
                await pool_at(address).call(GET, {})


async def test_a_slow_reader_of_a_stream_is_not_sent_more_than_it_takes() -> None:
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    async with pool_of(CHUNKED + 400 * piece + b"0\r\n\r\n") as (_, pool), pool.stream(GET, {}) as line:
        size, longest = 0, 0
        async for chunk in line.chunks():
            size, longest = size + len(chunk), max(longest, len(chunk))
            for _ in range(5):
                await asyncio.sleep(0)
        assert size == 400 * 0x10000
        assert longest < 2_000_000


async def test_a_connection_that_is_idle_for_long_is_closed() -> None:
    async with pool_of(OK, idle_seconds=0.01) as (server, pool):
        async with pool.stream(GET, {}) as line:
            assert [chunk async for chunk in line.chunks()] == [b"{}"]
        async with asyncio.timeout(10):
            await line.lost
        await pool.call(GET, {})
        assert server.connections == 2
