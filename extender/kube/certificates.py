"""Certificates: those of a listener, read again when their files change; and which certificate a connection rejects."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

import structlog

from extender.tools.files import UnreadableError, read_bytes

logger = structlog.get_logger()

SECONDS_BETWEEN_LOOKS: Final = 5.0
"""kubelet itself brings a changed Secret into a pod only about once a minute."""

_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_ENCRYPTED: Final = b"ENCRYPTED"
"""In the first line of a key (PKCS #8), or in the second (PKCS #1), if there is a passphrase."""


def trusting(*, file: str | Path | None = None, pem: str | None = None) -> ssl.SSLContext:
    """TLS of a client that trusts some authorities, or those of the system.

    From Python 3.13 on, certificates must have extensions that those of many clusters lack, and that Go does not ask
    for. They are accepted without, so that every Python, and kubectl, accept the same certificates.

    Args:
        file: of the authorities, in PEM.
        pem: the authorities themselves.

    Raises:
        OSError: the file cannot be read.
        ssl.SSLError: there is no certificate.
    """
    context = ssl.create_default_context(cafile=file, cadata=pem)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


class HandshakeError(ssl.SSLError):
    """A handshake has failed.

    Attributes:
        why: in OpenSSL's words.
        alert: the bytes that tell the other side; event loops do not send them.
    """

    def __init__(self, error: ssl.SSLError, alert: bytes) -> None:
        super().__init__(*error.args)
        self.alert = alert
        if isinstance(error, ssl.SSLCertVerificationError):
            self.why = f"the client certificate is not accepted: {error.verify_message}"
        else:
            self.why = (error.reason or str(error)).lower().replace("_", " ")


class _Side(ssl.SSLObject):
    """Our side of a connection."""

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """Go on with the handshake. Raises HandshakeError: it has failed."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            raise HandshakeError(error, self.outgoing.read()) from error


class _Context(ssl.SSLContext):
    """A context whose failed handshakes raise `HandshakeError`."""

    sslobject_class = _Side

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002  # as Python's own
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Our side of a connection whose bytes are in memory."""
        side = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        if isinstance(side, _Side):
            side.outgoing = outgoing
        return side


class CertificateError(Exception):
    """A file of certificates or keys cannot be used. The text names the file and says why."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of one listener, all in PEM.

    Attributes:
        certificate: the listener's certificate, and those of intermediate authorities after it.
        key: the private key of the certificate, without a passphrase.
        client_ca: the authorities whose certificates prove who a client is; None: clients are not asked for one.
        required: whether a client without a certificate is refused in the handshake.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Pem:
    """The content of the files, for libraries that take no files. Certificate and key belong together."""

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes


class Certificates:
    """The certificates in use: those of the files as they were when they last could be used.

    Args:
        files: where they are.

    Raises:
        CertificateError: a file cannot be used.

    Attributes:
        context: TLS 1.3 with these certificates, for the handshakes from now on. It is replaced and never changed, so a
            running handshake keeps its own.
        pem: the content of the files.
    """

    def __init__(self, files: CertificateFiles) -> None:
        self.files = files
        self.pem = _read(files)
        self.context = _context(files, self.pem)
        self._problem = ""

    def refresh(self) -> bool:
        """Read the files; returns whether other certificates are in use from now on.

        It reads from a disk, so a program with an event loop calls it in a thread.

        Raises:
            CertificateError: a file cannot be used. The certificates before stay in use.
        """
        found = _read(self.files)
        if found == self.pem:
            return False
        self.context = _context(self.files, found)
        self.pem = found
        return True

    def look(self) -> bool:
        """Refresh, and log what is wrong with new files, once; returns whether clients lose trust.

        They do if an authority for clients is trusted no longer. This reads from a disk, as `refresh` does.
        """
        authorities, problem = _authorities(self.context), ""
        try:
            if self.refresh():
                logger.info("certificates read again", certificate=str(self.files.certificate))
        except CertificateError as error:
            problem = str(error)
            if problem != self._problem:
                logger.warning("new certificates cannot be used; the former ones stay in use", problem=problem)
        self._problem = problem
        return bool(authorities - _authorities(self.context))

    async def follow(
        self, distrusted: Callable[[], None] = lambda: None, *, seconds: float = SECONDS_BETWEEN_LOOKS
    ) -> None:
        """Look again and again, until cancelled; ``distrusted`` is called if clients lose trust.

        Args:
            distrusted: what to do then, in the event loop.
            seconds: between two looks.
        """
        while True:
            await asyncio.sleep(seconds)
            if await asyncio.to_thread(self.look):
                distrusted()


def _authorities(context: ssl.SSLContext) -> frozenset[bytes]:
    return frozenset(context.get_ca_certs(binary_form=True))


def _read(files: CertificateFiles) -> Pem:
    paths = (files.certificate, files.key, files.client_ca)
    return Pem(*(b"" if path is None else _content(path) for path in paths))


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except UnreadableError as error:
        raise CertificateError(f"{path}: {error}") from error


def _context(files: CertificateFiles, pem: Pem) -> ssl.SSLContext:
    """TLS with the certificates of the files, whose content is ``pem``.

    Raises:
        CertificateError: a file cannot be used, or the files have changed meanwhile.
    """
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A resumed session would not be checked against authorities and times again.
    context.num_tickets = 0
    if _BEGIN not in pem.certificate:
        raise CertificateError(f"{files.certificate}: there is no certificate in PEM")
    if _ENCRYPTED in pem.key:
        raise CertificateError(f"{files.key}: the key has a passphrase; give a key without one")
    try:
        # Without a password, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except (ssl.SSLError, OSError) as error:
        raise CertificateError(f"{files.certificate} and {files.key}: {file_problem(error)}") from error
    if files.client_ca is not None:
        _trust(context, files.client_ca, pem.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if files.required else ssl.CERT_OPTIONAL
    if _read(files) != pem:
        raise CertificateError(f"{files.certificate} and {files.key}: they changed while they were read")
    return context


def _trust(context: ssl.SSLContext, path: Path, pem: bytes) -> None:
    if _BEGIN not in pem:
        raise CertificateError(f"{path}: there is no certificate in PEM")
    try:
        context.load_verify_locations(cadata=pem.decode("ascii", errors="replace"))
    except ssl.SSLError as error:
        raise CertificateError(f"{path}: {file_problem(error)}") from error
    # An intermediate authority may be trusted without its root, as in Go.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


_REASONS: Final = {
    "KEY_VALUES_MISMATCH": "the key is not that of the certificate",
    "KEY_TYPE_MISMATCH": "the key is not that of the certificate",
    "EE_KEY_TOO_SMALL": "the key of the certificate is too short",
}


def file_problem(error: OSError) -> str:
    """Why files are no certificate with its key, or no authorities."""
    if not isinstance(error, ssl.SSLError):
        return f"cannot be read: {error.strerror or error}"
    reason = error.reason or "not PEM"  # for input that is not PEM, OpenSSL names only a place in its code
    return _REASONS.get(reason) or f"it is no certificate or no key ({reason})"


_OURS: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")
"""Parts of the names of alerts that a server sends about a client's certificate (RFC 8446, section 6.2)."""


class Subject(Enum):
    """The subject of a problem."""

    THEIRS = "we do not accept the server's certificate"
    OURS = "the server does not accept our certificate, or asks for one"
    NO_TLS = "the server does not speak TLS"
    OTHER = "something else, such as the version of TLS"


@dataclass(frozen=True, slots=True)
class TlsProblem:
    """A problem of TLS.

    Attributes:
        reason: in OpenSSL's words.
    """

    subject: Subject
    reason: str


def tls_problem(error: BaseException | None) -> TlsProblem | None:
    """What an error of an HTTP client says about TLS; None: nothing."""
    # The errors of some libraries are SSLErrors, too, and have nothing of OpenSSL: they wrap the error that has.
    for each in _causes(error):
        if isinstance(each, ssl.SSLCertVerificationError) and hasattr(each, "verify_message"):
            return TlsProblem(Subject.THEIRS, each.verify_message.rstrip("."))
        if isinstance(each, ssl.SSLError) and getattr(each, "reason", None):
            return _problem(each.reason)
    return None


def _problem(reason: str) -> TlsProblem:
    if reason == "WRONG_VERSION_NUMBER":
        return TlsProblem(Subject.NO_TLS, "")
    _, found, alert = reason.partition("ALERT_")
    is_ours = found and any(part in alert for part in _OURS)
    return TlsProblem(Subject.OURS if is_ours else Subject.OTHER, (alert or reason).lower().replace("_", " "))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
