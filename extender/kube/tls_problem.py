"""Explains why a TLS connection of ours failed: whose certificate is not accepted, and why."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

_OURS: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")
"""Parts of the names of alerts that a server sends about a client's certificate (RFC 8446, section 6.2)."""


class Subject(Enum):
    """What a problem is about."""

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
