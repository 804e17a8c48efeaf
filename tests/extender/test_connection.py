"""Real sockets and real kubeconfig files: who we say we are, and that a write is never repeated."""

import asyncio
import os
import shutil
import ssl
import sys
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import orjson
import pytest

from extender.auditing import AUDITED, listed_live
from extender.cluster.api import CLAIMS, RESOURCES, Resource
from extender.cluster.connection import Connection, open_connection
from extender.cluster.credentials import ConnectError, Credentials, Origin, find_origin, load_credentials
from extender.cluster.live import connect
from extender.cluster.permissions import ALLOCATES, WRITES
from extender.cluster.state import ClusterState
from extender.cluster.transport import MERGE_PATCH_TYPE, NotSentError, Request, Stream, TransportError
from extender.inquiry import EXPLAINED
from extender.serving import live
from extender.settings import load
from tests.extender.fakeapi import FakeApi
from tests.extender.livecluster import default, half, make_claim, now
from tests.extender.virtualtime import run

pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utc:DeprecationWarning")


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

    def cut(self) -> None:
        """Cut all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                self.seen.append(await _request(reader))
                answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
                if answer is None:
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _request(reader: asyncio.StreamReader) -> Seen:
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
async def serving(*answers: bytes | None) -> AsyncIterator[Server]:
    found = Server(deque(answers))
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield found


def kubeconfig(folder: Path, url: str, user: Mapping[str, object]) -> Origin:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": dict(user)}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_bytes(orjson.dumps(config))
    return Origin(str(path))


@asynccontextmanager
async def connected(
    folder: Path, *answers: bytes | None, user: Mapping[str, object] | None = None
) -> AsyncIterator[tuple[Server, Connection]]:
    async with serving(*answers) as server:
        origin = kubeconfig(folder, server.url, user or {"token": "secret"})
        async with open_connection(origin) as connection:
            yield server, connection


# --- where the configuration is -----------------------------------------------------------------------------


def test_the_file_that_is_named_comes_first_then_kubeconfig_then_the_pod_then_the_home(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    usual = tmp_path / ".kube" / "config"
    usual.touch()
    home = {"HOME": str(tmp_path)}
    pod = {**home, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    variable = {**pod, "KUBECONFIG": "a:b"}
    assert find_origin(Path("f"), "c", variable) == Origin("f", "c")
    assert find_origin(None, "c", variable) == Origin("a:b", "c")
    assert find_origin(None, "", pod) == Origin()
    assert find_origin(None, "c", home) == Origin(str(usual), "c")


def test_without_any_configuration_all_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConnectError, match=r"no --kubeconfig, KUBECONFIG is not set, this is no pod, and there is no /"
    ):
        find_origin(None, "", {"HOME": str(tmp_path)})


def config_text(cluster: str, user: str = "token: t") -> str:
    return (
        f"current-context: x\nclusters: [{{name: c, cluster: {{{cluster}}}}}]\n"
        f"users: [{{name: u, user: {{{user}}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
    )


HTTPS = "server: 'https://127.0.0.1'"
PLUGIN = "apiVersion: client.authentication.k8s.io/v1"


def printing(status: str) -> str:
    """A kubeconfig with a credential plugin that prints a status, whatever it is."""
    printed = f'{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {status}}}'
    return config_text(HTTPS, f"exec: {{{PLUGIN}, command: echo, args: ['{printed}']}}")


BROKEN = {
    "not there": (None, "no such file"),
    "empty": ("", "is empty: expected clusters, users, contexts and current-context"),
    "all comments": ("# nothing", "is empty: expected clusters, users, contexts and current-context"),
    "two documents": ("a: 1\n---\nb: 1", "expected one document, not 2"),
    "not YAML": ("a: [", "not YAML: line 1: did not find expected node content"),
    "a list": ("[1, 2]", "expected keys and values at the top, not [1, 2]"),
    "a text": ("kubeconfig", 'expected keys and values at the top, not "kubeconfig"'),
    "no context is the current one": (config_text(HTTPS).partition("\n")[2], "current-context: is required"),
    "a current context of another type": ("current-context: 7", "current-context: 7 is not a string"),
    "no contexts": ("current-context: x", 'current-context: "x" is not one of contexts: there are none'),
    "contexts that are no list": (
        "{current-context: x, contexts: {x: 1}}",
        'contexts: {"x": 1} is not a list; {path}: current-context: "x" is not one of contexts: there are none',
    ),
    "an unknown context": (
        config_text(HTTPS).replace("current-context: x", "current-context: y"),
        'current-context: "y" is not one of contexts (known: x)',
    ),
    "an unknown cluster": (
        config_text(HTTPS).replace("cluster: c", "cluster: prod"),
        'contexts[x].context.cluster: "prod" is not one of clusters (known: c)',
    ),
    "an unknown user": (
        config_text(HTTPS).replace("user: u}", "user: me}"),
        'contexts[x].context.user: "me" is not one of users (known: u)',
    ),
    "a context without a user": (
        config_text(HTTPS).replace(", user: u}", "}"),
        "contexts[x].context.user: is required",
    ),
    "a context without a name": (
        config_text(HTTPS).replace("contexts: [{name: x,", "contexts: [{"),
        'contexts[0].name: is required; {path}: current-context: "x" is not one of contexts: there are none',
    ),
    "no context in the context": (
        "{current-context: x, contexts: [{name: x}]}",
        "contexts[x].context.cluster: is required; {path}: contexts[x].context.user: is required",
    ),
    "no server": (config_text(""), "clusters[c].cluster.server: is required"),
    "a server that is a number": (config_text("server: 6443"), "clusters[c].cluster.server: 6443 is not a string"),
    "a server without a scheme": (
        config_text("server: 'localhost:6443'"),
        'clusters[c].cluster.server: "localhost:6443" is not an address such as https://10.0.0.1:6443',
    ),
    "a server whose port is none": (
        config_text("server: 'https://localhost:port'"),
        'clusters[c].cluster.server: "https://localhost:port" is not an address such as https://10.0.0.1:6443',
    ),
    "a flag of another type": (
        config_text(f"{HTTPS}, insecure-skip-tls-verify: 1"),
        "clusters[c].cluster.insecure-skip-tls-verify: 1 is not true or false",
    ),
    "no certificate": (
        config_text(f"{HTTPS}, certificate-authority: /nowhere"),
        "clusters[c].cluster.certificate-authority: /nowhere: cannot be read: No such file or directory",
    ),
    "a certificate that is a folder": (
        config_text(f"{HTTPS}, certificate-authority: /"),
        "clusters[c].cluster.certificate-authority: /: cannot be read: Is a directory",
    ),
    "a certificate that is no base64": (
        config_text(f"{HTTPS}, certificate-authority-data: Zm9"),
        "clusters[c].cluster.certificate-authority-data: is not base64",
    ),
    "a bad certificate": (
        config_text(f"{HTTPS}, certificate-authority-data: Zm9v"),
        "certificate-authority: is no certificate: NO_CERTIFICATE_OR_CRL_FOUND",
    ),
    "a bad client certificate": (
        config_text(HTTPS, "client-certificate-data: Zm9v, client-key-data: Zm9v"),
        "client-certificate and client-key: are no certificate and its key: not PEM",
    ),
    "a client certificate that is not there": (
        config_text(HTTPS, "client-certificate: crt, client-key-data: Zm9v"),
        "users[u].user.client-certificate: crt: cannot be read: No such file or directory",
    ),
    "a token of another type": (config_text(HTTPS, "token: 7"), "users[u].user.token: 7 is not a string"),
    "a token file that is not there": (
        config_text(HTTPS, "tokenFile: token"),
        "users[u].user.tokenFile: token: cannot be read: No such file or directory",
    ),
    "a plugin without a version": (
        config_text(HTTPS, "exec: {command: x, args: [1]}"),
        "users[u].user.exec.apiVersion: is required; {path}: users[u].user.exec.args[0]: 1 is not a string",
    ),
    "a plugin's variable without a value": (
        config_text(HTTPS, f"exec: {{{PLUGIN}, command: x, env: [{{name: A}}]}}"),
        "users[u].user.exec.env[0].value: is required",
    ),
    "a plugin that is not there": (
        config_text(HTTPS, f"exec: {{{PLUGIN}, command: /nowhere}}"),
        "credential plugin /nowhere: /nowhere: No such file or directory",
    ),
    "a plugin that fails": (
        config_text(HTTPS, f"exec: {{{PLUGIN}, command: 'false'}}"),
        "credential plugin false: exec: process returned 1",
    ),
    "a plugin that prints nothing": (
        config_text(HTTPS, f"exec: {{{PLUGIN}, command: 'true'}}"),
        "credential plugin true: exec: failed to decode process output: Expecting value: line 1 column 1 (char 0)",
    ),
    "a plugin that prints a number": (
        config_text(HTTPS, f"exec: {{{PLUGIN}, command: echo, args: ['7']}}"),
        "credential plugin echo: what it gives is no credential",
    ),
    "a plugin that gives no status": (printing("null"), "credential plugin echo: what it gives is no credential"),
    "a plugin that gives nothing": (
        printing("{}"),
        "credential plugin echo: it gives neither status.token nor status.clientCertificateData",
    ),
    "a plugin that gives half a certificate": (
        printing('{"clientCertificateData": "x"}'),
        "credential plugin echo: it gives neither status.token nor status.clientCertificateData",
    ),
}


@pytest.mark.parametrize(("text", "problem"), BROKEN.values(), ids=list(BROKEN))
async def test_a_kubeconfig_that_can_not_be_used_is_named(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConnectError) as caught:
        async with open_connection(Origin(str(path))):
            pass
    assert str(caught.value) == f"{path}: {problem.replace('{path}', str(path))}"


async def test_a_context_that_is_not_there_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(config_text(HTTPS))
    with pytest.raises(ConnectError) as caught:
        await load_credentials(Origin(str(path), "y"))
    assert str(caught.value) == f'{path}: --context: "y" is not one of contexts (known: x)'


async def test_of_several_files_the_first_to_say_something_counts(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n")
    other.write_text(config_text(HTTPS).replace("current-context: x", "current-context: y"))
    credentials = await load_credentials(Origin(os.pathsep.join(map(str, (one, tmp_path / "missing", other)))))
    assert (credentials.url, credentials.headers) == ("https://127.0.0.1", {"Authorization": "Bearer t"})


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make a key with")
async def test_a_key_that_needs_a_password_is_refused_not_asked_for_on_the_terminal(tmp_path: Path) -> None:
    make = "openssl req -x509 -newkey rsa:2048 -subj /CN=x -keyout key -out crt -passout pass:secret"
    made = await asyncio.create_subprocess_exec(*make.split(), cwd=tmp_path, stderr=asyncio.subprocess.DEVNULL)
    assert await made.wait() == 0
    path = tmp_path / "kubeconfig"
    path.write_text(config_text(HTTPS, "client-certificate: crt, client-key: key"))
    with pytest.raises(ConnectError, match="client-key: is encrypted; a key that needs a password can't be used"):
        await load_credentials(Origin(str(path)))


async def test_outside_of_a_pod_there_is_no_in_cluster_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConnectError, match="in-cluster configuration: Service host/port is not set"):
        async with open_connection(Origin()):
            pass


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
            await connection.call(Request("GET", "/"))
            sent.append(server.seen[0].headers["authorization"])
    assert sent == [expected for _, expected in users]


async def test_a_token_that_is_no_longer_good_is_read_anew_and_the_request_repeated(tmp_path: Path) -> None:
    async with connected(tmp_path, answer(401), OK, user=plugin(tmp_path)) as (server, connection):
        reply = await connection.call(Request("PUT", "/", body=b"{}"))
        assert reply.status == 200
        assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer token-1", "Bearer token-2"]


async def test_many_that_are_refused_at_once_read_the_token_anew_once(tmp_path: Path) -> None:
    async with connected(tmp_path, *[answer(401)] * 5, OK, user=plugin(tmp_path)) as (server, connection):
        await asyncio.gather(*(connection.call(Request("GET", f"/{number}")) for number in range(5)))
        assert {seen.headers["authorization"] for seen in server.seen[5:]} == {"Bearer token-2"}
    assert (tmp_path / "count").read_text() == "2"


async def test_who_is_refused_twice_is_told(tmp_path: Path) -> None:
    async with connected(tmp_path, answer(401)) as (server, connection):
        assert (await connection.call(Request("GET", "/"))).status == 401
        assert len(server.seen) == 2


# --- requests -----------------------------------------------------------------------------------------------


async def test_a_request_arrives_as_it_was_asked(tmp_path: Path) -> None:
    async with connected(tmp_path, answer(201, b'{"a":1}', Retry_After="7")) as (server, connection):
        request = Request("PATCH", "/a%2Fb", {"x": "1", "continue": "a+b/c="}, b"{}", MERGE_PATCH_TYPE)
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
        await connection.call(Request("GET", "/first"))
        with pytest.raises(TransportError):
            await connection.call(Request(method, "/second", body=b"{}"))
    assert [seen.start.split()[1] for seen in server.seen] == ["/first", "/second"]


async def test_a_write_that_finds_nobody_is_known_not_to_have_been_sent(tmp_path: Path) -> None:
    async with serving(OK) as server:
        origin = kubeconfig(tmp_path, server.url, {"token": "t"})
    async with open_connection(origin) as connection:
        with pytest.raises(NotSentError, match="Connect call failed"):
            await connection.call(Request("POST", "/", body=b"{}"))


async def test_redirects_are_not_followed(tmp_path: Path) -> None:
    async with connected(tmp_path, answer(302, Location="/elsewhere")) as (server, connection):
        assert (await connection.call(Request("GET", "/"))).status == 302
        assert len(server.seen) == 1


async def test_an_answer_that_is_cut_is_no_answer(tmp_path: Path) -> None:
    async with connected(tmp_path, None) as (_, connection):
        with pytest.raises(TransportError):
            await connection.call(Request("GET", "/"))


async def test_a_stream_that_is_cut_gives_what_came_and_then_says_so(tmp_path: Path) -> None:
    got = []

    async def read(server: Server, stream: Stream) -> None:
        async for chunk in stream.chunks():
            got.append(chunk)
            server.cut()

    first = CHUNKED + b"2\r\nab\r\n"
    async with connected(tmp_path, first) as (server, connection), connection.stream(Request("GET", "/")) as stream:
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
    async with connected(tmp_path, whole) as (_, connection), connection.stream(Request("GET", "/")) as stream:
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
    token.write_text("second")
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


@dataclass(slots=True)
class Configured:
    """A configuration as kubernetes-asyncio fills it."""

    host: str = "http://127.0.0.1"
    api_key: dict[str, str] = field(default_factory=dict)
    ssl_ca_cert: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_ssl: bool = True
    tls_server_name: str | None = "api.example.com"
    proxy: str | None = None


def test_credentials_are_kept_fresh_though_it_fails_at_times() -> None:
    times: list[float] = []

    async def reload() -> None:
        times.append(now())
        if len(times) == 2:
            raise ConnectError("the plugin failed")

    async def main() -> None:
        async with aiohttp.ClientSession() as session:
            fresh = asyncio.create_task(Connection(session, Credentials(Configured(), reload)).keep_fresh())
            await asyncio.sleep(200)
            fresh.cancel()

    run(main())
    assert times == [60.0, 120.0, 180.0]


def test_proxy_and_server_name_go_with_each_request() -> None:
    async def reload() -> None:
        raise AssertionError

    assert Credentials(Configured(), reload).request_options == {"server_hostname": "api.example.com"}
    assert Credentials(Configured(proxy="http://proxy:3128", tls_server_name=None), reload).request_options == {
        "proxy": "http://proxy:3128"
    }


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


async def test_a_client_certificate_that_goes_bad_leaves_the_old_one_in_force(tmp_path: Path) -> None:
    (tmp_path / "crt").write_text("no certificate")

    async def reload() -> None:
        configuration.cert_file = str(tmp_path / "crt")

    configuration = Configured(host="https://127.0.0.1")
    with pytest.raises(ConnectError, match="client-certificate and client-key: are no certificate and its key"):
        await Credentials(configuration, reload).renew()


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
                await connection.call(Request("GET", "/x"))
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
            await connection.call(Request("GET", "/x"))
        assert api.seen[0].headers["authorization"] == "Bearer t"


# --- all of it ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def served_over_http(fake: FakeApi) -> AsyncIterator[str]:
    """The URL of a server that passes requests on to a fake API server, one per connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = await _request(reader)
        method, target, _ = seen.start.split()
        url = urlsplit(target)
        request = Request(method, url.path, dict(parse_qsl(url.query)), seen.body)
        try:
            if "watch" in request.query:
                async with fake.stream(request) as stream:
                    writer.write(CHUNKED)
                    async for chunk in stream.chunks():
                        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            else:
                reply = await fake.call(request)
                writer.write(answer(reply.status, reply.body, Connection="close"))
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_live_cluster_is_connected_to_synced_and_followed(tmp_path: Path) -> None:
    fake, state = FakeApi(), ClusterState()
    fake.put(CLAIMS, make_claim("a"))
    async with (
        served_over_http(fake) as url,
        connect(kubeconfig(tmp_path, url, {"token": "t"}), random=half) as cluster,
    ):
        following = asyncio.create_task(cluster.run(state))
        async with asyncio.timeout(20):
            await state.passed(CLAIMS, 101)
            fake.put(CLAIMS, make_claim("b"))
            await state.passed(CLAIMS, 102)
            while state.not_ready:
                await asyncio.wait([following], timeout=0.01)
        assert sorted(state.snapshot.claims) == [default("a"), default("b")]
        assert (await cluster.api.get(CLAIMS, default("b")))["metadata"]["resourceVersion"] == "102"
        following.cancel()
        await asyncio.wait([following])


