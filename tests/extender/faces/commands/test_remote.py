"""A service that a command asks over TLS: who is trusted, who the caller is, and what errors say."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from extender.faces.commands.remote import Remote, RemoteError
from extender.kube.certificates import CertificateFiles, Certificates
from tests.extender.faces.http.connection_scenes import scene
from tests.kit.certificates import Authority, Pair

ANSWER = {"verdict": "fits", "text": "pod ns/p fits\n"}


@dataclass
class Server:
    """A service that gives one answer."""

    url: str = ""
    heads: list[str] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        body = orjson.dumps(ANSWER)
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()


@asynccontextmanager
async def server(folder: Path, pair: Pair, clients: Authority | None = None) -> AsyncIterator[Server]:
    """A service with a certificate, which may ask for those of clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair.write(folder, "server"))
    if clients is not None:
        context.load_verify_locations(cadata=clients.pem.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    found = Server()
    listening = await asyncio.start_server(found.answer, "127.0.0.1", 0, ssl=context)
    found.url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield found


def file(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def test_a_body_is_sent_with_the_token(tmp_path: Path) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=ANSWER)

    remote = Remote("https://service", file(tmp_path, "token", b"secret\n"), transport=httpx.MockTransport(answer))
    assert remote.post("/what-if", b'{"drain": []}') == ANSWER
    (request,) = asked
    assert (request.method, request.url.path, request.content) == ("POST", "/what-if", b'{"drain": []}')
    assert request.headers["authorization"] == "Bearer secret"


async def get(remote: Remote) -> Any:
    return await asyncio.to_thread(remote.get, "/explain/ns/p", {"node": ["a"]})


async def problem(remote: Remote) -> str:
    with pytest.raises(RemoteError) as error:
        await get(remote)
    return str(error.value)


async def test_a_token_is_sent_to_a_service_whose_authority_is_trusted(tmp_path: Path) -> None:
    authority = Authority()
    ca, token = file(tmp_path, "ca.crt", authority.pem), file(tmp_path, "token", b"secret\n")
    async with server(tmp_path, authority.server()) as there:
        assert await get(Remote(there.url, token, ca)) == ANSWER
    (head,) = there.heads
    assert head.startswith("get /explain/ns/p?node=a http/1.1\r\n")
    assert "\r\nauthorization: bearer secret\r\n" in head


async def test_a_client_certificate_is_shown_with_its_key_in_a_file_of_its_own_or_not(tmp_path: Path) -> None:
    authority = Authority()
    pair = authority.client("bob")
    ca, both = file(tmp_path, "ca.crt", authority.pem), file(tmp_path, "both.pem", pair.certificate + pair.key)
    certificate, key = pair.write(tmp_path, "client")
    async with server(tmp_path, authority.server(), clients=authority) as there:
        assert await get(Remote(there.url, ca=ca, certificate=certificate, key=key)) == ANSWER
        assert await get(Remote(there.url, ca=ca, certificate=both)) == ANSWER


async def test_a_service_whose_authority_is_not_trusted(tmp_path: Path) -> None:
    ca = file(tmp_path, "ca.crt", Authority().pem)
    async with server(tmp_path, Authority("another").server()) as there:
        text = await problem(Remote(there.url, ca=ca))
    assert text == (
        f"{there.url}/explain/ns/p: the certificate of the service is not accepted: unable to get local issuer "
        "certificate. --cacert names the authority that has issued it"
    )


async def test_a_service_without_tls() -> None:
    async with scene() as on:
        text = await problem(Remote(f"https://127.0.0.1:{on.port}"))
    assert text.endswith("/explain/ns/p: the service does not speak TLS; its URL may begin with http:")


@pytest.mark.parametrize(
    ("hosts", "ends", "why"),
    [
        (("127.0.0.1",), -1.0, "certificate has expired"),
        (("other.test",), 3600.0, "IP address mismatch, certificate is not valid for '127.0.0.1'"),
    ],
    ids=["expired", "another name"],
)
async def test_a_certificate_of_the_service_that_does_not_hold(
    tmp_path: Path, hosts: tuple[str, ...], ends: float, why: str
) -> None:
    authority = Authority()
    ca = file(tmp_path, "ca.crt", authority.pem)
    async with server(tmp_path, authority.server(*hosts, ends=ends)) as there:
        assert f"the certificate of the service is not accepted: {why}. " in await problem(Remote(there.url, ca=ca))


AUTHORITY = Authority()
REFUSED = {
    "another authority": (Authority("another").client("bob"), "unknown ca"),
    "expired": (AUTHORITY.client("bob", ends=-1.0), "certificate expired"),
    "none": (None, "certificate required"),
}


@pytest.mark.parametrize(("pair", "why"), REFUSED.values(), ids=REFUSED)
async def test_a_client_certificate_that_is_not_accepted(tmp_path: Path, pair: Pair | None, why: str) -> None:
    ca = file(tmp_path, "ca.crt", AUTHORITY.pem)
    certificate, key = pair.write(tmp_path, "client") if pair else (None, None)
    files = CertificateFiles(*AUTHORITY.server().write(tmp_path, "server"), ca, required=True)
    async with scene(certificates=Certificates(files)) as on:
        text = await problem(Remote(f"https://127.0.0.1:{on.port}", ca=ca, certificate=certificate, key=key))
    assert f"the service does not accept the client certificate ({why}). The options are --cert and --key" in text


@pytest.mark.parametrize(
    ("status", "message", "problem"),
    [
        (401, "no token", "the service does not know the caller (401): no token. The options are --token-file"),
        (403, 'user "bob" may not get path "/"', 'the service refuses the caller (403): user "bob" may not get path'),
        (429, "too many tokens", "https://service/explain/ns/p: too many tokens"),
    ],
)
def test_a_caller_that_is_refused(status: int, message: str, problem: str) -> None:
    body = {"kind": "Status", "message": message, "code": status}
    transport = httpx.MockTransport(lambda _: httpx.Response(status, content=orjson.dumps(body)))
    with pytest.raises(RemoteError) as error:
        Remote("https://service", transport=transport).get("/explain/ns/p", {})
    assert problem in str(error.value)


PEM = Authority().client("bob")
MISTAKES: dict[str, tuple[dict[str, bytes | None], str]] = {
    "an empty token": ({"token_file": b"\n"}, "--token-file {token_file}: there is no token in it"),
    "two tokens": ({"token_file": b"a b"}, "--token-file {token_file}: there is no token in it"),
    "no token file": ({"token_file": None}, "--token-file {token_file}: cannot be read: No such file or directory"),
    "no authority": ({"ca": b"x"}, "--cacert {ca}: there is no certificate in PEM"),
    "no file of authorities": ({"ca": None}, "--cacert {ca}: {ca}: cannot be read: No such file or directory"),
    "a key alone": ({"key": PEM.key}, "--key: the certificate of the key is missing; give --cert"),
    "a certificate without a key": (
        {"certificate": PEM.certificate},
        "--cert {certificate}: there is no certificate with its private key, in PEM and without a passphrase",
    ),
    "another key": (
        {"certificate": PEM.certificate, "key": Authority().client("bob").key},
        "--cert {certificate} --key {key}: there is no certificate with its private key, in PEM and without a pass",
    ),
}


@pytest.mark.parametrize(("files", "text"), MISTAKES.values(), ids=MISTAKES)
def test_a_file_that_cannot_be_used(tmp_path: Path, files: dict[str, bytes | None], text: str) -> None:
    paths = {name: tmp_path / name for name in files}
    for name, content in files.items():
        if content is not None:
            file(tmp_path, name, content)
    token_file, ca, certificate, key = map(paths.get, ("token_file", "ca", "certificate", "key"))
    remote = Remote("https://service", token_file, ca, certificate, key)
    with pytest.raises(RemoteError) as error:
        remote.get("/explain/ns/p", {})
    assert str(error.value).startswith(text.format(**paths))


def test_a_token_is_not_sent_without_tls(tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="need a URL that begins with https:"):
        Remote("http://127.0.0.1:8888", file(tmp_path, "token", b"secret")).get("/explain/ns/p", {})
