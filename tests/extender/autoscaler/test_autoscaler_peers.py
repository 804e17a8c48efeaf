"""A call about a session of another replica is answered all the same; without its replica, a session is unknown."""

import asyncio
import ssl
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncClient

from extender.autoscaler.sessions import FORWARDED, PassedCall, PeerConnection, PeerReply, Peers, PeerUnreachableError
from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import PODS
from extender.tools.intake import Budget
from tests.extender.autoscaler.http_scenes import NEW, app_of, book, passing, post, start
from tests.extender.autoscaler.scenes import autoscaler_over, machine, pod_of
from tests.kit.certificates import Authority
from tests.kit.clusters import GPU, Cluster, Object, claim_template, client_of, local_slice, pod
from tests.kit.places import ROOT

NAMESPACE = "kube-system"
ADDRESSES = {"one": "10.0.0.1", "two": "10.0.0.2"}


def replica_pod(name: str, address: str, account: str = "dra-extender", phase: str = "Running") -> Object:
    raw = pod(name)
    raw["metadata"] |= {"namespace": NAMESPACE}
    raw["spec"]["serviceAccountName"] = account
    return {**raw, "status": {"phase": phase, "podIP": address}}


OBJECTS = (
    GPU,
    claim_template(),
    machine("a"),
    local_slice("a"),
    *(replica_pod(name, address) for name, address in ADDRESSES.items()),
)


@dataclass
class Wire:
    """The network between replicas.

    Attributes:
        replicas: address to a client of the replica there; replicas that have ended are missing.
        sent: the address and the verb of each call.
        until: each call takes until then; None: no time.
        asked: a call waits.
    """

    replicas: dict[str, AsyncClient] = field(default_factory=dict)
    sent: list[tuple[str, str]] = field(default_factory=list)
    status: int = 200
    until: asyncio.Event | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, address: str, call: PassedCall) -> PeerReply:
        self.sent.append((address, call.verb))
        if self.until is not None:
            self.asked.set()
            await self.until.wait()
        if address not in self.replicas:
            raise PeerUnreachableError("connection refused")
        headers = {"session": call.session_id, FORWARDED: "1"}
        found = await self.replicas[address].post(f"/autoscaler/{call.verb}", content=call.body, headers=headers)
        return PeerReply(self.status, found.content)


@dataclass
class Scene:
    """Two replicas over one cluster; their sessions are not in one memory."""

    cluster: Cluster
    wire: Wire
    clock: list[float]
    one: AsyncClient
    two: AsyncClient

    def end(self, name: str) -> None:
        """The process of a replica ends."""
        del self.wire.replicas[ADDRESSES[name]]


@pytest.fixture
async def scene(cluster: Cluster) -> AsyncIterator[Scene]:
    wire, clock, clients = Wire(), [0.0], []
    async with AsyncExitStack() as stack:
        for name, address in ADDRESSES.items():
            peers = Peers(cluster.api, ObjectKey(NAMESPACE, name), wire, lambda: clock[0])
            app = app_of(cluster, autoscaler_over(cluster.state, NEW, peers=peers))
            clients.append(await stack.enter_async_context(client_of(app)))
            wire.replicas[address] = clients[-1]
        yield Scene(cluster, wire, clock, *clients)


def gone(replica: str, why: str) -> dict[str, str]:
    """The answer about a session of a replica that cannot be asked."""
    error = f'no such session: replica "{replica}", which had it, {why}; start another one'
    return {"Error": error, "Code": "UnknownSession"}


async def ask(client: AsyncClient, session: str) -> Any:
    return await post(client, "NodeReady", {"NodeName": "a"}, session)


# --- passed on ----------------------------------------------------------------------------------------------


async def test_a_session_is_answered_by_each_replica(scene: Scene) -> None:
    session = await start(scene.one)
    assert session == "session-0@one"
    assert await book(scene.two, pod_of("p", "gpu"), machine("a"), session) == {}
    for client in (scene.one, scene.two):
        assert await passing(client, pod_of("q", "gpu"), machine("a"), machine("n", "g"), session=session) == ["n"]
    assert scene.wire.sent == [("10.0.0.1", "NodeSelected"), ("10.0.0.1", "filter")]


async def test_the_errors_of_the_other_replica_are_answers(scene: Scene) -> None:
    session = await start(scene.one)
    reply = await post(scene.two, "filter", {"Pod": 7}, session)
    assert reply == {"Error": "Pod: expected an object, not 7"}
    reply = await ask(scene.two, session.replace("session-0", "session-9"))
    assert reply["Code"] == "UnknownSession"
    assert "it has expired or made room for others" in reply["Error"]


async def test_calls_without_a_session_and_of_own_sessions_stay(scene: Scene) -> None:
    await passing(scene.two, pod_of("p", "gpu"), machine("a"))
    await ask(scene.two, await start(scene.two))
    assert scene.wire.sent == []


async def test_a_start_begins_a_session_here_whatever_session_it_names(scene: Scene) -> None:
    session = await start(scene.one)
    assert (await post(scene.two, "start", {}, session))["Session"].endswith("@two")


