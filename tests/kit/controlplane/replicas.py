"""Replicas as we ship them: a scheduler and its extender each. What ends by itself is started again, as by kubelet."""

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import httpx

from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import START_SECONDS, ControlPlane
from tests.kit.controlplane.scheduler import (
    METRICS_FOR_ALL,
    SHIPPED,
    Scheduler,
    localize,
    running_scheduler,
    shipped_flags,
)
from tests.kit.controlplane.service import Extender, grant_rights, running_extender
from tests.kit.process import Process
from tests.kit.waiting import WaitError, pause, wait_for_answer

LOOK_SECONDS: Final = 1.0
"""Between two looks at what a replica's scheduler counts, and at whether the replica runs."""

_LEADS: Final = re.compile(r"^leader_election_master_status\{[^}]*\} 1$", re.MULTILINE)
_QUEUED: Final = re.compile(r'^scheduler_queue_incoming_pods_total\{event="(\w+)"[^}]*\} ([0-9.e+]+)$', re.MULTILINE)
_FLUSH: Final = "UnschedulableTimeout"


@dataclass
class Replica:
    """A scheduler, and its extender as a sidecar.

    Attributes:
        leads: whether the scheduler had the lease when it was last asked.
        queued: by process id of each scheduler that has run: the events by which pods came into its queues, counted.
    """

    extender: Extender
    scheduler: Scheduler
    leads: bool = False
    queued: dict[int, Counter[str]] = field(default_factory=dict)
    _is_down: bool = field(default=False, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @property
    def processes(self) -> Sequence[Process]:
        """Both, in the order in which kubelet starts them."""
        return (self.extender.process, self.scheduler.process)

    async def kill(self) -> None:
        """End both without giving them time to clean up. They stay away until `start`."""
        async with self._lock:
            await self.look()
            self._is_down, self.leads = True, False
            for each in self.processes:
                await asyncio.to_thread(each.kill)

    async def stop(self) -> None:
        """Ask both to end, the sidecar after the scheduler. They stay away until `start`."""
        async with self._lock:
            await self.look()
            self._is_down, self.leads = True, False
            for each in reversed(self.processes):
                await asyncio.to_thread(each.stop)

    async def start(self) -> None:
        """Start what does not run, and wait until it is ready; the scheduler comes after the sidecar."""
        async with self._lock:
            self._is_down = False
            for each in self.processes:
                await _start(each)

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Within, both stand still, and are not started again: kubelet sees that they run."""
        async with self._lock:
            with ExitStack() as stack:
                for each in self.processes:
                    stack.enter_context(each.paused())
                self.leads = False
                yield

    @asynccontextmanager
    async def kept_running(self) -> AsyncIterator[None]:
        """Within, what has ended by itself is started. A scheduler ends if it cannot renew its lease in time."""
        keeping = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            async with self._lock:  # a start that has begun comes to its end
                keeping.cancel()
            await asyncio.wait([keeping])

    async def _keep(self) -> None:
        while True:
            async with self._lock:
                if not self._is_down:
                    await self.look()
                    with suppress(WaitError):  # it has ended again
                        await asyncio.gather(*map(_start, self.processes))
            await pause(LOOK_SECONDS)

    async def look(self) -> None:
        """Ask the scheduler what it has counted."""
        if not self.scheduler.process.is_running:
            self.leads = False
            return
        with suppress(httpx.TransportError):  # it is about to end
            async with httpx.AsyncClient(verify=self._trust, trust_env=False) as http:
                text = (await http.get(f"{self.scheduler.url}/metrics")).raise_for_status().text
            self.leads = bool(_LEADS.search(text))
            counts = self.queued[self.scheduler.process.pid] = Counter()
            for event, number in _QUEUED.findall(text):
                counts[event] += round(float(number))

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.scheduler.certificate)


async def _start(process: Process) -> None:
    if not process.is_running:
        await asyncio.to_thread(process.start, within=START_SECONDS)


async def leader(replicas: Sequence[Replica], *, within: float) -> Replica:
    """The replica whose scheduler leads, once there is one.

    Raises:
        WaitError: none leads within this number of seconds.
    """

    async def leading() -> list[Replica]:
        for each in replicas:
            await each.look()
        return [each for each in replicas if each.leads]

    return (await wait_for_answer(leading, bool, "a scheduler leads", within=within))[0]


def flushed(replicas: Iterable[Replica]) -> int:
    """How many waits of pods have ended only because they had lasted for five minutes.

    Raises:
        WaitError: the schedulers count nothing that is known.
    """
    counts = sum((each for replica in replicas for each in replica.queued.values()), Counter[str]())
    if not counts:
        raise WaitError("kube-scheduler does not count the pods in its queues by event")
    return counts[_FLUSH]


@asynccontextmanager
async def running_replicas(client: Client, plane: ControlPlane, number: int = 2) -> AsyncIterator[list[Replica]]:
    """Replicas with the configuration that we ship; one of their schedulers leads.

    Args:
        client: an administrator's.
        plane: the control plane.
        number: of replicas.
    """
    await grant_rights(client)
    text = SHIPPED.read_text()
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(number):
            extender = await stack.enter_async_context(running_extender(plane))
            config = localize(text, extender.url, plane.kubeconfig(SCHEDULER))
            flags = (*shipped_flags(text), METRICS_FOR_ALL)
            found.append(Replica(extender, await stack.enter_async_context(running_scheduler(plane, config, flags))))
        await leader(found, within=START_SECONDS)
        for each in found:
            await stack.enter_async_context(each.kept_running())
        yield found
