"""Writes lines in a thread of its own, so that no caller waits for the reader."""

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

MOST_BYTES: Final = 2**20
"""Bytes of lines that wait to be written: some thousands of lines."""


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
        self, write: Callable[[bytes], None], told_dropped: Callable[[int], None], *, most_bytes: int = MOST_BYTES
    ) -> None:
        self._write = write
        self._told_dropped = told_dropped
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
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
            self._changed.notify()

    def close(self, seconds: float) -> None:
        """Write the waiting lines within some seconds; later lines are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify()
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
                self._tell()

    def _tell(self) -> None:
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