@pytest.mark.parametrize("resources", [AUDITED, EXPLAINED])
async def test_who_only_reads_a_live_cluster_needs_no_right_to_write_or_watch(
    tmp_path: Path, resources: Collection[Resource]
) -> None:
    writes = {(permission.verb, str(permission).split()[1].partition(".")[0]) for permission in (*WRITES, ALLOCATES)}
    fake = FakeApi(denied=frozenset(writes | {("watch", resource.plural) for resource in RESOURCES.values()}))
    fake.put(CLAIMS, make_claim("a"))
    async with served_over_http(fake) as url:
        origin = kubeconfig(tmp_path, url, {"token": "t"})
        assert list((await listed_live(origin, resources)).claims) == [default("a")]
        with pytest.raises(ConnectError, match="not allowed: watch pods"):
            async with connect(origin, random=half):
                pass


@pytest.mark.parametrize(("stale", "is_ready"), [(70.0, False), (100.0, True)])
async def test_the_setting_says_after_how_much_silence_nothing_is_relied_on(
    tmp_path: Path, stale: float, *, is_ready: bool
) -> None:
    settings, fake = load(flags={"cluster.staleSeconds": stale}), FakeApi()
    async with (
        served_over_http(fake) as url,
        live(kubeconfig(tmp_path, url, {"token": "t"}), settings) as cluster,
        asyncio.timeout(20),
    ):
        await cluster.state.passed(CLAIMS, fake.revision)
        assert cluster.live is not None
        for follower in cluster.live.followers:
            follower.check(now() + 80)
        assert (cluster.state.doubt_of(CLAIMS) == "") is is_ready
