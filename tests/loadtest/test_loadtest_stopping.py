"""What a load test has started does not outlive it."""

import asyncio
import sys
from pathlib import Path
from threading import Event

import pytest

from tests.cluster.harness.process import Process, running
from tests.cluster.harness.waiting import WaitError

FOREVER = (sys.executable, "-c", "import time; time.sleep(600)")


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_program_runs_within_and_not_after(tmp_path: Path) -> None:
    process = Process("forever", FOREVER, lambda: True, tmp_path / "log")
    async with running(process, within=10):
        assert is_alive(process.pid)
        pid = process.pid
    assert not is_alive(pid)


async def test_one_that_is_cancelled_while_it_starts_is_stopped(tmp_path: Path) -> None:
    asked, may_be_ready = asyncio.Event(), Event()
    loop = asyncio.get_running_loop()

    def ready() -> bool:
        loop.call_soon_threadsafe(asked.set)
        return may_be_ready.wait(10)

    process = Process("forever", FOREVER, ready, tmp_path / "log")

    async def run() -> None:
        async with running(process, within=10):
            raise AssertionError("it was cancelled before")

    task = asyncio.create_task(run())
    await asked.wait()
    pid = process.pid
    task.cancel()
    may_be_ready.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(pid)


async def test_one_that_ends_before_it_is_ready_is_told(tmp_path: Path) -> None:
    process = Process(
        "brief", (sys.executable, "-c", "print('no'); raise SystemExit(3)"), lambda: False, tmp_path / "log"
    )
    with pytest.raises(WaitError, match=r"(?s)brief has ended with exit code 3.*no"):
        async with running(process, within=10):
            raise AssertionError("it never was ready")
