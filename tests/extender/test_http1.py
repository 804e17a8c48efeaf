"""Calls over lines of our own, to real sockets: which connection they take, and what counts as an answer."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress

import pytest

from extender.cluster import http1
from extender.cluster.http1 import Lines
from extender.cluster.transport import NotSentError, Reply, Request, TransportError
from tests.extender.cannedserver import CHUNKED, OK, Server, answer, listening, read_request, serving

READ = Request("GET", "/x")
EVER = 60.0


def lines_to(url: str, *, limit: int = 10, idle: float = EVER, tls: ssl.SSLContext | None = None) -> Lines:
    server = http1.Server.at(url, tls)
    return Lines(server, {"Accept": "application/json"}, limit=limit, connect_seconds=0.2, idle_seconds=idle)


@asynccontextmanager
async def calling(*answers: bytes | None, limit: int = 10, idle: float = EVER) -> AsyncIterator[tuple[Server, Lines]]:
    async with serving(*answers) as server:
        with closing(lines_to(server.url, limit=limit, idle=idle)) as lines:
            yield server, lines


async def read(lines: Lines) -> Reply:
    return await lines.call(READ, {})


# --- connections --------------------------------------------------------------------------------------------


async def test_one_call_after_the_other_takes_the_same_connection() -> None:
    async with calling(OK) as (server, lines):
        for _ in range(3):
            await read(lines)
        assert (len(server.seen), server.connections) == (3, 1)


@pytest.mark.parametrize(("limit", "connections"), [(10, 5), (2, 2)])
async def test_calls_at_once_take_one_each_up_to_the_limit(limit: int, connections: int) -> None:
    async with calling(OK, limit=limit) as (server, lines):
        replies = await asyncio.gather(*(read(lines) for _ in range(5)))
        assert ([reply.status for reply in replies], server.connections) == ([200] * 5, connections)


@pytest.mark.parametrize(
    "first",
    [answer(200, Connection="close"), OK + OK],
    ids=["the server closes it", "an answer too many"],
)
async def test_a_connection_of_no_more_use_is_not_used_again(first: bytes) -> None:
    async with calling(first, answer(201)) as (server, lines):
        assert [(await read(lines)).status for _ in range(2)] == [200, 201]
        assert server.connections == 2


async def test_nor_one_that_was_idle_for_too_long() -> None:
    async with calling(OK, idle=-1) as (server, lines):
        for _ in range(2):
            await read(lines)
        assert server.connections == 2


async def test_nor_one_that_was_cut_meanwhile() -> None:
    async with calling(OK) as (server, lines):
        await read(lines)
        server.cut()
        async with asyncio.timeout(5):
            while server.connections < 2:
                # That it was cut may come to be known only while there is a call.
                with suppress(TransportError):
                    await read(lines)
        assert ((await read(lines)).status, server.connections) == (200, 2)


async def test_a_call_that_is_given_up_leaves_its_answer_to_nobody() -> None:
    async with late() as (lines, arrived, release):
        call = asyncio.create_task(read(lines))
        await arrived.wait()
        call.cancel()
        release.set()
        assert (await read(lines)).body == b"/x of connection 2"
        with pytest.raises(asyncio.CancelledError):
            await call


@asynccontextmanager
async def late() -> AsyncIterator[tuple[Lines, asyncio.Event, asyncio.Event]]:
    """A server that answers once it is released, with the path and the number of the connection."""
    arrived, release, count = asyncio.Event(), asyncio.Event(), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        number = count
        seen = await read_request(reader)
        arrived.set()
        await release.wait()
        writer.write(answer(200, f"{seen.start.split()[1]} of connection {number}".encode()))

    async with listening(serve) as url:
        with closing(lines_to(url)) as lines:
            yield lines, arrived, release


# --- answers ------------------------------------------------------------------------------------------------


BODY = b'{"a":1}'


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([answer(200, BODY)], Reply(200, BODY)),
        ([answer(429, BODY, Retry_After="7")], Reply(429, BODY, 7.0)),
        ([answer(503, BODY, Retry_After="Fri, 31 Dec 1999 23:59:59 GMT")], Reply(503, BODY)),
        ([bytes([byte]) for byte in answer(200, BODY)], Reply(200, BODY)),
        ([CHUNKED, b'3\r\n{"a\r\n', b'4\r\n":1}\r\n0\r\n\r\n'], Reply(200, BODY)),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", answer(201, BODY)], Reply(201, BODY)),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], Reply(204, b"")),
        ([b"HTTP/1.0 403 Forbidden\r\n\r\n", BODY, b""], Reply(403, BODY)),
    ],
    ids=[
        "in one piece",
        "busy, and until when",
        "a date is not understood",
        "byte by byte",
        "in chunks",
        "after a word in between",
        "without a body",
        "of no length, until the end",
    ],
)
async def test_an_answer_is_read_however_it_comes(pieces: Sequence[bytes], expected: Reply) -> None:
    assert await answered(pieces) == expected


@pytest.mark.parametrize(
    "pieces",
    [
        [b""],
        [answer(200, BODY)[:-1], b""],
        [answer(200, BODY)[:20], b""],
        [CHUNKED, b'3\r\n{"a\r\n', b""],
        [b"HTTP/1.1 100 Continue\r\n\r\n", b""],
        [b"SSH-2.0-OpenSSH_9.6\r\n"],
        [CHUNKED, b"no number\r\n"],
        [b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"],
    ],
    ids=["nothing", "cut", "cut in its head", "cut between chunks", "only a word", "no HTTP", "no chunk", "another"],
)
async def test_anything_else_is_none(pieces: Sequence[bytes]) -> None:
    with pytest.raises(TransportError) as error:
        await answered(pieces)
    assert not isinstance(error.value, NotSentError)


async def answered(pieces: Sequence[bytes]) -> Reply:
    """What becomes of an answer that comes in these pieces; an empty one ends the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if pieces[-1]:
            await reader.read()

    async with listening(serve) as url:
        with closing(lines_to(url)) as lines:
            async with asyncio.timeout(5):
                return await read(lines)


