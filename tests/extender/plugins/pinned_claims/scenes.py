"""A scene for pinned pods: a node with devices, an API server that can fail, and a clock."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from allocator import Features
from extender.cluster.cluster_state import ClusterState
from extender.cluster.double_allocations import DoubleAllocations
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.cluster.writes.lease import SharedLease
from extender.framework.asked import Asked
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS
from extender.plugins.pinned_claims import PINNED_PODS, PinnedClaims, PinnedPods
from tests.extender.framework.bind.scenes import Lagging
from tests.kit import virtualtime
from tests.kit.binders import binder_over, devices_of
from tests.kit.clusters import claim, device_class, local_slice, node, parsed, pod, solver
from tests.kit.servers.memory import NOW, Transport, memory_api, writes

GPU = "example.com/gpu"
ROOM = (node("n"), node("m"), local_slice("n", 2), local_slice("m", 1), device_class(extended=GPU))
POD = ObjectKey("ns", "p")
PROTECT, WRITE = "update resourceclaims", "update_status resourceclaims"


class Scene:
    """An extender that serves the pinned pods of a cluster."""

    def __init__(self, *objects: RawObject, schedulers: tuple[str, ...] = (), features: Features | None = None) -> None:
        self.api = memory_api(*objects)
        self.transport = Transport(self.api)
        self.passed = timedelta()
        self.told: list[tuple[str, Note]] = []
        self.clashes: list[None] = []
        self.state = ClusterState()
        self.watch = Lagging(self.state)
        self.api.follow(self.watch)
        by = replace(solver(features=features), clock=self.clock)
        void = DoubleAllocations(count=lambda: self.clashes.append(None), tell=self._hear)
        self.binder = binder_over(self.transport, self.state, now=self.now, by=by, double_allocations=void)
        lease = SharedLease(self.transport, PINNED_PODS, "mine", self.now, self.clock)
        self.asked = Asked(self.clock, schedulers)
        claims = PinnedClaims(self.binder.claims)
        self.task = PinnedPods(self.state, claims, lease, by, self.asked, self._hear, self.now)

    def clock(self) -> float:
        return self.passed.total_seconds()

    def now(self) -> datetime:
        return NOW + self.passed

    def ask(self) -> None:
        """A scheduler asks this replica about some pod."""
        self.asked.note(parsed(pod("other")))

    def look(self, *, seconds: float = 0.2, ticks: int = 3) -> None:
        """Give the task some turns, with this number of seconds between them."""

        async def run() -> None:
            for _ in range(ticks):
                await self.task.tick()
                self.passed += timedelta(seconds=seconds)

        virtualtime.run(run())

    def get(self, name: str) -> RawObject:
        return virtualtime.run(self.api.get(CLAIMS, ObjectKey("ns", name)))

    def has(self, name: str) -> tuple[list[str], list[str]]:
        """The devices of a claim, and for which pods it is reserved."""
        raw = self.get(name)
        return devices_of(raw), [each["name"] for each in (raw.get("status") or {}).get("reservedFor") or []]

    def patch(self, name: str, **status: Any) -> None:
        """Others write to a claim's status."""
        virtualtime.run(self.api.patch_status(CLAIMS, ObjectKey("ns", name), {"status": status}))

    def give(self, name: str, device: str, *users: str) -> None:
        """Others allocate a device to a claim."""
        self.patch(name, **claim(name, allocated=[device], at="n", users=users)["status"])

    @property
    def writes(self) -> list[str]:
        """The writes, except those to the lease."""
        return [call for call in writes(self.transport.calls) if not call.endswith("leases")]

    @property
    def events(self) -> list[tuple[str, str]]:
        """The pod and the text of each Event."""
        return [(name, note.text) for name, note in self.told]

    def _hear(self, pod: Pod, note: Note) -> None:
        self.told.append((pod.name, note))


def scene(*objects: RawObject, **more: object) -> Scene:
    """A scene in which schedulers ask this replica."""
    made = Scene(*ROOM, *objects, **more)  # type: ignore[arg-type]
    made.ask()
    return made
