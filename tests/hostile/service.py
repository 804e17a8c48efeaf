"""The real service in a process of its own: started, watched, and started again when it has died."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.hostile.exchange import AnswerError, exchange
from tests.hostile.findings import faults_in
from tests.kit.measure import resident, resident_peak
from tests.kit.process import free_port
from tests.kit.service import kubeconfig

_STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1
_READY: Final = b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


class NotReadyError(Exception):
    """The service does not start."""


@dataclass(slots=True)
class RunningService:
    """``dra-extender serve`` over an API server on a port of this machine.

    Attributes:
        variables: of its environment: settings.
        enter: the words before its command: where it runs.
        arguments: of its command.
        start_seconds: until it knows the cluster, at most.
        port: of the service, the same after a restart.
        peak: the most bytes that any of its processes had in memory so far.
        starts: how often it was started.
    """

    folder: Path
    api_port: int
    variables: Mapping[str, str] = field(default_factory=dict)
    enter: Sequence[str] = ()
    arguments: Sequence[str] = ()
    start_seconds: float = 60.0
    port: int = field(default_factory=free_port)
    peak: int = 0
    starts: int = 0
    _process: asyncio.subprocess.Process | None = None
    _read: int = 0

    @property
    def _log(self) -> Path:
        return self.folder / f"log-{self.starts}"

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """The process; 0 before the first start."""
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Start it, and wait until it knows the cluster.

        Raises:
            NotReadyError: it does not get to know it.
        """
        self.starts += 1
        self._read = 0
        config = kubeconfig(self.folder, f"http://127.0.0.1:{self.api_port}")
        program = (*self.enter, sys.executable, "-m", "extender", "serve")
        command = [*program, "--port", str(self.port), "--kubeconfig", str(config), *self.arguments]
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, env={**os.environ, **self.variables}
            )
        deadline = time.monotonic() + self.start_seconds
        while self.alive and time.monotonic() < deadline:
            with contextlib.suppress(OSError, AnswerError):
                if (await exchange(self.port, _READY, seconds=5.0)).startswith(b"HTTP/1.1 200"):
                    return
            await asyncio.sleep(_POLL_SECONDS)
        raise NotReadyError(self._log.read_text(errors="replace")[-2000:])

    async def stop(self) -> None:
        """Stop it, whatever it is doing."""
        self.measure()
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def restart(self) -> None:
        """Another process, whatever the one before is doing; raises NotReadyError."""
        self.measure()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self.start()

    def measure(self) -> int:
        """Bytes in memory now, 0 if it is not there."""
        if not self.alive or self._process is None:
            return 0
        try:
            self.peak = max(self.peak, resident_peak(self._process.pid))
            return resident(self._process.pid)
        except (OSError, StopIteration):  # it has just ended
            return 0

    def reset_peak(self) -> None:
        """From now on the peak is that of what comes (Linux)."""
        if self._process is not None and self.alive:
            with contextlib.suppress(OSError):
                Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def peak_now(self) -> int:
        """The most bytes since `reset_peak`."""
        try:
            return resident_peak(self._process.pid) if self._process is not None else 0
        except (OSError, StopIteration):
            return 0

    def faults(self) -> Iterator[tuple[str, str]]:
        """What its log has told since the last time, as signature and text."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        if self.alive:
            new = new[: new.rfind(b"\n") + 1]
        self._read += len(new)
        yield from faults_in(new.decode("utf-8", "replace").splitlines())


@contextlib.asynccontextmanager
async def running(
    folder: Path, api_port: int, variables: Mapping[str, str] | None = None
) -> AsyncIterator[RunningService]:
    """The service as long as the context lasts."""
    service = RunningService(folder, api_port, variables or {})
    try:
        await service.start()
        yield service
    finally:
        await service.stop()
