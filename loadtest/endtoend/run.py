"""One run: a workload's objects are made, a subject schedules them, what it did is judged, and all is cleared away."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx

from extender.auditing import audit_snapshot, listed
from extender.cluster.api import (
    CLAIMS,
    CLASSES,
    PODS,
    SLICES,
    TEMPLATES,
    ObjectKey,
    OutcomeUnknownError,
    RawObject,
    Resource,
)
from loadtest.endtoend.figures import Run, Sightings
from loadtest.endtoend.subjects import Subject
from loadtest.endtoend.workloads import NAMESPACE, Workload, batch, unmade
from loadtest.worlds import Machine, Wish, world
from tests.cluster.harness.aftermath import losses, why_pending
from tests.cluster.harness.client import NAMESPACES, Client, key_of
from tests.cluster.harness.controlplane import ControlPlane
from tests.cluster.harness.objects import add_node
from tests.cluster.harness.objects import namespace as a_namespace
from tests.cluster.harness.process import Process
from tests.cluster.harness.service import grant_rights

STALL_SECONDS: Final = 120.0
"""Without another pod that gets a node, after which a run is given up."""

SETTLE_SECONDS: Final = 60.0
"""After the last Binding, for undos to end and controllers to release what pods held that went."""

CLEAR_SECONDS: Final = 300.0
_INTERVAL: Final = 0.05
_AT_A_TIME: Final = 16
_WRONG_SHOWN: Final = 5


class ClearError(Exception):
    """What a run has left does not go, so there can be no next one."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A control plane with nodes and devices.

    Attributes:
        nodes: their names.
    """

    plane: ControlPlane
    client: Client
    nodes: tuple[str, ...]

    async def run(self, workload: Workload, subject: Subject, pods: int, told: Callable[[int], object]) -> Run:
        """Do one run.

        Args:
            workload: what is scheduled.
            subject: who does it.
            pods: that are to get a node.
            told: how many have one by now.

        Raises:
            ClearError: pods or claims do not go.
        """
        load = os.getloadavg()[0]
        made = batch(workload, pods, self.nodes)
        await self._make(TEMPLATES, made.templates)
        await self._make(CLAIMS, made.claims)
        await self._make(PODS, (*made.residents, *made.hopeless))
        if not workload.from_templates:
            await self._make(PODS, made.fitting)
        sightings = Sightings(frozenset(key_of(each).name for each in made.fitting))
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(_alongside(self._watch(sightings)))
            running = await stack.enter_async_context(subject.running(self.plane))
            processes = (*self.plane.components.values(), *running)
            before = _processor_seconds(processes)
            if workload.staying < 1:
                most = int(pods * workload.staying)
                await stack.enter_async_context(_alongside(self._let_go(sightings, most)))
            if made.residents:
                await stack.enter_async_context(_alongside(self._update(made.residents, workload.updates)))
            if workload.from_templates:
                await self._make(PODS, made.fitting)
            wrong = await self._wait(sightings, told)
            spent = _processor_seconds(processes) - before
            wrong += await self._judged(sightings, subject)
        await self._clear()
        return Run(subject.name, sightings.rate, spent / pods, load, tuple(wrong[:_WRONG_SHOWN]))

    async def _make(self, resource: Resource, objects: Iterable[RawObject]) -> None:
        await _together(self.client.create(resource, each) for each in objects)

    # --- while a subject runs -------------------------------------------------------------------------------

    async def _watch(self, sightings: Sightings) -> None:
        """See pods get nodes, until cancelled."""
        while True:
            listing = await self.client.list(PODS, NAMESPACE)
            for each in listing.items:
                sightings.see(each, time.monotonic())
            try:
                async for event in self.client.watch(PODS, ObjectKey(NAMESPACE, ""), since=listing.revision):
                    if event.type == "MODIFIED":
                        sightings.see(event.object, time.monotonic())
            except (OutcomeUnknownError, httpx.TransportError):
                continue  # a watch that is silent for long is cut

    async def _let_go(self, sightings: Sightings, most: int) -> None:
        """Delete the oldest pods with a node beyond so many, until cancelled."""
        gone = 0
        while True:
            await asyncio.sleep(_INTERVAL)
            leaving = list(sightings.at)[gone : max(gone, len(sightings.at) - most)]
            await _together(self.client.delete(PODS, ObjectKey(NAMESPACE, name)) for name in leaving)
            gone += len(leaving)

    async def _update(self, residents: tuple[RawObject, ...], per_second: int) -> None:
        """Patch the status of running pods in turn, so often each second, until cancelled."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as tasks:
            for number in count():
                await asyncio.sleep(began + number / per_second - loop.time())
                ready = {"type": "Ready", "status": "True", "message": f"update {number}"}
                key = key_of(residents[number % len(residents)])
                tasks.create_task(self.client.patch_status(PODS, key, {"status": {"conditions": [ready]}}))

    async def _wait(self, sightings: Sightings, told: Callable[[int], object]) -> list[str]:
        """Until all pods have a node; what is wrong if they don't get one."""
        seen, changed = 0, time.monotonic()
        while len(sightings.at) < len(sightings.expected):
            await asyncio.sleep(_INTERVAL)
            if len(sightings.at) > seen:
                seen, changed = len(sightings.at), time.monotonic()
                told(seen)
            if time.monotonic() - changed > STALL_SECONDS:
                return [await self._stalled(sightings)]
        told(len(sightings.at))
        return []

    async def _stalled(self, sightings: Sightings) -> str:
        missing = sorted(sightings.expected - sightings.at.keys())
        first = await self.client.get(PODS, ObjectKey(NAMESPACE, missing[0]))
        return f"{len(missing)} pods have no node; {missing[0]}: {why_pending(first) or 'nobody says why'}"

    # --- afterwards -----------------------------------------------------------------------------------------

    async def _judged(self, sightings: Sightings, subject: Subject) -> list[str]:
        """All that is wrong in the end, once that which passes has passed."""
        until = time.monotonic() + SETTLE_SECONDS
        while found := await self._findings(subject):
            if time.monotonic() > until:
                break
            await asyncio.sleep(10 * _INTERVAL)
        return [*sightings.moved, *found]

    async def _findings(self, subject: Subject) -> list[str]:
        """Pods and claims that don't match, and every rule that the allocations break, if they mean something."""
        twice = audit_snapshot(await listed(self.client)) if subject.decides else ()
        return [*await losses(self.client, NAMESPACE), *map(str, twice)]

    async def _clear(self) -> None:
        """Delete pods, and then all that was made for them."""
        for resource in (PODS, TEMPLATES, CLAIMS):
            until = time.monotonic() + CLEAR_SECONDS
            while (await self.client.list(resource, NAMESPACE)).items:
                if time.monotonic() > until:
                    raise ClearError(f"{resource} in {NAMESPACE} are not gone after {CLEAR_SECONDS:g} s")
                await self.client.delete(resource, ObjectKey(NAMESPACE, ""))
                await asyncio.sleep(10 * _INTERVAL)


async def furnish(plane: ControlPlane, client: Client, nodes: int) -> Bench:
    """Make so many nodes with eight devices each, and what subjects need."""
    objects = world(nodes, Machine(), Wish(), in_use=0)
    names = tuple(each["metadata"]["name"] for each in objects["nodes"])
    await client.create(NAMESPACES, a_namespace(NAMESPACE))
    await grant_rights(client)
    await _together(client.create(CLASSES, unmade(each)) for each in objects["classes"])
    await _together(add_node(client, name) for name in names)
    await _together(client.create(SLICES, unmade(each)) for each in objects["slices"])
    return Bench(plane, client, names)


def _processor_seconds(processes: Iterable[Process]) -> float:
    """What they have used of all cores so far, by Linux' account."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # in user and in system mode
    return ticks / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def _alongside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Within, something goes on that has no end; should it fail, so does the body."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        yield
        task.cancel()


async def _together(calls: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Make calls, some at a time."""
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_A_TIME):
            tasks.create_task(work())
