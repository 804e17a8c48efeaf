"""Logging: a line an event, on standard error, ours and libraries' alike."""

import asyncio
import errno
import io
import json
import logging
import os
import pty
import signal
import sys
import threading
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog
import yaml
from httpx import AsyncClient

from extender.tools import logs
from extender.tools.logs import LineWriter, LogSettings, write_all
from tests.kit.clusters import Object, asking, claim, device_class, node, pod
from tests.kit.places import ROOT

logger = structlog.get_logger()


def lines(written: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.splitlines()]


def test_a_line_has_the_event_what_goes_with_it_and_the_context(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings())
    with structlog.contextvars.bound_contextvars(decision="d1"):
        logger.info("decided", verb="bind", rejected={"tainted": 2}, odd=b"x")
        logging.getLogger("library").warning("slow by %s s", 5)
    ours, libraries = lines(capsys.readouterr().err)
    assert ours.pop("timestamp").endswith("Z")
    assert libraries.pop("timestamp").endswith("Z")
    fields = {"verb": "bind", "rejected": {"tainted": 2}, "odd": "b'x'", "decision": "d1"}
    assert ours == {**fields, "event": "decided", "level": "info"}
    assert libraries == {"event": "slow by 5 s", "decision": "d1", "level": "warning"}


LEVELS = ("debug", "info", "warning", "error")


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_below_the_level_is_not_logged(capsys: pytest.CaptureFixture[str], level: Any) -> None:
    logs.configure(LogSettings(level=level))
    for each in LEVELS:
        getattr(logger, each)(each)
        getattr(logging.getLogger("library"), each)(each)
    shown = LEVELS[LEVELS.index(level) :]
    assert [line["level"] for line in lines(capsys.readouterr().err)] == [each for each in shown for _ in range(2)]


@pytest.mark.parametrize("log", [logger, logging.getLogger("library")], ids=["ours", "libraries"])
def test_an_exception_is_told_within_its_line(capsys: pytest.CaptureFixture[str], log: Any) -> None:
    logs.configure(LogSettings())
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        log.exception("failed")
    (line,) = lines(capsys.readouterr().err)
    assert (line["event"], line["level"]) == ("failed", "error")
    assert line["exception"].endswith("ZeroDivisionError: division by zero")


def test_what_is_added_to_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(), [lambda _, __, event: {**event, "trace_id": "t"}])
    logger.info("ours")
    logging.getLogger("library").warning("libraries'")
    assert [line["trace_id"] for line in lines(capsys.readouterr().err)] == ["t", "t"]


def test_people_read_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(format="console"))
    logger.info("decided", verb="bind")
    logging.getLogger("library").warning("slow")
    ours, libraries = capsys.readouterr().err.splitlines()
    assert "[info     ] decided" in ours
    assert "verb=bind" in ours
    assert "[warning  ] slow" in libraries


def test_redirected_later_it_goes_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure(LogSettings())
    logger.info("before")
    now = io.StringIO()
    monkeypatch.setattr(sys, "stderr", now)
    logger.info("after")
    told = [[line["event"] for line in lines(written)] for written in (capsys.readouterr().err, now.getvalue())]
    assert told == [["before"], ["after"]]


def test_a_log_that_nobody_reads_keeps_nobody_from_working(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure(LogSettings())
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    logger.error("lost")
    monkeypatch.setattr(sys, "stderr", None)  # as Python starts where there is none
    logger.error("lost as well")
    logs.configure(LogSettings())
    now = io.StringIO()
    monkeypatch.setattr(sys, "stderr", now)
    logger.error("written")
    assert [line["event"] for line in lines(now.getvalue())] == ["written"]


# A log whose reader does not read: nobody waits, lines are dropped and counted, and the process ends.


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


# A service whose log is not read answers and ends all the same; SIGHUP does not end it.


OBJECTS = (device_class(), node("a"), claim("c"), pod("p", "c"))
ASKED: Object = asking(pod("p", "c"), "a")
"""There is no device: each call is worth a line."""

CALLS = 600
"""Their lines fill a pipe twice."""


@asynccontextmanager
async def writing_to(descriptor: int, manifests: Path, **variables: str) -> AsyncIterator[Process]:
    """A service on what is standard error to it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DRA_EXTENDER__LOG__FORMAT": "json", **variables}
    arguments = ("serve", "--port", "0", "--manifests", str(manifests))
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a service would inherit the nohup of these tests
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "extender",
            *arguments,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=descriptor,
            env=environment,
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    os.close(descriptor)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def written(folder: Path) -> Path:
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(OBJECTS))
    return path


async def next_line(descriptor: int) -> Object:
    found: Object = orjson.loads(await next_text(descriptor))
    return found


async def next_text(descriptor: int) -> bytes:
    """A line of a log, which is read no further: the rest is to stay unread."""
    text = b""
    async with asyncio.timeout(60):
        while not text.endswith(b"\n"):
            text += await asyncio.to_thread(os.read, descriptor, 1)
    return text


async def test_it_answers_and_ends_although_nobody_reads_its_log(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    async with writing_to(writing, written(tmp_path)) as process:
        url = (await next_line(reading))["url"]
        async with AsyncClient(base_url=url, timeout=10) as client:
            for _ in range(CALLS):
                reply = (await client.post("/filter", content=orjson.dumps(ASKED))).json()
                assert reply["NodeNames"] == []
            assert "dra_extender_log_lines_dropped_total 0.0" in (await client.get("/metrics")).text
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await process.wait() == 0
    os.close(reading)


async def test_it_counts_the_lines_of_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    async with writing_to(writing, written(tmp_path)) as process:
        url = (await next_line(reading))["url"]
        os.close(reading)
        async with AsyncClient(base_url=url, timeout=10) as client:
            await client.post("/filter", content=orjson.dumps(ASKED))
            async with asyncio.timeout(30):
                while "dra_extender_log_lines_dropped_total 0.0" in (await client.get("/metrics")).text:
                    pass
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await process.wait() == 0


async def test_sighup_is_told_and_changes_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    async with writing_to(writing, written(tmp_path)) as process:
        url = (await next_line(reading))["url"]
        process.send_signal(signal.SIGHUP)
        while not (await next_line(reading))["event"].startswith("SIGHUP changes nothing"):
            pass
        async with AsyncClient(base_url=url) as client:
            assert (await client.get("/readyz")).text == "ok\n"
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await process.wait() == 0
    os.close(reading)


async def test_the_end_of_the_terminal_that_it_was_started_on_ends_it(tmp_path: Path) -> None:
    """As SIGTERM does, and not as a signal that nobody minds."""
    reading, writing = pty.openpty()
    async with writing_to(writing, written(tmp_path)) as process:
        await next_line(reading)
        process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(30):
            assert await process.wait() == 0
    os.close(reading)


@pytest.mark.parametrize(("variables", "colored"), [({}, True), ({"NO_COLOR": "1"}, False)], ids=["usual", "NO_COLOR"])
async def test_a_terminal_has_colors_unless_they_are_not_wanted(
    tmp_path: Path, variables: dict[str, str], *, colored: bool
) -> None:
    reading, writing = pty.openpty()
    wanted = {"DRA_EXTENDER__LOG__FORMAT": "auto", "TERM": "xterm", "NO_COLOR": "", **variables}
    async with writing_to(writing, written(tmp_path), **wanted):
        assert (b"\x1b[" in await next_text(reading)) is colored
    os.close(reading)
