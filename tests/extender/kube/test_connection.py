"""Real sockets and real kubeconfig files: who we say we are, and that a write is never repeated."""

import asyncio
import ssl
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from extender.cluster.live import connect
from extender.kube.api import ConnectError
from extender.kube.connection.connection import ApiConnection, open_connection
from extender.kube.connection.credentials import Configuration, Credentials, Origin, load_credentials
from extender.kube.connection.transport import MERGE_PATCH_TYPE, HttpRequest, NotSentError, Stream, TransportError
from tests.extender.kube.live_scenes import half, now
from tests.kit.certificates import Authority
from tests.kit.servers.canned import CHUNKED, HTTPS, OK, Server, answer, config_text, connected, kubeconfig, serving
from tests.kit.virtualtime import elapse, in_virtual_time

# --- who we are ---------------------------------------------------------------------------------------------


def plugin(folder: Path) -> Mapping[str, object]:
    """A credential plugin that gives another token each time."""
    script = folder / "plugin.py"
    script.write_text(
        "import json, pathlib\n"
        f"count = pathlib.Path({str(folder / 'count')!r})\n"
        "number = int(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text(str(number))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',\n"
        "                  'status': {'token': f'token-{number}'}}))\n"
    )
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(script)],
            "interactiveMode": "Never",
        }
    }


async def test_tokens_passwords_token_files_and_plugins_are_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file")
    users: list[tuple[Mapping[str, object], str]] = [
        ({"token": "secret"}, "Bearer secret"),
        ({"tokenFile": str(tmp_path / "token")}, "Bearer from-file"),
        ({"username": "u", "password": "p"}, "Basic dTpw"),
        (plugin(tmp_path), "Bearer token-1"),
    ]
    sent = []
    for user, _ in users:
        async with connected(tmp_path, OK, user=user) as (server, connection):
            await connection.call(HttpRequest("GET", "/"))
            sent.append(server.seen[0].headers["authorization"])
    assert sent == [expected for _, expected in users]


async def test_a_token_that_is_no_longer_good_is_read_anew_and_the_request_repeated(tmp_path: Path) -> None:
    async with connected(tmp_path, answer(401), OK, user=plugin(tmp_path)) as (server, connection):
        reply = await connection.call(HttpRequest("PUT", "/", body=b"{}"))
        assert reply.status == 200
        assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer token-1", "Bearer token-2"]


async def test_many_that_are_refused_at_once_read_the_token_anew_once(tmp_path: Path) -> None:
    async with connected(tmp_path, *[answer(401)] * 5, OK, user=plugin(tmp_path)) as (server, connection):
        await asyncio.gather(*(connection.call(HttpRequest("GET", f"/{number}")) for number in range(5)))
        assert {seen.headers["authorization"] for seen in server.seen[5:]} == {"Bearer token-2"}
    assert (tmp_path / "count").read_text() == "2"


async def test_who_is_refused_twice_is_told(tmp_path: Path) -> None:
    async with connected(tmp_path, answer(401)) as (server, connection):
        assert (await connection.call(HttpRequest("GET", "/"))).status == 401
        assert len(server.seen) == 2


# --- requests -----------------------------------------------------------------------------------------------


async def test_a_request_arrives_as_it_was_asked(tmp_path: Path) -> None:
    async with connected(tmp_path, answer(201, b'{"a":1}', Retry_After="7")) as (server, connection):
        request = HttpRequest("PATCH", "/a%2Fb", {"x": "1", "continue": "a+b/c="}, b"{}", MERGE_PATCH_TYPE)
        reply = await connection.call(request)
    (seen,) = server.seen
    assert (reply.status, reply.body, reply.retry_after) == (201, b'{"a":1}', 7.0)
    assert seen.start == "PATCH /a%2Fb?x=1&continue=a%2Bb/c%3D HTTP/1.1"
    assert (seen.headers["content-type"], seen.headers["accept-encoding"], seen.body) == (
        MERGE_PATCH_TYPE,
        "identity",
        b"{}",
    )


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "PATCH"])
async def test_a_write_whose_connection_is_cut_is_not_repeated(tmp_path: Path, method: str) -> None:
    async with connected(tmp_path, OK, None, OK) as (server, connection):
        await connection.call(HttpRequest("GET", "/first"))
        with pytest.raises(TransportError):
            await connection.call(HttpRequest(method, "/second", body=b"{}"))
    assert [seen.start.split()[1] for seen in server.seen] == ["/first", "/second"]


