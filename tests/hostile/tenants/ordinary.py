"""Ordinary tenants: pods with a claim from a template come at a steady pace, run for a while, and go."""

import asyncio
import math
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
_REFUSED: Final = ("Unschedulable", "SchedulerError")
"""Reasons of a pod's condition after a try in vain."""


@dataclass(slots=True)
class Course:
    """What became of one pod; times are seconds since its creation.

    Attributes:
        name: namespace and name.
        since: when it was made, by the loop's clock.
        lifted: when it was first seen without a scheduling gate; None: not yet.
        bound: when it was first seen with a node; None: not yet.
        refusals: when its scheduler has rejected it, and why.
    """

    name: str
    since: float
    lifted: float | None = None
    bound: float | None = None
    refusals: list[tuple[float, str]] = field(default_factory=list)

    def see(self, obj: RawObject, now: float) -> None:
        """The pod was seen like this."""
        after = now - self.since
        if self.lifted is None and not obj["spec"].get("schedulingGates"):
            self.lifted = after
        if (why := _refusal(obj)) and why not in [known for _, known in self.refusals]:
            self.refusals.append((after, why))
        if is_bound(obj):
            self.bound = after

    def __str__(self) -> str:
        bound = "not bound" if self.bound is None else f"bound after {self.bound:.2f} s"
        lifted = "gate not lifted" if self.lifted is None else f"without gate after {self.lifted:.2f} s"
        return "; ".join((f"{self.name}: {bound}, {lifted}", *(f"at {at:.2f} s: {why}" for at, why in self.refusals)))


@dataclass(slots=True)
class Phase:
    """What the tenants got in one part of the run.

    Attributes:
        seconds: length of the part.
        made: what became of the pods that were made in this part.
        evicted: pods that somebody else has deleted or marked for an eviction.
    """

    name: str
    seconds: float = 0.0
    made: list[Course] = field(default_factory=list)
    evicted: list[ObjectKey] = field(default_factory=list)

    @property
    def waits(self) -> Sequence[float]:
        """Seconds from creation to bound, of each pod that was bound."""
        return [each.bound for each in self.made if each.bound is not None]

    @property
    def lifts(self) -> Sequence[float]:
        """Seconds from creation to the lift of the gate, of each pod without one."""
        return [each.lifted for each in self.made if each.lifted is not None]

    @property
    def rest(self) -> Sequence[float]:
        """Seconds from the lift of the gate to bound, of each pod that was bound."""
        return [each.bound - (each.lifted or 0.0) for each in self.made if each.bound is not None]

    def slowest(self, number: int) -> Sequence[Course]:
        """The pods that waited longest; those that were not bound come first."""
        return sorted(self.made, key=lambda each: math.inf if each.bound is None else each.bound, reverse=True)[:number]

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
    _since: dict[str, Course] = field(default_factory=dict, init=False)
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
        self._since[name] = course = Course(f"{self.namespace}/{name}", asyncio.get_running_loop().time())
        self.phase.made.append(course)
        await self.client.create(PODS, made)

    def _see(self, obj: RawObject) -> None:
        name = key_of(obj).name
        course = self._since.get(name)
        if course is None:
            return
        course.see(obj, asyncio.get_running_loop().time())
        if course.bound is not None:
            del self._since[name]
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


def _refusal(obj: RawObject) -> str:
    """Why a scheduler has rejected a pod; empty: none has."""
    conditions: Sequence[Any] = obj.get("status", {}).get("conditions") or ()
    return next((each.get("message", "") for each in conditions if each.get("reason") in _REFUSED), "")


def _is_evicted(obj: RawObject) -> bool:
    conditions: Sequence[Any] = obj.get("status", {}).get("conditions") or ()
    return any(each["type"] == _EVICTED and each["status"] == "True" for each in conditions)
