"""The kit for controllers with TLS, and what the service says about certificates and tokens that are not accepted."""

from pathlib import Path

import pytest

from allocator.tools import JSON
from extender.config.controllers import ControllerSettings
from extender.controllers import CertificateFiles, Certificates, Listening, Responder, Store
from extender.plugins.negotiation.controller import ControllerError
from extender.plugins.negotiation.http import HttpController
from extender.plugins.negotiation.protocol import UNSUITABLE_NODES, ClaimAsk, NegotiatedQuestion, NodeName, PodName
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
