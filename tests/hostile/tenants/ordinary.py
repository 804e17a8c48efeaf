"""Ordinary tenants: pods with a claim from a template come at a steady pace, run for a while, and go."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from extender.kube.api import ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import PODS, TEMPLATES
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.scenario import by_template
from tests.kit.objects.manifests import claim_spec, is_bound, pod, template
from tests.kit.waiting import pause

TEMPLATE: Final = "gpu"
_EVICTED: Final = "DisruptionTarget"


@dataclass(slots=True)
class Phase:
    """What the tenants got in one part of the run.

    Attributes:
        seconds: length of the part.
        waits: seconds from creation to bound, of each pod that was made in this part and was bound.
        made: pods that were made.
        evicted: pods that somebody else has deleted or marked for an eviction.
    """

    name: str
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    made: int = 0
    evicted: list[ObjectKey] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Pods bound per second."""
        return len(self.waits) / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class Tenant:
    """One namespace with pods that stay and pods that come and go.

    Attributes:
        every: seconds from the creation of one pod to that of the next.
        life: seconds that a pod runs.
        phase: of new pods; the phases are shared by all tenants.
    """

    client: Client
    namespace: str
    every: float
    life: float
    phase: Phase
    _since: dict[str, tuple[Phase, float]] = field(default_factory=dict, init=False)
    _running: set[str] = field(default_factory=set, init=False)
    _dismissed: set[str] = field(default_factory=set, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def settle(self, steady: int) -> None:
        """Make the template, and pods that stay."""
        await self.client.create(TEMPLATES, template(self.namespace, TEMPLATE, claim_spec()))
        for number in range(steady):
            await self._make(f"steady-{number}")

    async def run(self) -> None:
        """Make pods at the tenant's pace until cancelled."""
        number = 0
        while True:
            await self._make(f"pod-{number}")
            number += 1
            await pause(self.every)

    async def follow(self) -> None:
        """Notice who is bound and who is evicted, until cancelled."""
        while True:
            try:
                listing = await self.client.list(PODS, self.namespace)
                for each in listing.items:
                    self._see(each)
                async for event in self.client.watch(PODS, ObjectKey(self.namespace, ""), since=listing.revision):
                    if event.type == "MODIFIED":
                        self._see(event.object)
                    elif event.type == "DELETED":
                        self._is_gone(event.object)
            except (ApiError, OutcomeUnknownError, OSError):
                continue

    @property
    def waiting(self) -> Sequence[str]:
        """The names of pods without a node."""
        return sorted(self._since)

    async def _make(self, name: str) -> None:
        used = [by_template(TEMPLATE)]
        made = pod(self.namespace, name, claims=used, terminationGracePeriodSeconds=0)
        self._since[name] = self.phase, asyncio.get_running_loop().time()
        self.phase.made += 1
        await self.client.create(PODS, made)

    def _see(self, obj: RawObject) -> None:
        name = key_of(obj).name
        if is_bound(obj) and name in self._since:
            phase, since = self._since.pop(name)
            phase.waits.append(asyncio.get_running_loop().time() - since)
            self._running.add(name)
            if not name.startswith("steady"):
                task = asyncio.create_task(self._end(name))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _is_gone(self, obj: RawObject) -> None:
        key = key_of(obj)
        self._since.pop(key.name, None)
        self._running.discard(key.name)
        if key.name not in self._dismissed or _is_evicted(obj):
            self.phase.evicted.append(key)
        self._dismissed.discard(key.name)

    async def _end(self, name: str) -> None:
        await pause(self.life)
        if name in self._running:
            self._dismissed.add(name)
            with suppress(ApiError):
                await self.client.delete(PODS, ObjectKey(self.namespace, name))


def _is_evicted(obj: RawObject) -> bool:
    conditions: Sequence[Any] = obj.get("status", {}).get("conditions") or ()
    return any(each["type"] == _EVICTED and each["status"] == "True" for each in conditions)
