"""The errors of calls of an API server: refused, not reached, or with an unknown outcome.

Their texts quote the API server and its webhooks. So they are made printable here, whoever raises the error.
"""

from allocator.tools import printable
from extender.tools.user_error import UserError


class ApiError(Exception):
    """The API server refused: the call has had no effect.

    Attributes:
        status: HTTP status, 400 to 499; 0 if no request was sent.
        reason: e.g. ``NotFound``, ``AlreadyExists``, ``Conflict``, ``Invalid``.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        self.message = printable(message)
        super().__init__(self.message)

    @property
    def is_conflict(self) -> bool:
        """The object has changed since it was read."""
        return self.status == 409 and self.reason == "Conflict"

    @property
    def is_missing(self) -> bool:
        """There is no such object."""
        return self.status == 404

    @property
    def is_over_quota(self) -> bool:
        """Whether a ResourceQuota has too little left for the object. The API server says so only in the message."""
        return self.status == 403 and "exceeded quota: " in self.message


class UnreachableError(ApiError):
    """No request was sent: no connection could be made, or slow writes of its namespace left it no turn."""

    def __init__(self, operation: str, cause: str) -> None:
        super().__init__(0, "Unreachable", f"{operation}: {cause}")


class OutcomeUnknownError(Exception):
    """No answer, or a 5xx: the call may have had its effect, may have it later, or never."""

    def __init__(self, operation: str, cause: str) -> None:
        self.operation = operation
        self.cause = printable(cause)
        super().__init__(printable(f"{operation}: outcome unknown: {cause}"))


class AnswerTooLongError(OutcomeUnknownError):
    """An answer is longer than it may be, and was not read to its end. Asked again, it would be as long."""


class ConnectError(UserError):
    """There is no usable API server; each problem names what a person has to change."""


class WriteRefusedError(Exception):
    """A write that has not happened, and why, as printable text."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class OverQuotaError(WriteRefusedError):
    """The API server does not create a claim: a ResourceQuota has too little left."""
