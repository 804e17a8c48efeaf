"""The kit for controllers with TLS, and what the service says about certificates and tokens that are not accepted."""

import os
from pathlib import Path

import pytest

from allocator.tools import JSON
from extender.config.settings import ControllerSettings
from extender.controllers import CertificateFiles, Certificates, Listening, Responder, Store
from extender.controllers.store import Entry
from extender.plugins.negotiation.http import HttpController
from extender.plugins.negotiation.protocol import (
    UNSUITABLE_NODES,
    ClaimAsk,
    ControllerError,
    NegotiatedQuestion,
    NodeName,
    PodName,
)
from extender.tools.intake import Budget
from tests.kit.certificates import Authority
from tests.kit.driver import answering

QUESTION = NegotiatedQuestion(
    UNSUITABLE_NODES, (ClaimAsk("ns", "c", "uid-c"),), PodName("ns", "p", "uid-p"), (NodeName("n"),)
)
SELF_SIGNED = "self-signed certificate in certificate chain"
OURS, OTHERS = Authority("ours"), Authority("others")


class Willing:
    """A controller to whom all is right; implements `extender.controllers.Controller`."""

    def unsuitable_nodes(self, *_: object) -> dict[str, str]:
        return {}

    def allocate(self, *_: object, **__: object) -> dict[str, JSON]:
        return {}

    def deallocate(self, held: object) -> None:
        assert held


@pytest.fixture(name="listening")
def _listening(tmp_path: Path) -> Listening:
    """TLS for clients that show a certificate and a token."""
    (tmp_path / "ca.crt").write_bytes(OURS.pem)
    (tmp_path / "token").write_text("secret\n")
    OURS.client("dra-extender").write(tmp_path, "client")
    OTHERS.client("dra-extender").write(tmp_path, "foreign")
    OURS.client("dra-extender", begins=-100.0, ends=-50.0).write(tmp_path, "old")
    (tmp_path / "foreign-ca.crt").write_bytes(OTHERS.pem)
    (tmp_path / "foreign-token").write_text("guess")
    certificates = Certificates(
        CertificateFiles(*OURS.server().write(tmp_path, "server"), tmp_path / "ca.crt", required=True)
    )
    return Listening(certificates=certificates, token=tmp_path / "token")


async def said(url: str, folder: Path, **files: str) -> str:
    """What the service says of its question; empty if it was answered."""
    named = {"ca": "ca.crt", "certificate": "client.crt", "token": "token", **files}
    named["key"] = named["certificate"].replace(".crt", ".key")
    paths = {key: str(folder / name) for key, name in named.items() if name}
    controller = HttpController(
        ControllerSettings.model_validate({"name": "a.example.com", "url": url, **paths}), Budget()
    )
    try:
        return "" if (await controller.ask(QUESTION)).unsuitable else "nothing"
    except ControllerError as error:
        return str(error).replace(url, "URL").replace(str(folder), "DIR")
    finally:
        await controller.close()


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, ""),
        (
            {"ca": "foreign-ca.crt"},
            f"the certificate of URL is not accepted: {SELF_SIGNED}. The authorities are file DIR/foreign-ca.crt",
        ),
        ({"certificate": "foreign.crt"}, "URL does not accept our certificate DIR/foreign.crt: unknown ca"),
        ({"certificate": "old.crt"}, "URL does not accept our certificate DIR/old.crt: certificate expired"),
        ({"certificate": ""}, "URL asks for our certificate, and the settings name none: certificate required"),
        ({"token": ""}, "HTTP 401: the token is not that of this controller"),
        ({"token": "foreign-token"}, "HTTP 401: the token is not that of this controller"),
        ({"ca": "missing.crt"}, "ca DIR/missing.crt: cannot be read: No such file or directory"),
        (
            {"certificate": "token"},
            "certificate DIR/token and key DIR/token: it is no certificate or no key (not PEM)",
        ),
    ],
)
async def test_who_does_not_accept_whom_is_told(
    tmp_path: Path, listening: Listening, files: dict[str, str], problem: str
) -> None:
    with answering(Responder(Willing(), Store(tmp_path / "store.json")), listening) as url:
        assert await said(url, tmp_path, **files) == problem


