"""The service as a process: on a port of its own, spoken to as kube-scheduler does, stopped as a kubelet does."""

import asyncio
import re
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx
import orjson
import pytest
import yaml
from httpx import AsyncClient

from tests.extender.faces.serving.process import serving, start
from tests.kit.certificates import Authority, trusting
from tests.kit.clusters import GPU, Object, asking, binding, claim, local_slice, node, pod
from tests.kit.places import ROOT
from tests.kit.process import free_port
from tests.kit.waiting import wait_for_answer

OBJECTS = (
    GPU,
    node("a"),
    local_slice("a"),
    claim("c"),
    pod("p", "c"),
)
ASKED: Object = asking(pod("p", "c"), "a", "b")


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(OBJECTS))
    return path


@pytest.fixture
def operations_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A port of its own for health and metrics."""
    port = free_port()
    monkeypatch.setenv("DRA_EXTENDER__OPERATIONS__HOST", "127.0.0.1")
    monkeypatch.setenv("DRA_EXTENDER__OPERATIONS__PORT", str(port))
    return port


async def test_it_serves_and_stops_on_sigterm(manifests: Path) -> None:
    async with serving("--manifests", str(manifests)) as (process, url), AsyncClient(base_url=url) as client:
        assert (await client.get("/readyz")).text == "ok\n"
        reply = (await client.post("/filter", content=orjson.dumps(ASKED))).json()
        assert (reply["NodeNames"], reply["FailedAndUnresolvableNodes"]) == (["a"], {"b": "node not yet known"})
        bind = binding("p", "a")
        assert (await client.post("/bind", content=orjson.dumps(bind))).json() == {}
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            _, rest = await process.communicate()
        assert process.returncode == 0
        assert [orjson.loads(line)["event"] for line in rest.splitlines()][-1] == "stopped"


async def test_health_and_metrics_have_a_port_of_their_own_where_that_is_wanted(
    manifests: Path, operations_port: int
) -> None:
    async with (
        serving("--manifests", str(manifests)) as (process, _),
        AsyncClient(base_url=f"http://127.0.0.1:{operations_port}") as client,
    ):
        assert (await client.get("/readyz")).text == "ok\n"
        assert "dra_extender_objects" in (await client.get("/metrics")).text
        assert "process_resident_memory_bytes" in (await client.get("/metrics")).text
        assert (await client.post("/filter", content=orjson.dumps(ASKED))).status_code == 404
        assert (await client.get("/devices")).status_code == 404
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await process.communicate()
        assert process.returncode == 0


async def test_who_reaches_the_port_for_health_takes_no_connections_from_the_verbs(
    manifests: Path, operations_port: int
) -> None:
    async with serving("--manifests", str(manifests)) as (process, url), AsyncClient(base_url=url) as client:
        before = len(descriptors(process.pid))
        idle = [await asyncio.open_connection("127.0.0.1", operations_port) for _ in range(200)]
        try:
            assert "a" in (await client.post("/filter", content=orjson.dumps(ASKED))).json()["NodeNames"]
            async with AsyncClient(base_url=f"http://127.0.0.1:{operations_port}") as kubelet:
                assert (await kubelet.get("/livez")).text == "ok\n"
            assert len(descriptors(process.pid)) - before < 40
        finally:
            for _, writer in idle:
                writer.transport.abort()


def descriptors(pid: int) -> list[Path]:
    """What a process has open."""
    return list(Path(f"/proc/{pid}/fd").iterdir())


async def test_a_reply_leaves_in_one_piece_and_the_connection_stays(manifests: Path) -> None:
    async with serving("--manifests", str(manifests)) as (_, url):
        port = int(url.rpartition(":")[2])
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setblocking(False)
            body = orjson.dumps(ASKED)
            head = f"POST /filter HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            for _ in range(3):
                await loop.sock_sendall(connection, head + body)
                async with asyncio.timeout(30):
                    received = await loop.sock_recv(connection, 65536)
                headers, _, content = received.partition(b"\r\n\r\n")
                assert re.match(rb"HTTP/1.1 200 ", headers)
                assert f"content-length: {len(content)}".encode() in headers.lower()
                assert orjson.loads(content)["NodeNames"] == ["a"]


async def test_a_port_that_is_taken_is_an_error_with_status_2(manifests: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await start("--port", str(port), "--manifests", str(manifests))
        async with asyncio.timeout(60):
            _, errors = await process.communicate()
    assert process.returncode == 2
    assert errors.decode() == f"error: cannot listen on 127.0.0.1:{port}: Address already in use\n"


async def test_several_manifests_after_one_option(manifests: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.yaml"
    more.write_text(yaml.safe_dump_all([node("b")]))
    async with serving("--manifests", str(manifests), str(more)) as (_, url), AsyncClient(base_url=url) as client:
        assert (await client.get("/")).json()["cluster"]["nodes"] == 2


# The service as a process with TLS, spoken to as a kube-scheduler with a certificate does.


REFUSED = (httpx.TransportError, ssl.SSLError)  # httpx passes on the latter where a client waits for its answer
EXAMPLE = ("--manifests", str(ROOT / "config" / "example"))


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Path]:
    """Certificates for the scheduler's port, and settings that name them."""
    certificate, key = authority.server("127.0.0.1").write(tmp_path)
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authority.pem)
    found = {"CERTIFICATE": certificate, "KEY": key, "CLIENT_CA": ca}
    for name, path in found.items():
        monkeypatch.setenv(f"DRA_EXTENDER__SERVER__{name}", str(path))
    return found


