"""A program that runs until it is stopped."""

import asyncio
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import randbelow
from typing import Any, Final

import httpx

from tests.kit.waiting import WaitError, wait_until

STOP_SECONDS: Final = 15.0
_LOWEST_PORT: Final = 20_000
_PORTS: Final = 12_000
"""Below the ports that Linux gives to outgoing connections; API servers make many such connections."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    for _ in range(100):
        port = _LOWEST_PORT + randbelow(_PORTS)
        with socket.socket() as candidate:
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise WaitError("no free port on 127.0.0.1")


def answers(url: str, certificate: Path | None = None) -> Callable[[], bool]:
    """A probe: does a GET of ``url`` give 200?

    Args:
        url: HTTP or HTTPS.
        certificate: who is trusted for HTTPS. The server writes the file when it starts.
    """

    def probe() -> bool:
        if certificate and not certificate.exists():
            return False
        try:
            context = ssl.create_default_context(cafile=certificate) if certificate else False
            return httpx.get(url, verify=context, timeout=2, trust_env=False).status_code == 200
        except (httpx.TransportError, ssl.SSLError):
            return False

    return probe


@dataclass(slots=True)
class Process:
    """One program, started and stopped by its process id; it can be started again with the same arguments.

    Attributes:
        ready: a probe that says whether the program can be used.
        log: where its output goes, each start after the last.
    """

    name: str
    command: Sequence[str]
    ready: Callable[[], bool]
    log: Path
    _running: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def pid(self) -> int:
        """The id of the running process."""
        if self._running is None:
            raise WaitError(f"{self.name} is not running")
        return self._running.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started, and was not stopped and has not ended by itself since."""
        return self._running is not None and self._running.poll() is None

    def start(self, *, within: float) -> float:
        """Start it and wait until it is ready; the seconds that it took."""
        with self.log.open("ab") as output:
            self._running = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            return wait_until(self._is_ready, f"{self.name} is ready", within=within)
        except WaitError as error:
            self.stop()
            raise WaitError(f"{error}; the end of {self.log}:\n{self._tail()}") from None

    def stop(self) -> None:
        """Ask it to end, wait, and end it if it does not."""
        if self._running is None:
            return
        self._running.terminate()
        try:
            self._running.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._running = None

    def kill(self) -> None:
        """End it without giving it time to clean up."""
        if self._running is not None:
            self._running.kill()
            self._running.wait(STOP_SECONDS)
        self._running = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within, it does nothing, as on a machine that has no time for it."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def _is_ready(self) -> bool:
        if self._running is None or self.is_running:
            return self.ready()
        raise WaitError(f"{self.name} has ended with exit code {self._running.returncode}")

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])


@asynccontextmanager
async def printing(command: Sequence[str]) -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
    """Within, a program runs; its process id, and what it prints."""
    started = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    if started.stdout is None:
        raise WaitError(f"{command} has no output")
    try:
        yield started.pid, started.stdout
    finally:
        if started.returncode is None:
            started.terminate()
        await started.wait()


@asynccontextmanager
async def running(process: Process, *, within: float) -> AsyncIterator[float]:
    """Within, a program runs and is ready; the seconds that its start took.

    It is stopped in the end, also where that comes while it starts, and however often the body is cancelled: all that
    goes on beside it may fail at once.
    """
    start = asyncio.create_task(asyncio.to_thread(process.start, within=within))
    try:
        yield await asyncio.shield(start)
    finally:
        await _to_the_end(_stop(process, start))


async def _stop(process: Process, start: asyncio.Task[float]) -> None:
    await asyncio.wait([start])
    await asyncio.to_thread(process.stop)


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Do something to its end; cancelled meanwhile, be so after it."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled:
        raise cancelled
