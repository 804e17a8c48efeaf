"""A service whose log is not read answers and ends all the same; SIGHUP does not end it."""

import asyncio
import os
import pty
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
import yaml
from httpx import AsyncClient

from tests.extender.faces.serving.process import ROOT
from tests.kit.clusters import Object, asking, claim, device_class, node, pod

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
