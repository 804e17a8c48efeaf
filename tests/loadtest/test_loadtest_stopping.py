"""What a load test has started does not outlive it, whatever ends it."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from threading import Event

import pytest

from loadtest.endtoend.__main__ import to_the_end
from tests.kit.process import Process, running
from tests.kit.waiting import WaitError

FOREVER = (sys.executable, "-c", "import time; time.sleep(600)")


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_program_runs_within_and_not_after(tmp_path: Path) -> None:
    process = Process("forever", FOREVER, lambda: True, tmp_path / "log")
    async with running(process, within=10):
        assert is_alive(process.pid)
        pid = process.pid
    assert not is_alive(pid)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_one_that_is_cancelled_while_it_starts_is_stopped(tmp_path: Path, times: int) -> None:
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
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    may_be_ready.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(pid)


async def test_one_that_is_cancelled_while_it_stops_is_stopped(tmp_path: Path) -> None:
    process = Process("forever", FOREVER, lambda: True, tmp_path / "log")
    is_ready = asyncio.Event()

    async def run() -> None:
        async with running(process, within=10):
            is_ready.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await is_ready.wait()
    pid = process.pid
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_load_test_in_order(number: signal.Signals) -> None:
    left = []

    async def work() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            left.append("in order")

    assert not to_the_end(work())
    assert left == ["in order"]


def test_without_one_it_goes_on_to_its_end() -> None:
    assert to_the_end(asyncio.sleep(0))
