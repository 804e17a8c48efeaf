"""Limits of connections, on real sockets and on the event loop of the service: what a client can make us keep or do.

Time passes in `sweep`, which is told what time it is.
"""

import asyncio
import logging
import resource
import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn.server import ServerState

from extender.cluster.objects.pods import MOST_MEMBERS
from extender.config.settings import Settings
from extender.config.sources import load
from extender.faces.http import connections
from extender.faces.http.connections import (
    VERBS,
    BoundedProtocol,
    ListenerLimits,
    Pacer,
    verbs_within,
)
from extender.faces.serving.listeners import RECEIVED_BYTES, allowed_descriptors, open_ports, server_config
from tests.extender.faces.http.connection_scenes import CHUNKED, GET, POST, on_uvloop, scene
from tests.kit import virtualtime
from tests.kit.virtualtime import in_virtual_time

# --- what comes before there is a request --------------------------------------------------------------------

LONG = b"x" * connections.HEAD_BYTES
TOO_LARGE = {
    "a long path": b"GET /" + LONG + b" HTTP/1.1\r\n\r\n",
    "a long query": b"GET /?" + b"node=a&" * (connections.HEAD_BYTES // 7) + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    "a long header": GET + b"a: " + LONG + b"\r\n\r\n",
    "long headers": GET + (b"a: " + LONG[:1000] + b"\r\n") * 40 + b"\r\n",
    "many headers": GET + b"a:b\r\n" * connections.HEADERS + b"\r\n",
}


@pytest.mark.parametrize("request_", TOO_LARGE.values(), ids=TOO_LARGE)
@on_uvloop
async def test_a_head_over_the_limits_is_refused(request_: bytes) -> None:
    async with scene() as on:
        client = await on.client()
        await client.send(request_)
        status, body = await client.answer()
        assert status == 431
        assert b"the request is over the limit of 32768 bytes, 128 headers" in body
        assert await client.rest() == b""
        assert on.app.seen == []


@on_uvloop
async def test_a_head_below_the_limits_is_answered() -> None:
    async with scene() as on:
        client = await on.client()
        await client.send(GET + b"a: " + LONG[:-100] + b"\r\n" + b"a:b\r\n" * 3 + b"\r\n")
        assert await client.answer() == (200, b"GET 0")


ENDLESS = {
    "path": b"GET /",
    "header": GET + b"a: ",
    "name of a header": GET,
    "headers": GET,
    "extension of a chunk": CHUNKED + b"1;",
    "trailer": CHUNKED + b"0\r\na: ",
    "trailers": CHUNKED + b"0\r\n",
}
PIECES = {"headers": b"a:b\r\n" * 1000, "trailers": b"a:b\r\n" * 1000}


@pytest.mark.parametrize(("name", "begin"), ENDLESS.items(), ids=ENDLESS)
@on_uvloop
async def test_what_does_not_end_is_cut(name: str, begin: bytes) -> None:
    """All buffers on the way together hold less than 50 MB."""
    async with scene() as on:
        client = await on.client()
        piece = PIECES.get(name, b"x" * 6000)
        await client.send(begin)
        for _ in range(50_000_000 // len(piece)):
            await client.send(piece)
            await asyncio.sleep(0)
            if client.is_cut:
                break
        assert client.is_cut
        await on.until(lambda: not on.connections)


@on_uvloop
async def test_trailers_are_no_headers() -> None:
    async with scene(waits=True) as on:
        client = await on.client()
        await client.send(CHUNKED + b"1\r\nx\r\n0\r\nsession: stolen\r\n\r\n")
        await on.app.begun.wait()
        on.app.may_answer.set()
        assert await client.answer() == (200, b"POST 1")
        assert b"session" not in on.app.seen[0]


@on_uvloop
async def test_requests_in_a_row_are_answered_in_their_order_up_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as on:
        client = await on.client()
        await client.send(b"".join(POST + b"content-length: %d\r\n\r\n" % n + b"x" * n for n in range(10)))
        assert [await client.answer() for _ in range(10)] == [(200, b"POST %d" % n) for n in range(10)]
        await client.send((GET + b"\r\n") * 10_000)
        await client.rest()
        assert len(on.app.seen) <= 10 + 1 + connections.PIPELINED
        await on.until(lambda: not on.connections and not on.server.server_state.tasks)
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


@on_uvloop
async def test_a_body_in_tiny_chunks_is_refused_before_all_of_them_are_read() -> None:
    async with scene() as on:
        client = await on.client()
        await client.send(CHUNKED + b"1\r\nx\r\n" * connections.CHUNKS + b"0\r\n\r\n")
        assert await client.answer() == (200, b"POST %d" % connections.CHUNKS)
        await client.send(CHUNKED + b"1\r\nx\r\n" * 4 * connections.CHUNKS + b"0\r\n\r\n")
        assert await client.answer() == (400, b'{"error":"the body comes in more than 1024 chunks at once"}\n')
        await on.until(lambda: not on.connections)


@pytest.mark.parametrize(
    "request_",
    [b"\x16\x03\x01", b"GET\r\n\r\n", b"CONNECT elsewhere:443 HTTP/1.1\r\n\r\n", POST + b"content-length: x\r\n\r\n"],
)
@on_uvloop
async def test_what_is_not_http_is_refused(request_: bytes) -> None:
    async with scene() as on:
        client = await on.client()
        await client.send(request_)
        assert await client.answer() == (400, b'{"error":"this is not HTTP/1.1"}\n')
        assert await client.rest() == b""


@on_uvloop
async def test_an_answer_that_is_due_is_not_mistaken_for_a_refusal() -> None:
    async with scene(waits=True) as on:
        client = await on.client()
        await client.send(GET + b"\r\n")
        await on.app.begun.wait()
        await client.send(b"nonsense\r\n\r\n")
        assert await client.rest() == b""


@on_uvloop
async def test_a_wish_for_another_protocol_is_not_heeded() -> None:
    async with scene() as on:
        client = await on.client()
        await client.send(GET + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n")
        assert await client.answer() == (200, b"GET 0")


# --- time ----------------------------------------------------------------------------------------------------


@on_uvloop
async def test_an_idle_connection_lives_longer_than_kube_scheduler_keeps_its_own() -> None:
    async with scene() as on:
        fresh, used = await on.client(), await on.client()
        await used.send(GET + b"\r\n")
        await used.answer()
        await on.until(lambda: len(on.connections) == 2)
        on.pass_seconds(100)
        assert not any(each.transport.is_closing() for each in on.connections)
        on.pass_seconds(121)
        assert (await fresh.rest(), await used.rest()) == (b"", b"")


SLOW = {
    "headers": (GET, connections.HEAD_SECONDS),
    "body": (POST + b"content-length: 2\r\n\r\nx", connections.BODY_SECONDS),
    "chunks": (CHUNKED + b"1\r\nx\r\n", connections.BODY_SECONDS),
}


@pytest.mark.parametrize(("name", "sent", "seconds"), [(name, *each) for name, each in SLOW.items()], ids=SLOW)
@on_uvloop
async def test_a_request_has_to_be_complete_in_time(name: str, sent: bytes, seconds: float) -> None:
    async with scene() as on:
        client = await on.client()
        await client.send(sent)
        await on.until(lambda: any(each._stage is not connections._Stage.NONE for each in on.connections))
        on.pass_seconds(seconds - 1)
        assert not on.connections[0].transport.is_closing()
        on.pass_seconds(seconds + 1)
        status, body = await client.answer()
        assert status == 408
        assert f"took longer than {seconds:g} s".encode() in body
        await on.until(lambda: not on.connections)
        await on.until(lambda: on.app.disconnected == (0 if name == "headers" else 1))


@on_uvloop
async def test_a_request_that_is_being_answered_has_the_time_that_the_application_gives_it() -> None:
    async with scene(waits=True) as on:
        client = await on.client()
        await client.send(GET + b"\r\n")
        await on.app.begun.wait()
        on.pass_seconds(10_000)
        on.app.may_answer.set()
        assert await client.answer() == (200, b"GET 0")


@on_uvloop
async def test_who_does_not_take_the_reply_is_cut_off() -> None:
    async with scene() as on:
        on.app.reply = b"x" * 20_000_000
        client = await on.client(limit=1024)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(GET + b"\r\n")
        await on.until(lambda: bool(on.connections) and on.connections[0].flow.write_paused)
        on.pass_seconds(connections.REPLY_SECONDS - 1)
        assert not on.connections[0].transport.is_closing()
        on.pass_seconds(connections.REPLY_SECONDS + 1)
        await on.until(lambda: not on.connections)


@on_uvloop
async def test_a_connection_that_is_closed_does_not_wait_for_its_reader_for_ever() -> None:
    async with scene() as on:
        on.app.reply = b"x" * 20_000_000
        client = await on.client(limit=1024)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(GET.replace(b"1.1", b"1.0") + b"\r\n")
        await on.until(lambda: bool(on.connections) and on.connections[0].transport.is_closing())
        on.pass_seconds(0)
        assert len(on.connections) == 1
        on.pass_seconds(connections.REPLY_SECONDS + 1)
        await on.until(lambda: not on.connections)


@on_uvloop
async def test_of_many_slow_readers_the_largest_replies_are_given_up() -> None:
    async with scene(replace(VERBS, unsent=30_000_000)) as on:
        clients = [await on.client(limit=1024) for _ in range(3)]
        for number, client in enumerate(clients):
            on.app.reply = b"x" * (20_000_000 + 4_000_000 * number)
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await client.send(GET + b"\r\n")
            await on.until(lambda n=number: sum(each.unsent > 0 for each in on.connections) == n + 1)  # type: ignore[misc]
        on.pass_seconds(0)
        await on.until(lambda: len(on.connections) == 1)
        clients[0].writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len((await clients[0].answer())[1]) == 20_000_000


# --- how many ------------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_new_connection_takes_the_place_of_the_one_that_is_idle_for_longest() -> None:
    async with scene(ListenerLimits(connections=4), waits=True) as on:
        busy = await on.client()
        await busy.send(GET + b"\r\n")
        await on.app.begun.wait()
        others = []
        for _ in range(50):
            others.append(await on.client())
            await on.until(lambda: others[-1].writer.get_extra_info("sockname") in [c.client for c in on.connections])
            assert len(on.connections) <= 4
        assert [await each.rest() for each in others[:-3]] == [b""] * 47
        on.app.may_answer.set()
        assert await busy.answer() == (200, b"GET 0")
        for each in others[-3:]:
            await each.send(GET + b"\r\n")
            assert await each.answer() == (200, b"GET 0")


@on_uvloop
async def test_who_begins_a_request_and_does_not_end_it_keeps_nobody_out() -> None:
    async with scene(ListenerLimits(connections=4)) as on:
        for _ in range(20):
            await (await on.client()).send(POST + b"content-length: 9\r\n\r\n")
        last = await on.client()
        await last.send(GET + b"\r\n")
        assert await last.answer() == (200, b"GET 0")


@on_uvloop
async def test_all_pods_of_the_largest_group_are_bound_at_once() -> None:
    async with scene(waits=True) as on:
        clients = [await on.client() for _ in range(MOST_MEMBERS)]
        for each in clients:
            await each.send(GET + b"\r\n")
        await on.until(lambda: len(on.app.seen) == MOST_MEMBERS)
        on.app.may_answer.set()
        assert {await each.answer() for each in clients} == {(200, b"GET 0")}


@pytest.mark.parametrize(("descriptors", "connections"), [(1 << 20, 1280), (2048, 1280), (1024, 256), (100, 1)])
def test_a_process_that_may_have_few_descriptors_takes_fewer_connections(descriptors: int, connections: int) -> None:
    assert verbs_within(descriptors).connections == connections


def test_a_process_takes_the_descriptors_that_it_needs_if_it_may() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        assert verbs_within(allowed_descriptors()) == VERBS
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= VERBS.connections
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@on_uvloop
async def test_where_all_are_busy_the_new_one_is_closed() -> None:
    async with scene(ListenerLimits(connections=2), waits=True) as on:
        busy = [await on.client() for _ in range(2)]
        for each in busy:
            await each.send(GET + b"\r\n")
        await on.until(lambda: len(on.app.seen) == 2)
        assert await (await on.client()).rest() == b""
        on.app.may_answer.set()
        assert [await each.answer() for each in busy] == [(200, b"GET 0")] * 2


@in_virtual_time
async def test_paced_requests_begin_one_after_the_other_and_those_of_clients_that_have_left_never() -> None:
    loop, pacer, begun = asyncio.get_running_loop(), Pacer(0.5), []
    cycles: list[Any] = [SimpleNamespace(disconnected=False) for _ in range(6)]
    for number, cycle in enumerate(cycles):
        pacer.begin(cycle, lambda number=number: begun.append((number, loop.time())), loop)  # type: ignore[misc]
    cycles[1].disconnected = cycles[2].disconnected = cycles[5].disconnected = True
    await virtualtime.elapse(10)
    pacer.begin(cycles[0], lambda: begun.append((6, loop.time())), loop)
    assert begun == [(0, 0.0), (3, 0.5), (4, 1.0), (6, 10.0)]


@pytest.mark.parametrize("head", [POST + b"content-length: 65537\r\n\r\n", CHUNKED], ids=["a length", "no length"])
@on_uvloop
async def test_requests_with_long_bodies_begin_one_after_the_other_and_short_ones_between_them(head: bytes) -> None:
    async with scene(limits=ListenerLimits(VERBS.connections, long_pause=1000.0)) as on:
        for _ in range(2):
            await (await on.client()).send(head)
            await on.app.begun.wait()
        short = await on.client()
        await short.send(POST + b"content-length: 65536\r\n\r\n" + b"x" * 65536)
        assert await short.answer() == (200, b"POST 65536")
        assert len(on.app.seen) == 2


class Wire(asyncio.Transport):
    """A transport that is read, or is not."""

    is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return False


@pytest.mark.parametrize(("size", "read"), [(connections.LONG_PIECE_BYTES, [True] * 3), (20_000, [True, False, False])])
@in_virtual_time
async def test_connections_wait_for_their_turn_with_long_pieces_and_take_nothing_more(
    size: int, read: list[bool]
) -> None:
    async def app(_: Any, receive: Any, __: Any) -> None:
        bodies.append((await receive())["body"])
        await asyncio.Event().wait()

    bodies: list[bytes] = []
    config, wires = server_config(app, Settings(), VERBS), [Wire() for _ in range(3)]
    config.load()
    state, head = ServerState(), POST + b"content-length: 20000\r\n\r\n"
    for wire in wires:
        protocol = BoundedProtocol(config, state, {})
        protocol.connection_made(wire)
        protocol.data_received(head + b"x" * (size - len(head)))
    assert [each.is_read for each in wires] == read
    for _ in range(6):
        await asyncio.sleep(0)
    assert all(each.is_read for each in wires)
    assert bodies == [b"x" * (size - len(head))] * 3
    for task in state.tasks:
        task.cancel()


@on_uvloop
async def test_bodies_of_many_connections_are_all_read() -> None:
    async with scene() as on:
        many = [await on.client() for _ in range(30)]
        body = POST + b"content-length: 200000\r\n\r\n" + b"x" * 200_000
        await asyncio.gather(*(each.send(body) for each in many))
        assert [await each.answer() for each in many] == [(200, b"POST 200000")] * 30


@on_uvloop
async def test_clients_that_leave_while_their_pieces_wait_leave_nothing() -> None:
    async with scene() as on:
        many = [await on.client() for _ in range(30)]
        for each in many:
            each.writer.write(POST + b"content-length: 200000\r\n\r\n" + b"x" * 200_000)
            each.writer.transport.abort()
        await on.until(lambda: not on.connections and not on.server.server_state.tasks)
        another = await on.client()
        await another.send(GET + b"\r\n")
        assert await another.answer() == (200, b"GET 0")


# --- clients that have nothing more to say -------------------------------------------------------------------


@on_uvloop
async def test_who_shuts_down_the_sending_side_gets_the_answer_and_the_connection_ends() -> None:
    async with scene(waits=True) as on:
        client = await on.client()
        await client.send(GET + b"\r\n" + POST + b"content-length: 1\r\n\r\nx")
        client.writer.write_eof()
        await on.app.begun.wait()
        on.app.may_answer.set()
        assert [await client.answer(), await client.answer()] == [(200, b"GET 0"), (200, b"POST 1")]
        assert await client.rest() == b""
        await on.until(lambda: not on.connections)


@pytest.mark.parametrize("sent", [b"", GET, POST + b"content-length: 2\r\n\r\nx"], ids=["nothing", "head", "body"])
@on_uvloop
async def test_who_shuts_down_the_sending_side_before_the_end_of_the_request_is_gone(sent: bytes) -> None:
    async with scene() as on:
        client = await on.client()
        await client.send(sent)
        client.writer.write_eof()
        assert await client.rest() == b""
        await on.until(lambda: not on.connections)


@on_uvloop
async def test_who_has_left_for_good_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with scene(waits=True) as on:
        client = await on.client()
        await client.send(GET + b"\r\n")
        await on.app.begun.wait()
        client.writer.close()
        on.app.may_answer.set()
        await on.until(lambda: not on.connections and not on.server.server_state.tasks)
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_the_kernel_keeps_little_of_a_request_until_it_is_read() -> None:
    """1,280 connections with 6 MB each would be more memory than the container has."""
    settings = load("{server: {port: 0}, operations: {port: 0}}", environment={})
    with open_ports(settings) as ports, socket.create_connection(ports.server.socket.getsockname()[:2]):
        accepted, _ = ports.server.socket.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * RECEIVED_BYTES
