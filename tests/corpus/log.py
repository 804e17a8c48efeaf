"""What the service logs: warnings and errors, among them faults, which nobody is answered."""

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog


class Log:
    """Takes the lines of the service while it is the log.

    Attributes:
        lines: those since the list was emptied last.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Take the lines within the context."""
        before = structlog.get_config() if structlog.is_configured() else None
        structlog.configure(
            processors=[self._take], wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING)
        )
        try:
            yield
        finally:
            structlog.reset_defaults()
            if before is not None:
                structlog.configure(**before)

    def _take(self, _: object, level: str, fields: MutableMapping[str, Any]) -> str:
        fault = fields.pop("exc_info", None)
        if isinstance(fault, BaseException):
            fields["fault"] = f"{type(fault).__name__}: {fault}"
        self.lines.append(f"{level} " + " ".join(f"{name}={value}" for name, value in sorted(fields.items())))
        raise structlog.DropEvent
