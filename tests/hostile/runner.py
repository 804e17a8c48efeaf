"""A whole run: calm, hostile objects, hostile requests, calm; with the others calling all the time."""

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from loadtest.stage import process
from tests.hostile.apiserver import RawApiServer, loaded
from tests.hostile.objects import HostileObjects
from tests.hostile.requests import HostileRequests
from tests.hostile.scene import chosen_selectors, scene, write_requests
from tests.hostile.service import running
from tests.hostile.trial import Case, Trial, grouped

OBJECTS_AT_ONCE: Final = 100
REQUESTS_AT_ONCE: Final = 250
_SUSPECTS: Final = 40
_STALL: Final = 0.1
_LONGEST_HEAD: Final = 64 * 1024 * 1024
"""Of a request to the API server: the service passes on huge names."""


@dataclass(frozen=True, slots=True)
class Waited:
    """One call of the others.

    Attributes:
        at: when it began, by the monotonic clock.
        machine: seconds that a call to a peer took that does nothing, at the same time.
        fault: what is wrong with the answer.
    """

    at: float
    seconds: float
    machine: float
    fault: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done.

    Attributes:
        selectors: how many claims have a hostile selector.
        calm: seconds without an attack, before and after.
        tracing: seconds for finding the cases behind faults.
    """

    seed: int
    requests: int
    objects: int
    selectors: int
    calm: float = 10.0
    tracing: float = 120.0
    streams: bool = True


@dataclass(slots=True)
class Outcome:
    """What a run has seen.

    Attributes:
        slow: what kept the process from answering: seconds, case; the longest first.
    """

    plan: Plan
    trial: Trial
    calm: list[Waited] = field(default_factory=list)
    attacked: list[Waited] = field(default_factory=list)
    slow: list[tuple[float, Case]] = field(default_factory=list)
    seconds: float = 0.0


class Others:
    """The calls of the others, as they tell them."""

    def __init__(self) -> None:
        self.calls: list[Waited] = []

    @contextlib.asynccontextmanager
    async def calling(self, folder: Path, port: int) -> AsyncIterator[None]:
        """They call as long as the context lasts."""
        requests = folder / "requests"
        write_requests(requests)
        async with process([sys.executable, "-m", "tests.hostile.peer"]) as (_, output):
            peer = (await output.readline()).decode().strip()
            command = [sys.executable, "-m", "tests.hostile.others", str(port), peer, str(requests)]
            async with process(command) as (_, told):
                reading = asyncio.create_task(self._read(told))
                try:
                    yield
                finally:
                    reading.cancel()
                    await asyncio.wait([reading])

    async def _read(self, told: asyncio.StreamReader) -> None:
        while line := await told.readline():
            self.calls.append(Waited(**orjson.loads(line)))

    def within(self, windows: Iterable[tuple[float, float]]) -> list[Waited]:
        """The calls that began within some times."""
        spans = list(windows)
        return [call for call in self.calls if any(begin <= call.at < end for begin, end in spans)]


@contextlib.asynccontextmanager
async def stage(plan: Plan, folder: Path) -> AsyncIterator[Trial]:
    """A service over an API server with everything that a plan has."""
    api = loaded(scene(chosen_selectors(plan.seed, plan.selectors)))
    api.streams = plan.streams
    async with _listening(api), running(folder, api.port) as service:
        yield Trial(service, api, tracing=plan.tracing)


@contextlib.asynccontextmanager
async def _listening(api: RawApiServer) -> AsyncIterator[None]:
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, limit=_LONGEST_HEAD)
    api.port = server.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        server.close()


def cases_of(plan: Plan) -> tuple[HostileObjects, HostileRequests]:
    """The objects and requests of a plan."""
    return HostileObjects(plan.seed), HostileRequests(plan.seed, plan.selectors)


async def run(plan: Plan) -> Outcome:
    """Do all of it."""
    began = time.monotonic()
    objects, requests = cases_of(plan)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with stage(plan, folder) as trial:
            outcome, others = Outcome(plan, trial), Others()
            async with others.calling(folder, trial.service.port):
                await asyncio.sleep(1)  # imports and first connections are not to count
                calm = [await _calm(plan.calm)]
                for group in grouped((objects.make(number) for number in range(plan.objects)), OBJECTS_AT_ONCE):
                    await trial.attack(group)
                    _tell(trial, f"{group[-1].label}")
                for group in grouped((requests.make(number) for number in range(plan.requests)), REQUESTS_AT_ONCE):
                    await trial.attack(group)
                    _tell(trial, f"{group[-1].label}")
                calm.append(await _calm(plan.calm))
                outcome.calm, outcome.attacked = others.within(calm), others.within(trial.windows)
                outcome.slow = await _slow(trial, outcome.attacked)
    outcome.seconds = time.monotonic() - began
    return outcome


def _tell(trial: Trial, label: str) -> None:
    found = f"{len(trial.findings)} faults, {trial.left_out} left out, {trial.service.starts} starts"
    print(f"{label}: {found}, peak {trial.service.peak / 1e6:.0f} MB", file=sys.stderr, flush=True)


async def _calm(seconds: float) -> tuple[float, float]:
    began = time.monotonic()
    await asyncio.sleep(seconds)
    return began, time.monotonic()


def stalls(calls: Sequence[Waited]) -> list[Waited]:
    """The calls that waited too long, while a peer was answered."""
    return [call for call in calls if call.seconds - call.machine > _STALL and not call.fault]


async def _slow(trial: Trial, calls: Sequence[Waited]) -> list[tuple[float, Case]]:
    """The requests that were under way when others waited, each sent again alone; those that keep the process busy."""
    late = stalls(calls)
    suspects: dict[str, tuple[float, Case]] = {}
    for each in sorted(trial.sent, key=lambda each: each.began - each.ended):
        if any(call.at < each.ended and each.began < call.at + call.seconds for call in late):
            suspects.setdefault(each.request.value, (each.ended - each.began, each.request))
    found = []
    for _, case in list(suspects.values())[:_SUSPECTS]:
        _, longest = await trial.alone(case)
        if longest > _STALL / 2:
            found.append((longest, case))
    return sorted(found, key=lambda each: -each[0])
