"""Certificates from files: what is refused, and how a change of the files takes effect."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from extender.kube.certificates import CertificateError, CertificateFiles, Certificates, HandshakeError
from extender.kube.certificates import trusting as as_we_trust
from tests.kit.certificates import HOST, Authority, trusting

AUTHORITY, OTHER = Authority("one"), Authority("other")


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    certificate, key = AUTHORITY.server().write(tmp_path)
    authorities = tmp_path / "ca.crt"
    authorities.write_bytes(AUTHORITY.pem)
    return CertificateFiles(certificate, key, authorities, required=True)


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[str | None, ssl.SSLObject]:
    """A handshake in memory: the version of TLS, and the server's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=HOST)
    unfinished = {ours, theirs}
    while unfinished:
        for side in (theirs, ours):
            try:
                side.do_handshake()
                unfinished.discard(side)
            except ssl.SSLWantReadError:
                continue
    return ours.version(), ours


def test_tls_is_1_3_and_the_client_is_known_by_its_certificate(files: CertificateFiles, tmp_path: Path) -> None:
    client = trusting(AUTHORITY, AUTHORITY.client("ann", ["team-a", "team-b"]), tmp_path)
    version, side = shake(Certificates(files).context, client)
    assert version == "TLSv1.3"
    certificate = side.getpeercert()
    assert certificate
    assert [pair for names in certificate["subject"] for pair in names] == [
        ("organizationName", "team-a"),
        ("organizationName", "team-b"),
        ("commonName", "ann"),
    ]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: AUTHORITY.client("ann", ends=-10.0), "certificate has expired"),
        (lambda: AUTHORITY.client("ann", begins=600.0), "certificate is not yet valid"),
        (lambda: OTHER.client("ann"), "unable to get local issuer certificate"),
        (AUTHORITY.server, "unsuitable certificate purpose"),
    ],
    ids=["expired", "not yet valid", "of another authority", "of a server"],
)
def test_a_wrong_certificate_is_refused_in_the_handshake(
    files: CertificateFiles, tmp_path: Path, make: Callable[[], object], reason: str
) -> None:
    client = trusting(AUTHORITY, make(), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(HandshakeError, match=reason) as caught:
        shake(Certificates(files).context, client)
    assert caught.value.why == f"the client certificate is not accepted: {reason}"
    assert caught.value.alert


def test_a_client_without_certificate_is_refused_only_where_one_is_required(files: CertificateFiles) -> None:
    optional = Certificates(CertificateFiles(files.certificate, files.key, files.client_ca))
    _, side = shake(optional.context, trusting(AUTHORITY))
    assert side.getpeercert() is None
    with pytest.raises(ssl.SSLError, match=r"(?i)peer did not return a certificate"):
        shake(Certificates(files).context, trusting(AUTHORITY))


def test_each_python_accepts_the_same_authorities(files: CertificateFiles) -> None:
    """This authority lacks the extension for the use of its key, which Python asks for from 3.13 on."""
    client = as_we_trust(pem=AUTHORITY.pem.decode())
    assert not client.verify_flags & ssl.VERIFY_X509_STRICT
    server = CertificateFiles(files.certificate, files.key, files.client_ca)
    version, _ = shake(Certificates(server).context, client)
    assert version == "TLSv1.3"


def test_older_tls_is_refused(files: CertificateFiles) -> None:
    client = trusting(AUTHORITY)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)unsupported.protocol"):
        shake(Certificates(files).context, client)


def written(name: str, content: bytes) -> Callable[[CertificateFiles], object]:
    return lambda files: getattr(files, name).write_bytes(content)