async def test_a_write_that_finds_nobody_is_known_not_to_have_been_sent(tmp_path: Path) -> None:
    async with serving(OK) as server:
        origin = kubeconfig(tmp_path, server.url, {"token": "t"})
    async with open_connection(origin) as connection:
        with pytest.raises(NotSentError, match="Connect call failed"):
            await connection.call(HttpRequest("POST", "/", body=b"{}"))


async def test_a_stream_that_finds_nobody_has_no_connection(tmp_path: Path) -> None:
    async with serving(OK) as server:
        origin = kubeconfig(tmp_path, server.url, {"token": "t"})
    async with open_connection(origin) as connection:
        with pytest.raises(NotSentError, match="Connect call failed"):
            async with connection.stream(HttpRequest("GET", "/")):
                pass


async def test_redirects_are_not_followed(tmp_path: Path) -> None:
    async with connected(tmp_path, answer(302, Location="/elsewhere")) as (server, connection):
        assert (await connection.call(HttpRequest("GET", "/"))).status == 302
        assert len(server.seen) == 1


async def test_an_answer_that_is_cut_is_no_answer(tmp_path: Path) -> None:
    async with connected(tmp_path, None) as (_, connection):
        with pytest.raises(TransportError):
            await connection.call(HttpRequest("GET", "/"))


async def test_a_stream_that_is_cut_gives_what_came_and_then_says_so(tmp_path: Path) -> None:
    got = []

    async def read(server: Server, stream: Stream) -> None:
        async for chunk in stream.chunks():
            got.append(chunk)
            server.cut()

    first = CHUNKED + b"2\r\nab\r\n"
    async with connected(tmp_path, first) as (server, connection), connection.stream(HttpRequest("GET", "/")) as stream:
        with pytest.raises(TransportError):
            await read(server, stream)
    assert got == [b"ab"]


async def test_where_nobody_listens_there_is_no_connection(tmp_path: Path) -> None:
    async with serving(OK) as server:
        url = server.url
    with pytest.raises(ConnectError, match="Connect call failed"):
        async with connect(kubeconfig(tmp_path, url, {"token": "t"}), random=half):
            pass


async def test_a_stream_comes_in_pieces(tmp_path: Path) -> None:
    whole = CHUNKED + b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"
    async with connected(tmp_path, whole) as (_, connection), connection.stream(HttpRequest("GET", "/")) as stream:
        assert stream.status == 200
        assert b"".join([chunk async for chunk in stream.chunks()]) == b"abcde"


async def test_a_server_that_is_no_api_server_is_refused(tmp_path: Path) -> None:
    async with serving(answer(200, b"<html>")) as server:
        with pytest.raises(ConnectError, match="the answer is not JSON"):
            async with connect(kubeconfig(tmp_path, server.url, {"token": "t"}), random=half):
                pass


# --- credentials that change --------------------------------------------------------------------------------


