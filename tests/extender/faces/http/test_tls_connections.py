"""Connections with TLS: handshakes have limits, and certificates change while connections stay."""

import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.faces.http import callers as handshaking
from extender.faces.http import connections
from extender.faces.http.callers import Handshake, Refusals, end_trust
from extender.faces.http.connections import ListenerLimits
from extender.kube.access import RefusalReason
from extender.kube.certificates import CertificateFiles, Certificates
from tests.extender.faces.http.connection_scenes import GET, POST, Scene, on_uvloop, scene
from tests.kit.certificates import HOST, Authority, trusting

AUTHORITY, OTHER = Authority("one"), Authority("other")


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(files(tmp_path))


def files(folder: Path, *, required: bool = False) -> CertificateFiles:
    certificate, key = AUTHORITY.server().write(folder)
    authorities = folder / "ca.crt"
    authorities.write_bytes(AUTHORITY.pem)
    return CertificateFiles(certificate, key, authorities, required)


def tls(context: ssl.SSLContext) -> dict[str, Any]:
    return {"ssl": context, "server_hostname": HOST}


@contextmanager
def refusals() -> Iterator[list[str]]:
    found: list[str] = []
    with capture_logs() as logs:
        yield found
    found += [each["why"] for each in logs if each["event"] == "caller refused"]


def handshakes(on: Scene) -> int:
    return sum(isinstance(each, Handshake) for each in on.connections)


@on_uvloop
async def test_requests_are_answered_one_after_the_other(certificates: Certificates, tmp_path: Path) -> None:
    async with scene(certificates=certificates) as on:
        client = await on.client(**tls(trusting(AUTHORITY, AUTHORITY.client("ann"), tmp_path)))
        for length in (0, 5, 200_000):
            await client.send(POST + b"content-length: %d\r\n\r\n" % length + b"x" * length)
            assert await client.answer() == (200, b"POST %d" % length)
        assert [each.app_state["client certificate"]["subject"] for each in on.connections] == [
            ((("commonName", "ann"),),)
        ]


@on_uvloop
async def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(certificates: Certificates) -> None:
    """The client's last bytes of the handshake and its request arrive in one piece."""
    async with scene(certificates=certificates) as on:
        client = await on.client()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        side = trusting(AUTHORITY).wrap_bio(incoming, outgoing, server_hostname=HOST)
        while True:
            try:
                side.do_handshake()
                break
            except ssl.SSLWantReadError:
                await client.send(outgoing.read())
                incoming.write(await client.reader.read(65536))
        side.write(GET + b"\r\n")
        await client.send(outgoing.read())
        incoming.write(await client.reader.read(65536))
        assert side.read().startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: OTHER.client("ann"), "the client certificate is not accepted: unable to get local issuer certificate"),
        (
            lambda: AUTHORITY.client("ann", ends=-10.0),
            "the client certificate is not accepted: certificate has expired",
        ),
        (lambda: None, "peer did not return a certificate"),
    ],
    ids=["of another authority", "expired", "none"],
)
def test_a_client_without_the_certificate_that_is_required_is_refused_and_that_is_said(
    tmp_path: Path, make: Any, why: str
) -> None:
    @on_uvloop
    async def refused() -> None:
        async with scene(certificates=Certificates(files(tmp_path, required=True))) as on:
            client = await on.client(**tls(trusting(AUTHORITY, make(), tmp_path)))
            with pytest.raises(ssl.SSLError):
                await client.reader.read()
            await on.until(lambda: not on.connections)
            assert on.app.seen == []

    with refusals() as found:
        refused()
    assert found == [why]


@on_uvloop
async def test_what_is_not_tls_is_cut_off(certificates: Certificates) -> None:
    with refusals() as found:
        async with scene(certificates=certificates) as on:
            client = await on.client()
            await client.send(GET + b"\r\n")
            assert b"HTTP" not in await client.rest()
            await on.until(lambda: not on.connections)
    assert found == ["http request"]


@on_uvloop
async def test_who_leaves_in_the_handshake_leaves_nothing_and_is_not_logged(certificates: Certificates) -> None:
    with refusals() as found:
        async with scene(certificates=certificates) as on:
            for sent in (b"", b"\x16\x03\x01\x02\x00"):
                client = await on.client()
                await client.send(sent)
                await on.until(lambda: handshakes(on) == 1)
                client.writer.transport.abort()
                await on.until(lambda: not on.connections)
    assert found == []