BROKEN: dict[str, tuple[Callable[[CertificateFiles], object], str]] = {
    "no certificate": (lambda files: files.certificate.unlink(), "tls.crt: cannot be read: No such file or directory"),
    "no key": (lambda files: files.key.unlink(), "tls.key: cannot be read: No such file or directory"),
    "empty": (written("certificate", b""), "tls.crt: there is no certificate in PEM"),
    "nonsense": (
        written("certificate", b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"),
        "tls.key: it is no certificate or no key",
    ),
    "another key": (written("key", OTHER.server().key), "tls.key: the key is not that of the certificate"),
    "a key with a passphrase": (
        written("key", b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n"),
        "tls.key: the key has a passphrase; give a key without one",
    ),
    "authorities that are none": (written("client_ca", b"x"), "ca.crt: there is no certificate in PEM"),
    "broken authorities": (
        written("client_ca", b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"),
        "ca.crt: it is no certificate",
    ),
}


@pytest.mark.parametrize(("break_", "message"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_cannot_be_used_is_named(
    files: CertificateFiles, break_: Callable[[CertificateFiles], object], message: str
) -> None:
    certificates = Certificates(files)
    context = certificates.context
    break_(files)
    with pytest.raises(CertificateError, match=message.replace(".", r"\.")):
        Certificates(files)
    with pytest.raises(CertificateError):
        certificates.refresh()
    assert certificates.context is context


def test_a_change_is_used_from_the_next_handshake_on(files: CertificateFiles, tmp_path: Path) -> None:
    certificates = Certificates(files)
    assert not certificates.refresh()
    before = certificates.context
    OTHER.server().write(tmp_path)
    assert certificates.refresh()
    assert certificates.pem.certificate == files.certificate.read_bytes()
    ann = AUTHORITY.client("ann")
    assert shake(certificates.context, trusting(OTHER, ann, tmp_path))[0]
    assert shake(before, trusting(AUTHORITY, ann, tmp_path))[0]


def test_a_secret_changes_when_its_link_is_swapped(tmp_path: Path) -> None:
    """As kubelet mounts a Secret: ``tls.crt`` points to ``..data/tls.crt``, and ``..data`` to a folder."""
    folders = [tmp_path / name for name in ("..one", "..two")]
    for folder, authority in zip(folders, (AUTHORITY, OTHER), strict=True):
        folder.mkdir()
        authority.server().write(folder)
    data = tmp_path / "..data"
    data.symlink_to(folders[0].name)
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    certificates = Certificates(CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key"))
    (tmp_path / "..data_tmp").symlink_to(folders[1].name)
    (tmp_path / "..data_tmp").rename(data)
    assert certificates.refresh()
    assert shake(certificates.context, trusting(OTHER))[0]


def test_what_is_written_file_after_file_is_used_once_it_belongs_together(files: CertificateFiles) -> None:
    new, certificates = OTHER.server(), Certificates(files)
    with capture_logs() as logs:
        files.certificate.write_bytes(new.certificate)
        assert [certificates.look() for _ in range(3)] == [False] * 3
        assert certificates.pem.certificate != new.certificate
        files.key.write_bytes(new.key)
        assert [certificates.look() for _ in range(3)] == [False] * 3
    assert certificates.pem.certificate == new.certificate
    assert [each["event"] for each in logs] == [
        "new certificates cannot be used; the former ones stay in use",
        "certificates read again",
    ]
    assert "the key is not that of the certificate" in logs[0]["problem"]


def test_clients_lose_trust_when_an_authority_is_gone_and_not_when_there_is_one_more(files: CertificateFiles) -> None:
    assert files.client_ca
    certificates = Certificates(files)
    told = []
    for content in (AUTHORITY.pem + OTHER.pem, OTHER.pem, OTHER.pem):
        files.client_ca.write_bytes(content)
        told.append(certificates.look())
    assert told == [False, True, False]


async def test_the_files_are_followed_until_that_is_cancelled(files: CertificateFiles) -> None:
    certificates = Certificates(files)
    lost = asyncio.Event()
    replace(files.client_ca, OTHER.pem)
    following = asyncio.create_task(certificates.follow(lost.set, seconds=0.01))
    async with asyncio.timeout(20):
        await lost.wait()
    following.cancel()
    assert certificates.pem.client_ca == OTHER.pem


def replace(path: Path | None, content: bytes) -> None:
    assert path
    path.write_bytes(content)
