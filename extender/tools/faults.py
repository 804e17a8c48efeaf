"""Unexpected errors: each is logged once, and fails only the pod that it concerns. And the error of a refused call."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import ClassVar, Final, Protocol

import structlog

from allocator import Claim, InvalidClaimError
from allocator.tools import Recent

_REMEMBERED: Final = 1024


class RefusedError(Exception):
    """The call can't be decided; the caller is to try again later.

    Attributes:
        code: by which programs tell the error; empty for those that are for people only.
    """

    code: ClassVar[str] = ""


class Log(Protocol):
    """A log of faults."""

    def error(self, event: str, **fields: object) -> object:
        """Write a line; with a traceback if ``exc_info`` is an exception."""
        ...


class Faults:
    """Keeps a fault at one object from all other objects.

    The same fault of the same object is logged once: work that is repeated five times a second would fill the log. Safe
    to use from several threads: at worst a fault is logged twice.

    Args:
        log: gets a line for each fault.
    """

    def __init__(self, log: Log | None = None) -> None:
        self._log: Log = structlog.get_logger() if log is None else log
        self._told: Recent[str] = Recent(_REMEMBERED)

    def of(self, subject: object, then: Callable[[str], object] = str) -> AbstractContextManager[None, bool]:
        """Within the context, an error is logged as a fault of an object, and goes no further.

        Args:
            subject: the object, for example "pod NAMESPACE/NAME".
            then: called with a message for users if there was an error.
        """
        return _Apart(self, subject, then)

    def of_claims(self, claims: Iterable[Claim], error: Exception) -> InvalidClaimError:
        """The error to raise instead of an unexpected one, if it came while the claims were decided."""
        names = ", ".join(map(str, claims))
        return InvalidClaimError(names, "", self.tell(f"claim {names}", error))

    def tell(self, subject: str, error: Exception) -> str:
        """Log a fault, unless it was logged before. Returns a message for users."""
        key = (subject, type(error), str(error))
        if not self._told.find(key):
            self._told.keep(key, subject)
            self._log.error("fault", subject=subject, exc_info=error)
        return f"internal error ({type(error).__name__}); the log of the extender has the details"


class _Apart(AbstractContextManager[None, bool]):
    """The context of `Faults.of`. Each rejected pod opens a dozen, so it is no generator: that takes twice the time."""

    __slots__ = ("_faults", "_subject", "_then")

    def __init__(self, faults: Faults, subject: object, then: Callable[[str], object]) -> None:
        self._faults = faults
        self._subject = subject
        self._then = then

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Log an error; cancellation and the like go on."""
        if not isinstance(error, Exception):
            return False
        self._then(self._faults.tell(str(self._subject), error))
        return True
