"""One run: a workload's objects are made, a subject schedules them, what it did is judged, and all is cleared away."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS, TEMPLATES
from loadtest.endtoend import processor
from loadtest.endtoend.bench import Bench, furnished, together
from loadtest.endtoend.campaign import Place, Told
from loadtest.endtoend.checker import Checker
from loadtest.endtoend.objects import NAMESPACE, Batch, batch, with_licenses
from loadtest.endtoend.plan import Site, Turn
from loadtest.endtoend.results import Mood, Run
from loadtest.endtoend.sightings import Sightings
from loadtest.endtoend.subjects import SUBJECTS, Processes, Subject
from loadtest.endtoend.workload import Arrival
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.aftermath import why_pending
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import key_of
from tests.kit.controlplane.controllers import Licensing, license_findings, licensing

STALL_SECONDS: Final = 120.0
"""Without another pod that gets a node or its first rejection, after which a run is given up."""

SETTLE_SECONDS: Final = 60.0
"""After the last Binding, for undos to end and controllers to release what pods held that went."""

_INTERVAL: Final = 0.05
_SETTLE_INTERVAL: Final = 0.5
_FINDINGS_KEPT: Final = 10


@dataclass(frozen=True, slots=True)
class Trial:
    """One turn on a bench.

    Attributes:
        before: the machine's mood.
    """

    bench: Bench
    turn: Turn
    before: Mood
    told: Told

    async def run(self) -> Run:
        """Do it, and clear up.

        Raises:
            ApiError, OutcomeUnknownError, AuditError, ClearError, WaitError, OSError: the run came to nothing, and
                has left what it had made. In an ExceptionGroup if it concerns what goes on beside.
        """
        turn, subject = self.turn, SUBJECTS[self.turn.subject]
        bench = self.bench
        async with AsyncExitStack() as stack:
            licenses = licensing(bench.plane, bench.client, turn.workload.asked, turn.pods)
            controllers = await stack.enter_async_context(licenses)
            made = with_licenses(batch(turn.workload, turn.pods, bench.nodes), controllers)
            await self._prepare(made)
            sightings = Sightings(frozenset(key_of(each).name for each in made.fitting))
            await stack.enter_async_context(_alongside(bench.watch(sightings)))
            began = time.monotonic()
            running = await stack.enter_async_context(subject.running(bench.plane, controllers))
            asked = {each.name: each.process for each in controllers}
            processes = _ids({**bench.plane.components, **running, **asked})
            used = processor.used(processes)
            for work in self._beside(made, sightings):
                await stack.enter_async_context(_alongside(work))
            stalled = await self._wait(sightings)
            spent = processor.spent(used, processor.used(processes))
            findings = [*stalled, *sightings.moved, *await self._settled(subject)]
            findings += await self._released(controllers)
        await bench.clear()
        return Run(
            workload=turn.name,
            nodes=len(self.bench.nodes),
            pods=turn.pods,
            subject=turn.subject,
            repetition=turn.repetition,
            before=self.before,
            bound_at=sightings.since(began),
            processor=spent,
            findings=tuple(findings[:_FINDINGS_KEPT]),
        )

    async def _prepare(self, made: Batch) -> None:
        """All that is there before the subject starts."""
        await self.bench.make(TEMPLATES, made.templates)
        await self.bench.make(CLAIMS, made.claims)
        await self.bench.make(PODS, (*made.residents, *made.hopeless))
        if self.turn.workload.arrival.when == "before":
            await self.bench.make(PODS, made.fitting)

    # --- while a subject runs -------------------------------------------------------------------------------

    def _beside(self, made: Batch, sightings: Sightings) -> list[Coroutine[Any, Any, None]]:
        """What goes on while pods get nodes."""
        workload, found = self.turn.workload, list[Coroutine[Any, Any, None]]()
        if workload.arrival.when == "during":
            found.append(self._arrive(made.fitting, workload.arrival))
        if workload.churn.living < 1:
            found.append(self._let_go(sightings, int(self.turn.pods * workload.churn.living)))
        if made.residents:
            found.append(self._update(made.residents, workload.status_updates_per_second))
        return found

    async def _arrive(self, pods: Sequence[RawObject], arrival: Arrival) -> None:
        """Make pods, each at its time or one after the other."""
        if not arrival.per_second:
            await self.bench.make(PODS, pods)
            return
        async with asyncio.TaskGroup() as tasks:
            numbers = _paced(arrival.per_second)
            for pod in pods:
                await anext(numbers)
                tasks.create_task(self.bench.client.create(PODS, pod))

    async def _let_go(self, sightings: Sightings, most: int) -> None:
        """Delete the oldest pods with a node, so that at most this number is left, until cancelled."""
        gone = 0
        while True:
            await asyncio.sleep(_INTERVAL)
            leaving = list(sightings.at)[gone : max(gone, len(sightings.at) - most)]
            await together(self.bench.client.delete(PODS, ObjectKey(NAMESPACE, name)) for name in leaving)
            gone += len(leaving)

    async def _update(self, residents: Sequence[RawObject], per_second: int) -> None:
        """Patch the status of running pods in turn, at this rate, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            async for number in _paced(per_second):
                ready = {"type": "Ready", "status": "True", "message": f"update {number}"}
                key = key_of(residents[number % len(residents)])
                tasks.create_task(self.bench.client.patch_status(PODS, key, {"status": {"conditions": [ready]}}))

    async def _wait(self, sightings: Sightings) -> list[str]:
        """Until all pods have a node; what is wrong if they don't get one."""
        seen, changed = 0, time.monotonic()
        while len(sightings.at) < len(sightings.expected):
            await asyncio.sleep(_INTERVAL)
            self.told(len(sightings.at))
            if sightings.progress > seen:
                seen, changed = sightings.progress, time.monotonic()
            if time.monotonic() - changed > STALL_SECONDS:
                return [await self._stalled(sightings)]
        self.told(len(sightings.at))
        return []

    async def _stalled(self, sightings: Sightings) -> str:
        missing = sorted(sightings.expected - sightings.at.keys())
        there = {key_of(pod).name: pod for pod in (await self.bench.client.list(PODS, NAMESPACE)).items}
        first = there.get(missing[0])
        why = why_pending(first) or "nobody says why" if first else "it is not there"
        return f"{len(missing):,} of {len(sightings.expected):,} pods have no node; {missing[0]}: {why}"

    # --- afterwards -----------------------------------------------------------------------------------------

    async def _released(self, controllers: Sequence[Licensing]) -> list[str]:
        """What is wrong with licenses. The subject still runs, because claims go only when they are released."""
        if not controllers:
            return []
        found = await license_findings(self.bench.client, NAMESPACE, controllers)
        await self.bench.clear()
        return found + await license_findings(self.bench.client, NAMESPACE, controllers)

    async def _settled(self, subject: Subject) -> list[str]:
        """All that is wrong in the end, once that which passes has passed."""
        checker = Checker(self.bench.client, self.bench.plane.kubeconfig(ADMIN))
        until = time.monotonic() + SETTLE_SECONDS
        while found := await checker.findings(audited=subject.decides):
            if time.monotonic() > until:
                return found
            await asyncio.sleep(_SETTLE_INTERVAL)
        return []


@asynccontextmanager
async def opened(site: Site, binaries: Binaries, logs: Path) -> AsyncIterator[Place]:
    """A control plane of its own for the runs of a site; as `loadtest.endtoend.bench.furnished`."""
    async with furnished(site, binaries, logs) as bench:
        yield lambda turn, before, told: Trial(bench, turn, before, told).run()


def _ids(processes: Processes) -> dict[str, int]:
    return {name: process.pid for name, process in processes.items()}


async def _paced(per_second: float) -> AsyncIterator[int]:
    """Numbers from 0, each at its time."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in count():
        await asyncio.sleep(began + number / per_second - loop.time())
        yield number


@asynccontextmanager
async def _alongside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Within, something goes on, to its end or to the body's; should it fail, so does the body."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        yield
        task.cancel()
