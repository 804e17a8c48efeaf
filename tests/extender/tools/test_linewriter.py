"""A log whose reader does not read: nobody waits, lines are dropped and counted, and the process ends."""

import errno
import os
import threading

import pytest

from extender.tools.logs import LineWriter, write_all

SECONDS = 30
"""Far more than anything takes here."""


class Reader:
    """Reads when it is let, and fails when it is told to.

    Attributes:
        begun: somebody is being written to it.
        gate: lets the write end.
        lines: that it has.
        failure: raised once the gate is open.
    """

    def __init__(self) -> None:
        self.begun, self.gate = threading.Event(), threading.Event()
        self.lines: list[bytes] = []
        self.failure: OSError | None = None

    def write(self, data: bytes) -> None:
        self.begun.set()
        assert self.gate.wait(SECONDS)
        if self.failure is not None:
            raise self.failure
        self.lines += data.splitlines()


def writer_to(reader: Reader, most_bytes: int = 100) -> LineWriter:
    def tell(lines: int) -> None:
        writer.put(f"{lines} lines were dropped\n".encode())

    writer = LineWriter(reader.write, tell, most_bytes=most_bytes)
    return writer


def stalled(reader: Reader, most_bytes: int = 100) -> LineWriter:
    """A writer whose first line is being written and does not get any further."""
    writer = writer_to(reader, most_bytes)
    writer.put(b"0\n")
    assert reader.begun.wait(SECONDS)
    return writer


def test_lines_are_written_in_order_and_all_of_them_at_the_end() -> None:
    reader = Reader()
    reader.gate.set()
    writer = writer_to(reader, most_bytes=10_000)
    for number in range(100):
        writer.put(b"%d\n" % number)
    writer.close(SECONDS)
    assert reader.lines == [b"%d" % number for number in range(100)]
    assert writer.dropped == 0


def test_what_there_is_no_room_for_is_dropped_and_told_later() -> None:
    reader = Reader()
    writer = stalled(reader, most_bytes=30)
    for _ in range(20):
        writer.put(b"1\n")
    assert writer.dropped == 5
    reader.gate.set()
    while len(reader.lines) < 17:
        pass
    writer.close(SECONDS)
    assert reader.lines == [b"0", *[b"1"] * 15, b"5 lines were dropped"]


def test_the_end_waits_for_its_time_and_no_longer() -> None:
    reader = Reader()
    writer = stalled(reader)
    writer.close(0.01)
    writer.put(b"late\n")
    assert writer.dropped == 1
    reader.gate.set()


def test_lines_that_cannot_be_written_are_dropped_and_told_once_writing_succeeds_again() -> None:
    reader = Reader()
    reader.failure = OSError(errno.ENOSPC, "No space left on device")
    writer = stalled(reader)
    reader.gate.set()
    while writer.dropped < 1:
        pass
    reader.failure = None
    writer.put(b"1\n")
    while len(reader.lines) < 2:
        pass
    writer.close(SECONDS)
    assert reader.lines == [b"1", b"1 lines were dropped"]


def test_a_descriptor_that_somebody_made_non_blocking_gets_everything() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    data = bytes(10**6)
    found = bytearray()

    def read() -> None:
        while chunk := os.read(reading, 2**16):
            found.extend(chunk)

    thread = threading.Thread(target=read)
    thread.start()
    write_all(writing, data)
    os.close(writing)
    thread.join(SECONDS)
    os.close(reading)
    assert bytes(found) == data


def test_a_reader_that_has_gone_is_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        write_all(writing, b"x")
    os.close(writing)
