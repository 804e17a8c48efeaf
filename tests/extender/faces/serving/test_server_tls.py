"""The service as a process with TLS, spoken to as a kube-scheduler with a certificate does."""

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx
import orjson
import pytest

from tests.extender.faces.serving.process import ROOT, serving, start
from tests.kit.certificates import Authority, trusting

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
        with pytest.raises(REFUSED):
            await client.get("/readyz")