async def test_an_address_is_looked_up_again_after_ten_seconds(scene: Scene) -> None:
    session = await start(scene.one)
    await ask(scene.two, session)
    await scene.cluster.api.patch_status(PODS, ObjectKey(NAMESPACE, "one"), {"status": {"podIP": "10.0.0.3"}})
    scene.wire.replicas["10.0.0.3"] = scene.one
    for now, address in ((9.9, "10.0.0.1"), (10.0, "10.0.0.3")):
        scene.clock[0] = now
        await ask(scene.two, session)
        assert scene.wire.sent[-1] == (address, "NodeReady")


async def test_a_replica_that_is_slow_delays_only_calls_about_its_own_sessions(scene: Scene) -> None:
    theirs, own = await start(scene.one), await start(scene.two)
    scene.wire.until = asyncio.Event()
    slow = [asyncio.create_task(ask(scene.two, theirs)) for _ in range(20)]
    await scene.wire.asked.wait()
    assert "n" in await passing(scene.two, pod_of("p", "gpu"), machine("n", "g"), session=own)
    assert not any(each.done() for each in slow)
    scene.wire.until.set()
    assert await asyncio.gather(*slow) == [await ask(scene.one, theirs)] * len(slow)


# --- not passed on ------------------------------------------------------------------------------------------


async def test_after_the_end_of_its_replica_a_session_is_unknown_at_once(scene: Scene) -> None:
    session = await start(scene.one)
    scene.end("one")
    assert await ask(scene.two, session) == gone("one", "does not answer (connection refused)")
    assert "n" in await passing(scene.two, pod_of("p", "gpu"), machine("n", "g"), session=await start(scene.two))


async def test_without_its_pod_a_session_is_unknown(scene: Scene) -> None:
    session = await start(scene.one)
    await scene.cluster.api.delete(PODS, ObjectKey(NAMESPACE, "one"))
    assert await ask(scene.two, session) == gone("one", "is gone")
    assert scene.wire.sent == []


STRANGERS: dict[str, tuple[Object, str]] = {
    "a pod of another account": (replica_pod("other", "10.0.0.9", account="default"), "is gone"),
    "a pod without an address": (replica_pod("other", ""), "does not run"),
    "a pod that has ended": (replica_pod("other", "10.0.0.9", phase="Failed"), "does not run"),
}


@pytest.mark.parametrize(("stranger", "why"), STRANGERS.values(), ids=STRANGERS)
async def test_calls_go_to_replicas_only(scene: Scene, stranger: Object, why: str) -> None:
    scene.cluster.load(stranger)
    assert await ask(scene.two, "secret@other") == gone("other", why)
    assert scene.wire.sent == []


@pytest.mark.parametrize(
    "session", ["", "s", "@one", "s@", "s@One", "s@10.0.0.9:80/x", "s@one/../x", "a b@one", "\xe9@one", "s@one@"]
)
async def test_an_id_that_names_no_replica_is_unknown_here(scene: Scene, session: str) -> None:
    headers = {b"session": session.encode("latin-1")}
    reply = await scene.two.post("/autoscaler/NodeReady", json={"NodeName": "a"}, headers=headers)
    assert reply.json()["Code"] == "UnknownSession"
    assert scene.wire.sent == []


async def test_a_call_is_passed_on_once(scene: Scene) -> None:
    session = await start(scene.one)
    headers = {"session": session, FORWARDED: "1"}
    reply = await scene.two.post("/autoscaler/NodeReady", json={"NodeName": "a"}, headers=headers)
    assert reply.json()["Code"] == "UnknownSession"
    assert scene.wire.sent == []


async def test_a_replica_that_refuses_us_is_named_with_its_answer(scene: Scene) -> None:
    session = await start(scene.one)
    scene.wire.status = 403
    reply = await ask(scene.two, session)
    assert reply == {"Error": 'replica one, which has the session, answers with status 403: {"Ready":true}'}


async def test_an_api_server_that_does_not_answer_makes_no_session_unknown(scene: Scene) -> None:
    class Refusing:
        async def get(self, _resource: object, _key: object) -> Object:
            raise ApiError(403, "Forbidden", "pods is forbidden")

    peers = Peers(Refusing(), ObjectKey(NAMESPACE, "two"), scene.wire, lambda: 0.0)  # type: ignore[arg-type]
    app = app_of(scene.cluster, autoscaler_over(scene.cluster.state, NEW, peers=peers))
    async with client_of(app) as client:
        reply = await ask(client, "secret@one")
    assert reply == {"Error": "the session is at replica one, and its address can't be found: pods is forbidden"}


# HTTPS to other replicas: who is trusted, what is sent, and what counts as no answer.


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

    def counted(*, cafile: Path | None, cadata: str) -> ssl.SSLContext:
        made.append(cadata)
        return create(cafile=cafile, cadata=cadata)

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
        with pytest.raises(PeerUnreachableError, match="Server disconnected"):
            await connection(tmp_path, there.port, authority).send("127.0.0.1", CALL)
    with pytest.raises(PeerUnreachableError, match="Connect call failed"):
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


async def test_serve_loads_one_library_for_calls_over_http() -> None:
    code = "import sys, extender.faces.commands.serve; print(*({'aiohttp', 'httpx', 'requests'} & {*sys.modules}))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=PIPE, cwd=ROOT)
    loaded, _ = await process.communicate()
    assert loaded == b"aiohttp\n"
