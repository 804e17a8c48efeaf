"""A whole run: calm, hostile objects, hostile requests, calm; with the others calling all the time."""

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from tests.hostile.objects import HostileObjects
from tests.hostile.requests import HostileRequests
from tests.hostile.scene import chosen_selectors, ordinary_requests, scene
from tests.hostile.service import RunningService, running
from tests.hostile.trial import Case, Span, Trial, grouped
from tests.kit.process import printing
from tests.kit.servers.raw import RawApiServer, load_all

OBJECTS_AT_ONCE: Final = 100
REQUESTS_AT_ONCE: Final = 250
_HUGE_AT_ONCE: Final = 8
_SUSPECTS: Final = 40
_STALL: Final = 0.1
_RATE: Final = 50.0
"""Calls of the others a second."""


@dataclass(frozen=True, slots=True)
class Waited:
    """One call of the others.

    Attributes:
        at: when it began, by the monotonic clock.
        machine: seconds that a call to a peer took that does nothing, at the same time.
        worked: seconds of processor time that the service took meanwhile, all its threads together.
        fault: what is wrong with the answer.
    """

    at: float
    seconds: float
    machine: float
    worked: float
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
        calm, attacked, beyond: the calls of the others without an attack, among plausible cases, and among those that
            no API server could store and no client of ours would send.
        spans: when which cases were delivered.
        peak: the most bytes in memory among plausible cases.
        slow: what kept the process from answering: seconds, case; the longest first.
    """

    plan: Plan
    trial: Trial
    calm: list[Waited] = field(default_factory=list)
    attacked: list[Waited] = field(default_factory=list)
    beyond: list[Waited] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    peak: int = 0
    slow: list[tuple[float, Case]] = field(default_factory=list)
    seconds: float = 0.0


class Others:
    """The calls of the others, as they tell them."""

    def __init__(self) -> None:
        self.calls: list[Waited] = []

    @contextlib.asynccontextmanager
    async def calling(
        self,
        folder: Path,
        service: RunningService,
        requests: Sequence[bytes] = ordinary_requests(),
        rate: float = _RATE,
    ) -> AsyncIterator[None]:
        """They call a service as long as the context lasts: these requests in turn, so many a second."""
        file = folder / "requests"
        file.write_text("\n".join(each.hex() for each in requests))
        async with printing([sys.executable, "-m", "tests.hostile.peer"]) as (_, output):
            peer = (await output.readline()).decode().strip()
            arguments = (str(service.port), peer, str(file), str(rate), str(service.pid))
            command = [sys.executable, "-m", "tests.hostile.others", *arguments]
            async with printing(command) as (_, told):
                reading = asyncio.create_task(self._read(told))
                try:
                    yield
                finally:
                    reading.cancel()
                    await asyncio.wait([reading])

    async def _read(self, told: asyncio.StreamReader) -> None:
        while line := await told.readline():
            self.calls.append(Waited(**orjson.loads(line)))

    def within(self, spans: Iterable[Span]) -> list[Waited]:
        """The calls that began within some times."""
        return [call for _, calls in grouped_by(self.calls, spans) for call in calls]


def grouped_by(calls: Sequence[Waited], spans: Iterable[Span]) -> Iterator[tuple[Span, list[Waited]]]:
    """The calls that began within each span, as far as there are any."""
    for span in spans:
        if found := [call for call in calls if span.began <= call.at < span.ended]:
            yield span, found


@contextlib.asynccontextmanager
async def stage(plan: Plan, folder: Path) -> AsyncIterator[Trial]:
    """A service over an API server with everything that a plan has."""
    api = load_all(RawApiServer(streams=plan.streams), scene(chosen_selectors(plan.seed, plan.selectors)))
    settings = {"DRA_EXTENDER__ADMISSION_CHECKS__ENABLED": "true"}  # without it, Kueue's objects are not watched
    async with api.listening(), running(folder, api.port, settings) as service:
        yield Trial(service, api, tracing=plan.tracing)


def cases_of(plan: Plan) -> tuple[HostileObjects, HostileRequests]:
    """The objects and requests of a plan."""
    return HostileObjects(plan.seed), HostileRequests(plan.seed, plan.selectors)


async def run(plan: Plan) -> Outcome:
    """Do all of it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with stage(plan, folder) as trial:
            outcome, others = Outcome(plan, trial), Others()
            async with others.calling(folder, trial.service):
                await asyncio.sleep(1)  # imports and first connections are not to count
                calm = [await _calm(plan.calm)]
                attacked = await _attack(trial, plan, plausible=True)
                outcome.peak = trial.service.peak
                calm.append(await _calm(plan.calm))
                beyond = await _attack(trial, plan, plausible=False)
                outcome.calm, outcome.attacked = others.within(calm), others.within(attacked)
                outcome.beyond, outcome.spans = others.within(beyond), [*attacked, *beyond]
                outcome.slow = await _slow(plan, trial, [*outcome.attacked, *outcome.beyond])
    outcome.seconds = time.monotonic() - began
    return outcome


async def _attack(trial: Trial, plan: Plan, *, plausible: bool) -> list[Span]:
    """Deliver all cases that are plausible, or all that are not; when the service was under attack."""
    trial.spans = []
    objects, requests = cases_of(plan)
    wanted = (each for each in map(objects.make, range(plan.objects)) if each.is_plausible == plausible)
    for group in grouped(wanted, OBJECTS_AT_ONCE):
        await trial.attack(group)
        _tell(trial, group[-1].label)
    sent = (each for each in map(requests.make, range(plan.requests)) if each.is_plausible == plausible)
    for group in grouped(sent, REQUESTS_AT_ONCE if plausible else _HUGE_AT_ONCE):
        await trial.attack(group)
        _tell(trial, group[-1].label)
    return trial.spans


def _tell(trial: Trial, label: str) -> None:
    found = f"{len(trial.findings)} faults, {trial.left_out} left out, {trial.service.starts} starts"
    print(f"{label}: {found}, peak {trial.service.peak / 1e6:.0f} MB", file=sys.stderr, flush=True)


async def _calm(seconds: float) -> Span:
    began = time.monotonic()
    await asyncio.sleep(seconds)
    return Span(began, time.monotonic(), "nothing")


def stalls(calls: Sequence[Waited]) -> list[Waited]:
    """The calls that waited too long, while a peer was answered."""
    return [call for call in calls if call.seconds - call.machine > _STALL and not call.fault]


async def _slow(plan: Plan, trial: Trial, calls: Sequence[Waited]) -> list[tuple[float, Case]]:
    """The requests that were under way when others waited, each sent again alone; those that keep the process busy."""
    late = stalls(calls)
    suspects: dict[str, int] = {}
    _, requests = cases_of(plan)
    for each in sorted(trial.sent, key=lambda each: each.began - each.ended):
        if any(call.at < each.ended and each.began < call.at + call.seconds for call in late):
            suspects.setdefault(each.value, each.number)
    found = []
    for case in map(requests.make, list(suspects.values())[:_SUSPECTS]):
        _, longest = await trial.alone(case)
        if longest > _STALL / 2:
            found.append((longest, case))
    return sorted(found, key=lambda each: -each[0])
