"""Logging: structured, on standard error, one line an event."""

import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

import structlog

from extender.settings import LogSettings


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what is standard error at that time: it may have been redirected, and the one before closed."""

    def emit(self, record: logging.LogRecord) -> None:
        """What libraries log."""
        self.stream = sys.stderr
        super().emit(record)

    def _write(self, line: str) -> None:
        stream = sys.stderr
        if stream is None:  # Python has found it closed
            return
        self.acquire()
        try:
            with suppress(OSError, ValueError):  # nothing is left to say so on; ValueError: it is closed
                stream.write(f"{line}\n")
                stream.flush()
        finally:
            self.release()

    # What structlog has made a line of. There is one for every bind: a record of the standard library's, made for each
    # and taken apart again, would be half of its cost.
    debug = info = warning = error = critical = _write


def configure(settings: LogSettings, more: Sequence[structlog.typing.Processor] = ()) -> None:
    """Set up structlog, and hand what libraries log to it; ``more`` adds to every line."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    human = settings.format == "console" or (settings.format == "auto" and is_terminal)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        *more,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=is_terminal)]
        if human
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    handler = _StandardError()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    structlog.configure(
        processors=[*shared, *last],
        logger_factory=lambda *_: handler,
        wrapper_class=structlog.make_filtering_bound_logger(settings.level),
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.level.upper())