# --- requests -----------------------------------------------------------------------------------------------


async def test_a_request_has_all_headers_and_its_length() -> None:
    async with calling(OK) as (server, lines):
        await lines.call(Request("PUT", "/x", {"a": "b c"}, b"{}", headers={"Accept": "text/plain"}), {"A": "b"})
        await read(lines)
    put, get = server.seen
    authority = server.url.removeprefix("http://")
    assert (put.start, put.body) == ("PUT /x?a=b+c HTTP/1.1", b"{}")
    assert put.headers == {
        "host": authority,
        "accept": "text/plain",
        "a": "b",
        "content-type": "application/json",
        "content-length": "2",
    }
    assert (get.start, get.headers) == ("GET /x HTTP/1.1", {"host": authority, "accept": "application/json"})


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/x\r\nA: b", {}), ("/x", {"Authorization": "Bearer t\n"}), ("/x", {"Authorization": "t\r\rA: b"})],
)
async def test_a_line_break_where_none_may_be_is_not_sent(path: str, headers: dict[str, str]) -> None:
    async with calling(OK) as (server, lines):
        with pytest.raises(NotSentError, match="line break"):
            await lines.call(Request("GET", path), headers)
        assert (server.seen, server.connections) == ([], 0)


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "prefix"),
    [
        ("https://api.example.com", "api.example.com", 443, "api.example.com", ""),
        ("http://10.0.0.1:8080", "10.0.0.1", 8080, "10.0.0.1:8080", ""),
        ("https://[fd00::1]:6443", "fd00::1", 6443, "[fd00::1]:6443", ""),
        ("https://example.com/k8s/clusters/c-1/", "example.com", 443, "example.com", "/k8s/clusters/c-1"),
        ("https://me:secret@example.com", "example.com", 443, "example.com", ""),
    ],
)
def test_where_a_url_leads(url: str, host: str, port: int, authority: str, prefix: str) -> None:
    assert http1.Server.at(url, None) == http1.Server(host, port, authority, prefix)


async def test_paths_are_below_that_of_the_server() -> None:
    async with serving(OK) as server:
        with closing(lines_to(f"{server.url}/clusters/c")) as lines:
            await read(lines)
    assert server.seen[0].start == "GET /clusters/c/x HTTP/1.1"


# --- no connection ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid:1", f"{'x' * 64}.example.com:1"])
async def test_where_nobody_is_nothing_was_sent(host: str) -> None:
    with pytest.raises(NotSentError, match=host), closing(lines_to(f"http://{host}")) as lines:
        await read(lines)


async def test_nor_to_who_does_not_speak_tls() -> None:
    async with serving(OK) as server:
        with pytest.raises(NotSentError), closing(lines_to(server.url, tls=ssl.create_default_context())) as lines:
            await read(lines)
    assert server.seen == []
