"""How long a cold sync takes, how much memory it needs, and what a steady stream of events costs.

``python -m loadtest.sync_bench`` runs a fake API server. Every run has a fresh process with the live cluster, as
the service has it. They talk over HTTP on loopback, without TLS. Figures are medians of the runs.
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

from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import connect
from extender.faces.serving.memory import sparing_survivors, undisturbed_start
from extender.kube.connection.connection import open_connection
from extender.kube.connection.credentials import Origin
from extender.kube.connection.transport import HttpRequest
from extender.tools import logs
from extender.tools.logs import LogSettings
from tests.kit.measure import LOOPS, MEGABYTE, calibration, resident_peak
from tests.kit.service import kubeconfig

_FULL: Final = {"nodes": 5000, "claims": 20000, "pods": 50000, "pods-with-claims": 10000, "events": 1000}
_STEADY_SECONDS: Final = 10.0
_TICK_SECONDS: Final = 0.005
_HOURS: Final = 10_000.0
"""In the future everything that is known is too old."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run.

    Attributes:
        sync_seconds, sync_cpu_seconds: of the cold sync, on the clock and of CPU.
        sync_pause: the longest time in it for which nothing else on the event loop had its turn.
        relist_seconds, relist_pause: the same of listing everything again when nothing has changed.
        resident: the most bytes that there were.
        steady_share: of one core, for events.
    """

    sync_seconds: float
    sync_cpu_seconds: float
    sync_pause: float
    relist_seconds: float
    relist_pause: float
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
        logs.configure(LogSettings(level="error"))
        with sparing_survivors():
            print(orjson.dumps(uvloop.run(_client(Path(arguments.client), steady=arguments.steady))).decode())
    else:
        _measure(arguments.runs)


def _measure(runs: int) -> None:
    before = calibration()
    full = _runs(_FULL, runs, steady=True)
    paged = _runs(_FULL, runs, steady=False, pages=True)
    print(f"calibration: {before:.2f} s before, {calibration():.2f} s after, for {LOOPS:,} empty loops")
    print("5,000 nodes, 40,000 devices, 20,000 claims, 50,000 pods (10,000 with claims):")
    _print_sync(full)
    print(Goal("  1,000 events a second, share of a core", 50, "%").line([run.steady_share * 100 for run in full]))
    print("the same from a server without streaming lists:")
    _print_sync(paged)


def _print_sync(runs: Sequence[Figures]) -> None:
    print(Goal("  cold sync", 10, "s").line([run.sync_seconds for run in runs]))
    _print("of which CPU", [run.sync_cpu_seconds for run in runs])
    _print("longest pause of the event loop", [run.sync_pause for run in runs])
    _print("all listed again, unchanged", [run.relist_seconds for run in runs])
    _print("longest pause of the event loop", [run.relist_pause for run in runs])
    print(Goal("  resident memory", 500, "MB").line([run.resident / MEGABYTE for run in runs]))


def _print(name: str, seconds: Sequence[float]) -> None:
    print(f"  {name:<42} {statistics.median(seconds):8.2f} s")


def _runs(sizes: dict[str, int], runs: int, *, steady: bool, pages: bool = False) -> list[Figures]:
    """Every run in a process of its own, against the same server."""
    found = []
    with fake_server(sizes, pages=pages) as port, tempfile.TemporaryDirectory() as folder:
        config = kubeconfig(Path(folder), f"http://127.0.0.1:{port}")
        for number in range(runs):
            command = [sys.executable, "-m", "loadtest.sync_bench", "--client", str(config)]
            done = subprocess.run([*command, *(["--steady"] if steady else [])], stdout=subprocess.PIPE, check=True)
            found.append(Figures(**orjson.loads(done.stdout)))
            print(f"run {number + 1} of {runs}: {found[-1]}", file=sys.stderr)
    return found


@contextmanager
def fake_server(sizes: dict[str, int], *, pages: bool = False) -> Iterator[int]:
    """The port of a fake API server that has so much."""
    options = [*(f"--{name}={number}" for name, number in sizes.items()), *(["--pages"] if pages else [])]
    command = [sys.executable, "-m", "tests.kit.servers.synthetic", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield int(process.stdout.readline()) if process.stdout else 0
        finally:
            process.kill()


async def _client(kubeconfig: Path, *, steady: bool) -> Figures:
    """Sync, list again, and live with events for a while."""
    origin = Origin(str(kubeconfig))
    state, pauses = ClusterState(counts_cpu=True, cpu_of_all_pods=True), Pauses()
    watching = asyncio.create_task(pauses.watch())
    started, cpu = time.perf_counter(), time.process_time()
    async with connect(origin, random=random.random) as cluster:
        following = asyncio.create_task(cluster.run(state))
        undisturbed = asyncio.create_task(undisturbed_start(lambda: not state.not_ready))
        await _ready(state, following)
        synced, used, sync_pause = time.perf_counter() - started, time.process_time() - cpu, pauses.take()
        started = time.perf_counter()
        for follower in cluster.followers:
            follower.check(asyncio.get_running_loop().time() + _HOURS)
        await _ready(state, following)
        relisted, relist_pause = time.perf_counter() - started, pauses.take()
        share = await _live(origin, state) if steady else 0.0
        tasks = following, watching, undisturbed
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return Figures(synced, used, sync_pause, relisted, relist_pause, resident_peak(), share)


async def _ready(state: ClusterState, following: asyncio.Task[None]) -> None:
    while state.not_ready:
        await asyncio.wait([following], timeout=_TICK_SECONDS)


class Pauses:
    """How long the event loop was away."""

    def __init__(self) -> None:
        self._longest = 0.0

    async def watch(self) -> None:
        """Look again and again; for ever."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_TICK_SECONDS)
            self._longest = max(self._longest, time.perf_counter() - before - _TICK_SECONDS)

    def take(self) -> float:
        """The longest pause since this was asked last, in seconds."""
        longest, self._longest = self._longest, 0.0
        return longest


async def _live(origin: Origin, state: ClusterState) -> float:
    """The share of a core that goes into events, once they flow."""
    async with open_connection(origin) as control:
        await control.call(HttpRequest("GET", "/start"))
        await asyncio.sleep(1)
        version, cpu, started = state.snapshot.version, time.process_time(), time.perf_counter()
        await asyncio.sleep(_STEADY_SECONDS)
        share = (time.process_time() - cpu) / (time.perf_counter() - started)
        await control.call(HttpRequest("GET", "/stop"))
        if state.snapshot.version == version:
            raise RuntimeError("no events came")
    return share


if __name__ == "__main__":
    main()
