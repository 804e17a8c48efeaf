"""The reasons for which callers are refused, as metrics count them."""

from enum import StrEnum


class RefusalReason(StrEnum):
    """Why a caller is refused."""

    HANDSHAKE = "handshake"
    """The TLS handshake has failed: the client certificate is not accepted, or the client speaks no TLS 1.3."""
    NO_CREDENTIAL = "no_credential"
    """There is no token and no client certificate with a common name, or the header is not understood."""
    TOKEN = "token"  # noqa: S105 - the name of a reason
    """The API server does not accept the token (TokenReview)."""
    CERTIFICATE = "certificate"
    """The client certificate has expired since the connection was made."""
    RIGHT = "right"
    """The user may not send the request (SubjectAccessReview)."""
    TOO_OFTEN = "too_often"
    """There were too many tokens that are not known, or too many new paths."""
    NO_REVIEW = "no_review"
    """The API server, which knows the callers, does not answer."""
