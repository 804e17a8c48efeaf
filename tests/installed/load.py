"""Pods with claims that come, run for a moment and go, all the time, and what became of each of them."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS, Resource
from tests.installed.site import TEMPLATE, WORKLOAD
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.scenario import by_template
from tests.kit.node.pods import is_running, start_pod
from tests.kit.waiting import pause

WORKERS: Final = 4
"""Pods at a time: fewer than there are devices, also while a machine is drained."""

PATIENCE: Final = 300.0
_RUN_SECONDS: Final = 1.0


@dataclass(slots=True)
class Fate:
    """What became of a pod: moments in seconds, of the clock of this process; 0: it has not come to that.

    Attributes:
        taken: whether somebody else has deleted it.
    """

    name: str
    made: float
    bound: float = 0.0
    ran: float = 0.0
    gone: float = 0.0
    failed: bool = False
    taken: bool = False


@dataclass(slots=True)
class Load:
    """The pods that have come.

    Attributes:
        twice: devices that two claims held at one moment.
    """

    client: Client
    fates: dict[str, Fate] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    _held: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _stopping: bool = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Within, pods come and go. After it, all that have come are gone."""
        async with asyncio.TaskGroup() as watches:
            watching = [watches.create_task(self._follow(kind)) for kind in (PODS, CLAIMS)]
            async with asyncio.TaskGroup() as workers:
                for _ in range(WORKERS):
                    workers.create_task(self._work())
                try:
                    yield
                finally:
                    await self.stop()
            for each in watching:
                each.cancel()

    async def stop(self) -> None:
        """Let no more pods come, and wait until all are gone."""
        self._stopping = True
        async with asyncio.timeout(2 * PATIENCE), self._changed:
            await self._changed.wait_for(lambda: all(each.gone for each in self.fates.values()))

    async def goes_on(self, pods: int = WORKERS) -> None:
        """Wait until so many more pods have run that are made from now on."""
        since = time.monotonic()

        def enough() -> bool:
            return sum(bool(each.ran) for each in self.since(since)) >= pods

        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(enough)

    def since(self, moment: float) -> list[Fate]:
        """The pods that were made after a moment."""
        return [each for each in self.fates.values() if each.made >= moment]

    def lost(self) -> list[str]:
        """Pods that have failed, or have waited in vain; those that somebody else has taken away do not count."""
        now = time.monotonic()
        return [
            each.name
            for each in self.fates.values()
            if each.failed or (not each.ran and not each.taken and now - each.made > PATIENCE)
        ]

    async def _work(self) -> None:
        while not self._stopping:
            name = f"pod-{next(self._numbers)}"
            fate = self.fates[name] = Fate(name, time.monotonic())
            key = await start_pod(
                self.client, WORKLOAD, name, claims=[by_template(TEMPLATE)], terminationGracePeriodSeconds=5
            )
            await self._until(fate, "ran", "gone", "failed")
            if not fate.gone:
                await pause(_RUN_SECONDS)
                await self._end(key, fate)

    async def _end(self, key: ObjectKey, fate: Fate) -> None:
        try:
            await self.client.end(key)
        except ApiError as error:
            if error.status != 404:
                raise
            fate.taken = True
        await self._until(fate, "gone")

    async def _until(self, fate: Fate, *fields: str) -> None:
        """Wait until one of these fields of a pod is set, or patience is at its end."""
        async with self._changed:
            waiting = self._changed.wait_for(lambda: any(getattr(fate, each) for each in fields))
            with suppress(TimeoutError):
                await asyncio.wait_for(waiting, PATIENCE)

    async def _follow(self, kind: Resource) -> None:
        learn = self._learn_pod if kind is PODS else self._learn_claim
        while True:
            listing = await self.client.list(kind, WORKLOAD)
            for each in listing.items:
                await learn(each, gone=False)
            async for event in self.client.watch(kind, ObjectKey(WORKLOAD, ""), since=listing.revision):
                if event.type != "BOOKMARK":
                    await learn(event.object, gone=event.type == "DELETED")

    async def _learn_pod(self, pod: RawObject, *, gone: bool) -> None:
        fate = self.fates.get(pod["metadata"]["name"])
        if fate is None:
            return
        now = time.monotonic()
        if pod["spec"].get("nodeName") and not fate.bound:
            fate.bound = now
        if is_running(pod) and not fate.ran:
            fate.ran = now
        fate.failed |= pod.get("status", {}).get("phase") == "Failed" and not pod["metadata"].get("deletionTimestamp")
        fate.taken |= gone and not fate.ran
        if gone:
            fate.gone = now
        async with self._changed:
            self._changed.notify_all()

    async def _learn_claim(self, claim: RawObject, *, gone: bool) -> None:
        uid = claim["metadata"]["uid"]
        allocation = None if gone else claim.get("status", {}).get("allocation")
        results = allocation["devices"]["results"] if allocation else []
        held = {(each["driver"], each["pool"], each["device"]) for each in results}
        for device, holder in list(self._held.items()):
            if holder == uid and device not in held:
                del self._held[device]
        for device in held:
            if self._held.setdefault(device, uid) != uid:
                self.twice.append(f"{'/'.join(device)}: claims {self._held[device]} and {uid}")
