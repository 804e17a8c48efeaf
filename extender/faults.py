"""What goes wrong that nobody thought of: a fault of one pod is that pod's, and is told once."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import structlog

from allocator import Claim, InvalidClaimError, Recent

_REMEMBERED: Final = 1024


class Log(Protocol):
    """What a fault is told to."""

    def error(self, event: str, **fields: object) -> object:
        """A line, with a traceback where ``exc_info`` is an exception."""
        ...


class Faults:
    """Keeps faults from others than those at whom they happen.

    The same fault of the same object is told once, however often it happens: what is tried five times a second would
    fill a log. Safe to use from several threads: at worst a fault is told twice.

    Args:
        log: is told of each.
    """

    def __init__(self, log: Log | None = None) -> None:
        self._log: Log = structlog.get_logger() if log is None else log
        self._told: Recent[str] = Recent(_REMEMBERED)

    @contextmanager
    def of(self, subject: object, then: Callable[[str], object] = str) -> Iterator[None]:
        """Within, whatever fails is told as a fault of an object, and goes no further.

        Args:
            subject: the object: its text is "pod NAMESPACE/NAME", or the like.
            then: called with the words for users if something failed.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001  # this is the place for what nobody thought of
            then(self.tell(str(subject), error))

    def of_claims(self, claims: Iterable[Claim], error: Exception) -> InvalidClaimError:
        """The error to raise instead of one that nobody thought of, met while the claims were decided."""
        names = ", ".join(map(str, claims))
        return InvalidClaimError(names, "", self.tell(f"claim {names}", error))

    def tell(self, subject: str, error: Exception) -> str:
        """Tell the log of a fault, if it was not told yet; returns the words for users."""
        key = (subject, type(error), str(error))
        if not (self._told.get(key) or self._told.recall(key)):
            self._told.keep(key, subject)
            self._log.error("fault", subject=subject, exc_info=error)
        return f"internal error ({type(error).__name__}); the log of the extender has the details"
