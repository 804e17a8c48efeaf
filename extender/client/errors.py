"""What can go wrong between an autoscaler and the service."""

from typing import Final

UNKNOWN_SESSION: Final = "UnknownSession"
TOO_LARGE: Final = "SessionTooLarge"


class AutoscalerError(Exception):
    """The service did not do what was asked; the text is its own, and says why.

    Attributes:
        code: by which programs tell the error; empty for those that are for people only.
    """

    def __init__(self, message: str, code: str = "") -> None:
        self.code = code
        super().__init__(message)


class UnknownSessionError(AutoscalerError):
    """The session is gone: expired, dropped, or of a service that was started again. Start another one."""


class UnreachableError(AutoscalerError):
    """The service could not be asked, or did not answer in time: nothing is known of what became of the call."""


class ProtocolError(AutoscalerError):
    """Something answered that is not the service, or one of another version."""