async def test_a_token_file_is_read_anew(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    credentials = await load_credentials(kubeconfig(tmp_path, "http://127.0.0.1", {"tokenFile": str(token)}))
    before = credentials.headers
    token.write_text("second\n")
    await credentials.renew()
    assert [before["Authorization"], credentials.headers["Authorization"]] == ["Bearer first", "Bearer second"]


async def test_credentials_that_can_not_be_read_anew_stay_in_force(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    credentials = await load_credentials(kubeconfig(tmp_path, "http://127.0.0.1", {"tokenFile": str(token)}))
    token.unlink()
    with pytest.raises(ConnectError, match="token"):
        await credentials.renew()
    assert credentials.headers == {"Authorization": "Bearer first"}


HTTPS_URL = "https://127.0.0.1"
NAMED = Configuration("http://127.0.0.1", server_name="api.example.com")


@in_virtual_time
async def test_credentials_are_kept_fresh_though_it_fails_at_times() -> None:
    times: list[float] = []

    async def read() -> Configuration:
        times.append(now())
        if len(times) == 2:
            raise ConnectError("the plugin failed")
        return NAMED

    async with aiohttp.ClientSession() as session:
        fresh = asyncio.create_task(ApiConnection(session, Credentials(NAMED, read)).keep_fresh())
        await elapse(200)
        fresh.cancel()
    assert times == [60.0, 120.0, 180.0]


async def nothing_new() -> Configuration:
    raise AssertionError


def test_proxy_and_server_name_go_with_each_request() -> None:
    proxied = Configuration("http://127.0.0.1", proxy="http://proxy:3128")
    assert Credentials(NAMED, nothing_new).request_options == {"server_hostname": "api.example.com"}
    assert Credentials(proxied, nothing_new).request_options == {"proxy": "http://proxy:3128"}


@pytest.mark.parametrize(("skip", "mode"), [("true", ssl.CERT_NONE), ("false", ssl.CERT_REQUIRED)])
async def test_certificates_are_verified_unless_told_otherwise(tmp_path: Path, skip: str, mode: ssl.VerifyMode) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(config_text(f"{HTTPS}, insecure-skip-tls-verify: {skip}"))
    tls = (await load_credentials(Origin(str(path)))).tls
    assert tls is not None
    assert (tls.verify_mode, tls.check_hostname) == (mode, mode is ssl.CERT_REQUIRED)
    assert not tls.verify_flags & ssl.VERIFY_X509_STRICT


async def test_a_client_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "crt").write_text("no certificate")
    path = tmp_path / "kubeconfig"
    path.write_text(config_text(HTTPS, f"client-certificate: {tmp_path}/crt, client-key: {tmp_path}/crt"))
    with pytest.raises(ConnectError, match="not PEM"):
        await load_credentials(Origin(str(path)))


async def test_a_client_certificate_that_goes_bad_leaves_the_old_one_in_force() -> None:
    async def read() -> Configuration:
        return Configuration(HTTPS_URL, "Bearer new", certificate=b"no certificate", key=b"no key")

    credentials = Credentials(Configuration(HTTPS_URL, "Bearer old"), read)
    with pytest.raises(ConnectError, match="client-certificate and client-key: are no certificate and its key"):
        await credentials.renew()
    assert credentials.headers == {"Authorization": "Bearer old"}


async def test_an_authority_that_is_rotated_is_trusted_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(Authority("old").pem)
    path = tmp_path / "kubeconfig"
    path.write_text(config_text(f"{HTTPS}, certificate-authority: ca.crt"))
    credentials = await load_credentials(Origin(str(path)))
    file.write_bytes("# Ämter\n".encode() + Authority("new").pem)
    await credentials.renew()
    assert credentials.tls is not None
    first, second = [str(each["subject"]) for each in credentials.tls.get_ca_certs()]
    assert "'old'" in first
    assert "'new'" in second


async def test_an_authority_that_goes_bad_leaves_the_old_one_in_force() -> None:
    async def read() -> Configuration:
        return Configuration(HTTPS_URL, authority=b"no certificate")

    credentials = Credentials(Configuration(HTTPS_URL, authority=Authority("old").pem), read)
    assert credentials.tls is not None
    with pytest.raises(ConnectError, match="certificate-authority: is no certificate"):
        await credentials.renew()
    assert len(credentials.tls.get_ca_certs()) == 1


# --- the environment -----------------------------------------------------------------------------------------


def environment(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Only these of the variables by which programs are told of proxies and passwords."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "netrc"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("exempt", "start"), [("", "GET http://127.0.0.1:1/x HTTP/1.1"), ("127.0.0.1", "")])
async def test_a_proxy_of_the_environment_is_used_unless_the_server_is_exempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exempt: str, start: str
) -> None:
    async with serving(OK) as proxy:
        environment(monkeypatch, HTTP_PROXY=proxy.url, NO_PROXY=exempt)
        async with open_connection(kubeconfig(tmp_path, "http://127.0.0.1:1", {"token": "t"})) as connection:
            with suppress(TransportError):
                await connection.call(HttpRequest("GET", "/x"))
        assert [seen.start for seen in proxy.seen] == ([start] if start else [])


async def test_passwords_that_the_user_has_for_other_programs_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who we are says the kubeconfig. To look into ~/.netrc for each request would cost more than the request."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret")
    environment(monkeypatch, NETRC=str(netrc))
    async with serving(OK) as api:
        async with open_connection(kubeconfig(tmp_path, api.url, {"token": "t"})) as connection:
            await connection.call(HttpRequest("GET", "/x"))
        assert api.seen[0].headers["authorization"] == "Bearer t"
