"""The standard streams of a command: what becomes of its output when it can't be written.

Results must get to where they are to go, or the command has failed. Messages on standard error are told as far as
anybody listens.
"""

import errno
import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

from extender.observe.line_writer import write_all

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_OUTPUT: Final = 1
_MESSAGES: Final = 2


class OutputError(Exception):
    """Standard output cannot be written. No OSError, which whoever writes might take for one of its own.

    Attributes:
        reader_has_gone: it has what it wanted, as ``head`` does, and there is nothing to complain of.
    """

    def __init__(self, error: OSError) -> None:
        self.reader_has_gone = error.errno == errno.EPIPE
        super().__init__(f"standard output cannot be written: {error.strerror}")


class _Output(io.FileIO):
    """Standard output."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            write_all(self.fileno(), memoryview(data))
        except OSError as error:
            raise OutputError(error) from error
        return memoryview(data).nbytes


class _Messages(io.FileIO):
    """Standard error: what can't be written is lost, for there is no other place to say so."""

    def write(self, data: "ReadableBuffer", /) -> int:
        with suppress(OSError):
            write_all(self.fileno(), memoryview(data))
        return memoryview(data).nbytes


def open_standard_streams() -> None:
    """Have standard output and error of this process take every text, or say by `OutputError` what keeps them.

    Characters that an encoding lacks are written as escapes. A stream that was closed from the start is one that
    can't be written, and its descriptor is not given to a file or a connection that is opened later.
    """
    while (opened := os.open(os.devnull, os.O_RDONLY)) <= _MESSAGES:
        pass
    os.close(opened)
    sys.stdout = _text(_Output(_OUTPUT, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Messages(_MESSAGES, "w", closefd=False), sys.stderr, by_line=True)


def give_up_output() -> None:
    """What is still to be written goes nowhere: Python would try once more at the end, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _OUTPUT)
    os.close(nowhere)


def _text(raw: io.FileIO, like: TextIO | None, *, by_line: bool = False) -> io.TextIOWrapper:
    """``like`` is None where the stream was closed."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=like.encoding if like else "utf-8",
        errors="backslashreplace",
        line_buffering=by_line or raw.isatty(),
    )