async def test_a_client_with_a_certificate_is_served_to_the_end(
    files: Mapping[str, Path], authority: Authority, tmp_path: Path
) -> None:
    assert files
    known = trusting(authority, authority.client("kube-scheduler"), tmp_path)
    async with serving(*EXAMPLE) as (process, url):
        assert url.startswith("https://127.0.0.1:")
        async with httpx.AsyncClient(base_url=url, verify=known, trust_env=False) as client:
            assert (await client.get("/readyz", headers={"host": "extender.kube-system.svc"})).text == "ok\n"
            assert "Error" in (await client.post("/filter", content=b"{}")).json()
        async with httpx.AsyncClient(base_url=url, verify=trusting(authority), trust_env=False) as stranger:
            with pytest.raises(REFUSED):
                await stranger.get("/readyz")
        async with httpx.AsyncClient(base_url=url.replace("https", "http"), trust_env=False) as plain:
            with pytest.raises(REFUSED):
                await plain.get("/readyz")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            _, log = await process.communicate()
        assert process.returncode == 0
        lines = [orjson.loads(line) for line in log.splitlines()]
        assert [each["why"] for each in lines if each["event"] == "caller refused"] == [
            "peer did not return a certificate",
            "http request",
        ]


BAD = {
    "no key": ("server", {"KEY": ""}, "server.key: server.certificate needs the file of its private key"),
    "no file": ("server", {"KEY": "/nowhere/tls.key"}, "server: /nowhere/tls.key: cannot be read: No such file"),
    "no API server": (
        "api",
        {"PORT": "8443", "CERTIFICATE": "a", "KEY": "b"},
        "api.port: an API server says who callers are and what they may do, and a cluster in memory has none",
    ),
}


@pytest.mark.parametrize(("section", "settings", "message"), BAD.values(), ids=BAD)
async def test_what_cannot_be_served_is_an_error_that_names_it(
    files: Mapping[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    section: str,
    settings: Mapping[str, str],
    message: str,
) -> None:
    assert files
    for name, value in settings.items():
        monkeypatch.setenv(f"DRA_EXTENDER__{section.upper()}__{name}", value)
    process = await start("--port", "0", *EXAMPLE)
    async with asyncio.timeout(60):
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert message in errors.decode()


async def test_a_client_whose_authority_goes_is_cut_off_without_a_restart(
    files: Mapping[str, Path], authority: Authority, tmp_path: Path
) -> None:
    known = trusting(authority, authority.client("kube-scheduler"), tmp_path)

    async def lines(process: asyncio.subprocess.Process) -> AsyncIterator[str]:
        assert process.stderr is not None
        async for line in process.stderr:
            yield orjson.loads(line)["event"]

    async with (
        serving(*EXAMPLE) as (process, url),
        httpx.AsyncClient(base_url=url, verify=known, trust_env=False) as client,
    ):
        assert (await client.get("/readyz")).status_code == 200
        files["CLIENT_CA"].write_bytes(Authority("new").pem)
        async with asyncio.timeout(30):
            async for event in lines(process):
                if event == "certificates read again":
                    break

        async def is_refused() -> bool:
            try:
                await client.get("/readyz")
            except REFUSED:
                return True
            return False

        await wait_for_answer(is_refused, bool, "the client is cut off", within=10)
