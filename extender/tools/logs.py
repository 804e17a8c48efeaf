"""Logging: structured, on standard error, one line an event. A library logs quietly.

Lines are written in a thread of its own, so that no caller waits for the reader.
"""

import logging
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, Literal, TextIO

import structlog
from pydantic import Field
from rich.console import Console

from allocator.tools import printable, printable_lines
from extender.tools.section import Section

MOST_BYTES: Final = 2**20
"""Bytes of lines that wait to be written: some thousands of lines."""

_PAUSE_SECONDS: Final = 0.05
"""Between two writes. Otherwise each line wakes the writer's thread, which takes Python's lock from the others. Lines
that come meanwhile are written together."""


class LineWriter:
    """Takes lines at once and writes them in order. Lines without room are dropped and counted.

    The descriptor stays blocking. Non-blocking is a property of the open file, and other processes share that file, for
    example the shell of a terminal. They would meet errors that they do not expect.

    Args:
        write: writes all of some bytes, and may take any time for that.
        told_dropped: is told, in the writer's thread, how many lines were dropped, once there is room to say so.
        most_bytes: the most bytes that wait, without the bytes that are being written.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        told_dropped: Callable[[int], None],
        *,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._write = write
        self._told_dropped = told_dropped
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._lines: list[bytes] = []
        self._bytes = 0
        self._closed = False
        self._untold = 0
        self.dropped = 0
        # A daemon thread: a write without a reader never ends, but the process has to.
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Have a line written, soon; or drop it."""
        with self._changed:
            if self._closed or self._bytes + len(line) > self._most_bytes:
                self._drop(1)
                return
            self._lines.append(line)
            self._bytes += len(line)
            if len(self._lines) == 1:
                self._changed.notify()

    def close(self, seconds: float) -> None:
        """Write the waiting lines within some seconds; later lines are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._ending.set()
        self._thread.join(seconds)

    def _drop(self, lines: int) -> None:
        self.dropped += lines
        self._untold += lines

    def _run(self) -> None:
        while lines := self._next():
            try:
                self._write(b"".join(lines))
            except OSError:  # The disk is full, or the reader has gone: there is no other place to say so.
                with self._changed:
                    self._drop(len(lines))
            else:
                self._tell_dropped_lines()
            self._ending.wait(_PAUSE_SECONDS)

    def _tell_dropped_lines(self) -> None:
        with self._changed:
            # Not into a queue that has no room for it.
            if self._untold and self._bytes <= self._most_bytes // 2:
                untold, self._untold = self._untold, 0
                self._told_dropped(untold)

    def _next(self) -> list[bytes]:
        """All waiting lines, as soon as there is one; empty when the writer is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closed)
            lines, self._lines, self._bytes = self._lines, [], 0
            return lines


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes, even if another process has made the open file non-blocking.

    Raises:
        OSError: it can't be written.
    """
    rest = memoryview(data)
    while rest:
        with suppress(BlockingIOError):
            rest = rest[os.write(descriptor, rest) :]
            continue
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        poll.poll()


_DESCRIPTOR: Final = 2
"""The file descriptor of standard error."""

_SECONDS_TO_END: Final = 2.0
"""The longest time that the end of the process waits for lines to be written."""


class LogSettings(Section):
    """Settings of the log. Logs go to standard error."""

    format: Literal["auto", "console", "json"] = Field(
        default="auto", description="auto: console on a terminal, else JSON lines."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Lowest level to log.")


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what is standard error at that time: it may have been redirected, and the one before closed.

    Attributes:
        writer: writes instead, where lines may not wait for their reader.
    """

    writer: LineWriter | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write what libraries log."""
        try:
            line = self.format(record)
        except Exception as error:  # noqa: BLE001  # of any library, which is not to fail because of what it says
            line = f"a line of {record.name} cannot be shown: {error!r}"
        self._write(line)

    def _write(self, line: str) -> None:
        if self.writer is not None:
            self.writer.put(f"{line}\n".encode(errors="backslashreplace"))
            return
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
    _configure(settings, more)


@contextmanager
def unhindered(settings: LogSettings, more: Sequence[structlog.typing.Processor] = ()) -> Iterator[Callable[[], int]]:
    """Like `configure`, for a service: while the context is open, no code waits for the reader of the log.

    Yields:
        a function that returns the number of lines that were dropped because the reader of the log was too slow.
    """
    handler = _configure(settings, more)
    told = structlog.get_logger().warning
    writer = handler.writer = LineWriter(
        partial(write_all, _DESCRIPTOR), lambda lines: told("log lines were dropped", lines=lines)
    )
    try:
        yield lambda: writer.dropped
    finally:
        writer.close(_SECONDS_TO_END)


def _configure(settings: LogSettings, more: Sequence[structlog.typing.Processor]) -> _StandardError:
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    human = settings.format == "console" or (settings.format == "auto" and is_terminal)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        *more,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor] = [
        structlog.processors.format_exc_info,
        *([_printable, _for_people(colors=is_terminal)] if human else [structlog.processors.JSONRenderer()]),
    ]
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
    return handler


def _for_people(*, colors: bool) -> structlog.dev.ConsoleRenderer:
    """The log for people, in colors unless NO_COLOR is set; tracebacks without variables, which may be secrets."""
    console = Console(stderr=True)
    colors = colors and console.color_system is not None and not console.no_color
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)


def _printable(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """JSON escapes by itself what is not to reach a terminal."""
    shown = {name: printable(value) if isinstance(value, str) else value for name, value in event.items()}
    if "exception" in event:
        shown["exception"] = printable_lines(event["exception"])
    return shown


LOGGER: Final = "dra_extender"
"""Name of the standard library's logger that gets the lines."""


def log_quietly() -> None:
    """Hand log lines to the standard library, unless structlog is set up already. Its own default is to print."""
    if structlog.is_configured():
        return
    logger = logging.getLogger(LOGGER)
    logger.addHandler(logging.NullHandler())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=lambda *_: logger,
        wrapper_class=structlog.stdlib.BoundLogger,
    )
