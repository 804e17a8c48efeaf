"""Users: who a caller is, by its certificate or by the answer to a TokenReview."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

AUTHENTICATED: Final = "system:authenticated"
"""The group of all users that are known. API servers add it; TokenReviews have it."""

PeerCertificate: TypeAlias = Mapping[str, Any]
"""A client's certificate as `ssl.SSLSocket.getpeercert` returns it: checked against the authorities already."""


@dataclass(frozen=True, slots=True)
class User:
    """A user of the API server.

    Attributes:
        extra: further facts about the user, which an authorizer may look at.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


def user_of_certificate(certificate: PeerCertificate) -> User | None:
    """The user of a client certificate, as API servers read it: the common name, and organizations as groups.

    None if there is no common name.
    """
    pairs = [pair for names in certificate.get("subject", ()) for pair in names]
    name = next((value for key, value in pairs if key == "commonName"), "")
    groups = tuple(value for key, value in pairs if key == "organizationName")
    return User(name, groups=(*groups, AUTHENTICATED)) if name else None


def end_of(certificate: PeerCertificate) -> float:
    """When a certificate ends, in seconds since 1970."""
    return float(ssl.cert_time_to_seconds(certificate["notAfter"]))


def user_of_review(status: Mapping[str, Any]) -> User | None:
    """The user in the status of a TokenReview; None if the token is not valid."""
    user = status.get("user") or {}
    name = user.get("username")
    if status.get("authenticated") is not True or not isinstance(name, str) or not name:
        return None
    extra = user.get("extra") or {}
    return User(
        name,
        str(user.get("uid") or ""),
        _texts(user.get("groups")),
        tuple(sorted((str(key), _texts(values)) for key, values in extra.items())),
    )


def _texts(values: Sequence[object] | None) -> tuple[str, ...]:
    return tuple(map(str, values or ()))
