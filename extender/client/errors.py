"""What can go wrong between an autoscaler and the service."""

from typing import Final

UNKNOWN_SESSION: Final = "UnknownSession"
TOO_LARGE: Final = "SessionTooLarge"


class AutoscalerError(Exception):
    """The service did not do what was asked; its own text says why.

    Attributes:
        code: identifies the error for programs; empty for errors that are for people only.
    """

    def __init__(self, message: str, code: str = "") -> None:
        self.code = code
        super().__init__(message)


class UnknownSessionError(AutoscalerError):
    """The session is gone: expired, dropped, or lost in a restart of the service. Start another one."""


class UnreachableError(AutoscalerError):
    """The service could not be reached, or did not answer in time: the outcome of the call is unknown."""


class ProtocolError(AutoscalerError):
    """The answer is not from the service, or from another version of it."""
