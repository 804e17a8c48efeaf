"""How long a cold sync takes, how much memory it needs, and what a steady stream of events costs.

``python -m loadtest.sync_bench`` runs a fake API server and, for every run, a fresh process with the live cluster
as the service has it, over HTTP on loopback without TLS. Figures are medians of the runs.
"""

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import uvloop

from extender.cluster.connection import open_connection
from extender.cluster.credentials import Origin
from extender.cluster.live import connect
from extender.cluster.state import ClusterState
from extender.cluster.transport import Request

_FULL: Final = {"nodes": 5000, "claims": 20000, "pods": 50000, "pods-with-claims": 10000, "events": 1000}
_DEVICES: Final = {"nodes": 5000, "events": 0}
_STEADY_SECONDS: Final = 10.0
_CALIBRATION_LOOPS: Final = 5_000_000
_MEGABYTE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run: seconds on the clock and of CPU, bytes resident, share of one core."""

    sync_seconds: float
    sync_cpu_seconds: float
    resident: int
    steady_share: float


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted: at most so much."""

    name: str
    limit: float
    unit: str

    def line(self, values: Sequence[float]) -> str:
        """The median, the spread, and whether it is a miss."""
        median = statistics.median(values)
        verdict = "ok" if median <= self.limit else "MISS"
        spread = f"{min(values):.2f} to {max(values):.2f}"
        return f"{self.name:<44} {median:8.2f} {self.unit:<5} (goal {self.limit:g}; {spread})  {verdict}"


def main() -> None:
    """Measure and print, or be one of the runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--client", metavar="KUBECONFIG", help=argparse.SUPPRESS)
    parser.add_argument("--steady", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        print(orjson.dumps(uvloop.run(_client(Path(arguments.client), steady=arguments.steady))).decode())
    else:
        _measure(arguments.runs)


def _measure(runs: int) -> None:
    before = _calibrate()
    full = _runs(_FULL, runs, steady=True)
    paged = _runs(_FULL, runs, steady=False, pages=True)
    devices = _runs(_DEVICES, runs, steady=False)
    print(f"calibration: {before:.2f} s before, {_calibrate():.2f} s after, for {_CALIBRATION_LOOPS:,} empty loops")
    print("5,000 nodes, 40,000 devices, 20,000 claims, 50,000 pods (10,000 with claims):")
    print(Goal("  cold sync", 10, "s").line([run.sync_seconds for run in full]))
    print(f"  {'of which CPU':<42} {statistics.median(run.sync_cpu_seconds for run in full):8.2f} s")
    print(Goal("  resident memory", 500, "MB").line([run.resident / _MEGABYTE for run in full]))
    print(Goal("  1,000 events a second, share of a core", 50, "%").line([run.steady_share * 100 for run in full]))
    print("the same from a server without streaming lists:")
    print(Goal("  cold sync", 10, "s").line([run.sync_seconds for run in paged]))
    print(f"  {'of which CPU':<42} {statistics.median(run.sync_cpu_seconds for run in paged):8.2f} s")
    print(Goal("  resident memory", 500, "MB").line([run.resident / _MEGABYTE for run in paged]))
    print("5,000 nodes, 40,000 devices alone:")
    print(Goal("  resident memory", 300, "MB").line([run.resident / _MEGABYTE for run in devices]))


def _runs(sizes: dict[str, int], runs: int, *, steady: bool, pages: bool = False) -> list[Figures]:
    """Every run in a process of its own, against the same server."""
    found = []
    with _server(sizes, pages=pages) as port, tempfile.TemporaryDirectory() as folder:
        kubeconfig = _kubeconfig(Path(folder), port)
        for number in range(runs):
            command = [sys.executable, "-m", "loadtest.sync_bench", "--client", str(kubeconfig)]
            done = subprocess.run([*command, *(["--steady"] if steady else [])], stdout=subprocess.PIPE, check=True)
            found.append(Figures(**orjson.loads(done.stdout)))
            print(f"run {number + 1} of {runs}: {found[-1]}", file=sys.stderr)
    return found


@contextmanager
def _server(sizes: dict[str, int], *, pages: bool) -> Iterator[int]:
    """The port of a fake API server that has so much."""
    options = [*(f"--{name}={number}" for name, number in sizes.items()), *(["--pages"] if pages else [])]
    command = [sys.executable, "-m", "loadtest.fakeserver", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield int(process.stdout.readline()) if process.stdout else 0
        finally:
            process.kill()


def _kubeconfig(folder: Path, port: int) -> Path:
    config = {
        "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "fake", "user": {"token": "fake"}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        "current-context": "fake",
    }
    path = folder / "kubeconfig"
    path.write_bytes(orjson.dumps(config))
    return path


async def _client(kubeconfig: Path, *, steady: bool) -> Figures:
    """Sync, look at the memory, and live with events for a while."""
    origin = Origin(str(kubeconfig))
    state = ClusterState()
    started, cpu = time.perf_counter(), time.process_time()
    async with connect(origin, random=random.random) as cluster:
        following = asyncio.create_task(cluster.run(state))
        while state.not_ready:
            await asyncio.wait([following], timeout=0.05)
        synced, used = time.perf_counter() - started, time.process_time() - cpu
        share = await _live(origin, state) if steady else 0.0
        following.cancel()
        await asyncio.wait([following])
    return Figures(synced, used, _resident_peak(), share)


async def _live(origin: Origin, state: ClusterState) -> float:
    """The share of a core that goes into events, once they flow."""
    async with open_connection(origin) as control:
        await control.call(Request("GET", "/start"))
        await asyncio.sleep(1)
        version, cpu, started = state.snapshot.version, time.process_time(), time.perf_counter()
        await asyncio.sleep(_STEADY_SECONDS)
        share = (time.process_time() - cpu) / (time.perf_counter() - started)
        if state.snapshot.version == version:
            raise RuntimeError("no events came")
    return share


def _resident_peak() -> int:
    """The most that was resident so far, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _calibrate() -> float:
    """Seconds for a loop that does nothing: how fast this machine is now."""
    started = time.perf_counter()
    for _ in range(_CALIBRATION_LOOPS):
        pass
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