async def test_renewed_certificates_of_the_kit_are_used_without_a_restart(tmp_path: Path, listening: Listening) -> None:
    with answering(Responder(Willing(), Store(tmp_path / "store.json")), listening) as url:
        OURS.server("elsewhere.test").write(tmp_path, "server")
        assert "certificate is not valid for '127.0.0.1'" in await said(url, tmp_path)


async def test_controller_without_tls_is_told(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(OURS.pem)
    with answering(Responder(Willing(), Store(tmp_path / "store.json"))) as url:
        told = await said(url.replace("http:", "https:"), tmp_path, certificate="", token="")
    assert told == "URL does not speak TLS; its url may begin with http:"


def test_token_needs_tls() -> None:
    with pytest.raises(ValueError, match="token: a token without TLS"):
        Listening(token=Path("token"))


# The file of a controller's allocations: what a crash leaves, what it grows to, and files that are something else.


def entry(uid: str, license_: str = "1", attempt: int = 1) -> Entry:
    claim = ClaimAsk("ns", uid, uid, attempt, ({"name": "seat", "count": 2},))
    return Entry(claim, NodeName("n", {"site": "a"}), {"devices": {"config": [{"license": license_}]}})


def content(path: Path) -> tuple[dict[str, Entry], dict[str, int]]:
    found = Store.open(path)
    return found.allocated, found.released


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "store.json")
    store.allocate("x", entry("x"))
    store.allocate("y", entry("y"))
    store.release("y", 2)
    return store


def test_next_process_knows_the_same(store: Store) -> None:
    assert content(store.path) == (store.allocated, store.released) == ({"x": entry("x")}, {"y": 2})


def test_change_that_a_crash_has_cut_off_did_not_happen(store: Store) -> None:
    before, whole = content(store.path), store.path.read_bytes()
    store.release("x", 5)
    last = store.path.read_bytes()[len(whole) :]
    for kept in range(len(last)):
        store.path.write_bytes(whole + last[:kept])
        assert content(store.path) == before


def test_changes_after_a_crash_are_whole(store: Store) -> None:
    store.path.write_bytes(store.path.read_bytes() + b'{"uid": "z", "rel')
    successor = Store.open(store.path)
    successor.allocate("w", entry("w"))
    successor.release("x", 3)
    assert content(store.path) == ({"w": entry("w")}, {"y": 2, "x": 3})


def test_first_change_that_a_crash_has_cut_off_did_not_happen(tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    path.write_text('{"uid')
    store = Store.open(path)
    store.release("x", 1)
    assert content(path) == ({}, {"x": 1})


def test_write_that_failed_leaves_no_half_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            store.allocate("z", entry("z"))
    assert "z" not in store.allocated
    store.release("x", 4)
    assert content(store.path) == ({}, {"y": 2, "x": 4})


def test_folder_is_on_disk_before_a_new_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a loss of power may bring back the file before, without the changes since."""
    flushed: list[int] = []
    monkeypatch.setattr("os.fsync", lambda number: flushed.append(os.fstat(number).st_ino))
    store, folder = Store.open(tmp_path / "store.json"), tmp_path.stat().st_ino
    store.release("x", 1)
    assert flushed == [store.path.stat().st_ino, folder]
    replaced = []
    for attempt in range(2, 300):
        before = store.path.stat().st_ino
        flushed.clear()
        store.release("x", attempt)
        if store.path.stat().st_ino != before:
            replaced.append(flushed[:2] == [store.path.stat().st_ino, folder])
    assert replaced
    assert all(replaced)


def test_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.json")
    for attempt in range(1, 301):
        store.release("x", attempt)
    assert len(store.path.read_text().splitlines()) < 110
    assert content(store.path) == ({}, {"x": 300})


@pytest.mark.parametrize("text", ["[]", "{}\n", "[]\n", '{"allocated": {}}', '{"uid": "x"}\n', "a\nb\n"])
def test_file_that_is_no_store_is_refused_and_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "store.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a file of a store: line 1"):
        Store.open(path)
    assert path.read_text() == text