def test_half_a_handshake_ends_with_its_time(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshaking, "HEAD_SECONDS", 0.1)

    @on_uvloop
    async def half() -> None:
        async with scene(certificates=certificates) as on:
            client = await on.client()
            await client.send(b"\x16\x03\x01\x02\x00")
            assert await client.rest() == b""
            await on.until(lambda: not on.connections)

    half()


@on_uvloop
async def test_handshakes_without_end_take_no_more_connections_than_there_may_be(certificates: Certificates) -> None:
    async with scene(ListenerLimits(connections=4), certificates=certificates) as on:
        silent = []
        for _ in range(20):
            silent.append(await on.client())
            await on.until(lambda: handshakes(on) == min(len(silent), 4))
        assert [await each.rest() for each in silent[:-4]] == [b""] * 16
        client = await on.client(**tls(trusting(AUTHORITY)))
        await client.send(GET + b"\r\n")
        assert await client.answer() == (200, b"GET 0")


@on_uvloop
async def test_limits_of_requests_are_those_of_the_other_listener(certificates: Certificates) -> None:
    async with scene(certificates=certificates) as on:
        client = await on.client(**tls(trusting(AUTHORITY)))
        await client.send(GET + b"a:b\r\n" * connections.HEADERS + b"\r\n")
        assert (await client.answer())[0] == 431
        client = await on.client(**tls(trusting(AUTHORITY)))
        await client.send(GET)
        await on.until(lambda: any(getattr(each, "_stage", None) is connections._HEAD for each in on.connections))
        on.pass_seconds(connections.HEAD_SECONDS + 1)
        assert (await client.answer())[0] == 408


@on_uvloop
async def test_a_new_certificate_is_shown_to_new_connections_and_the_old_ones_stay(
    certificates: Certificates, tmp_path: Path
) -> None:
    async with scene(certificates=certificates) as on:
        before = await on.client(**tls(trusting(AUTHORITY)))
        OTHER.server().write(tmp_path)
        assert certificates.refresh()
        with pytest.raises(ssl.SSLCertVerificationError):
            await on.client(**tls(trusting(AUTHORITY)))
        after = await on.client(**tls(trusting(OTHER)))
        for client in (before, after):
            await client.send(GET + b"\r\n")
            assert await client.answer() == (200, b"GET 0")


@on_uvloop
async def test_clients_whose_authority_may_be_gone_end_after_their_request_and_others_stay(
    certificates: Certificates, tmp_path: Path
) -> None:
    ann = trusting(AUTHORITY, AUTHORITY.client("ann"), tmp_path)
    async with scene(certificates=certificates, waits=True) as on:
        busy, idle, nameless = [await on.client(**tls(each)) for each in (ann, ann, trusting(AUTHORITY))]
        await busy.send(GET + b"\r\n")
        await on.app.begun.wait()
        await on.until(lambda: len(on.connections) == 3 and not handshakes(on))
        end_trust(on.connections)
        assert await idle.rest() == b""
        on.app.may_answer.set()
        assert await busy.answer() == (200, b"GET 0")
        assert await busy.rest() == b""
        await nameless.send(GET + b"\r\n")
        assert await nameless.answer() == (200, b"GET 0")


@on_uvloop
async def test_no_session_is_resumed(certificates: Certificates) -> None:
    """A resumed session would come past a change of the authorities."""
    async with scene(certificates=certificates) as on:
        context = trusting(AUTHORITY)
        client = await on.client(**tls(context))
        await client.send(GET + b"\r\n")
        await client.answer()
        found = client.writer.get_extra_info("ssl_object")
        assert found.session is None or not found.session.has_ticket


def test_many_refusals_make_few_lines_and_all_count() -> None:
    now, counted = 0.0, Counter[RefusalReason]()
    told = Refusals(lambda reason: counted.update([reason]), lambda: now)
    with capture_logs() as logs:
        for _ in range(1001):
            told.tell(RefusalReason.TOKEN, "expired", "10.0.0.7")
            now += 1 / 128
    assert counted == {RefusalReason.TOKEN: 1001}
    assert len(logs) == 10 + 7
    assert len(logs) + sum(each.get("left_out", 0) for each in logs) == 7 * 128 + 1
