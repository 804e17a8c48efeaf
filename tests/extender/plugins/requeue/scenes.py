"""What waking is tried on: a cluster, a waker, and the time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from allocator import Limits
from allocator.search.limits import DEFAULT_LIMITS
from extender.cluster.writes.pods import DEVICES_CHANGED
from extender.cluster.writes.writer import Writer
from extender.framework.asked import Asked
from extender.framework.background_runner import PAUSE_SECONDS
from extender.framework.cluster_with_kept import ClusterWithKept
from extender.framework.decisions.evaluate import Decider
from extender.framework.filter import filter_nodes
from extender.framework.task import BackgroundTask, Rejection
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import PODS, RESOURCES
from extender.plugins.requeue.requeue import Requeue
from extender.plugins.requeue.rescan import Rescan
from tests.kit.clusters import GPU, NOW, Cluster, Object, claim, node, pod, rejected, solver
from tests.kit.servers.memory import Transport

NODE_NAMES = ("a", "b")
WORLD = (GPU, *map(node, NODE_NAMES))


def waiting(*names: str, **fields: Any) -> list[Object]:
    """Pods that their scheduler has tried, each with a claim of its own."""
    return rejected(*(each for name in names for each in (pod(name, f"{name}-c", **fields), claim(f"{name}-c"))))


@dataclass
class Scene:
    """A cluster, a waker, and the time.

    Attributes:
        now: seconds.
        ticking: seconds that pass whenever somebody looks at the clock.
        limits: of a search.
        schedulers: as in the settings.
        rescan: its turns are given by `turns`.
        transport: to the API server.
    """

    cluster: Cluster
    now: float = 0.0
    ticking: float = 0.0
    limits: Limits = DEFAULT_LIMITS
    schedulers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.solver = replace(solver(limits=self.limits), clock=self._clock)
        self.transport = Transport(self.cluster.api)
        self.writer = writer = Writer(self.transport, self.cluster.state, now=lambda: NOW)
        self.decider = Decider(self.solver, self.cluster.state)
        self.requeue = Requeue(
            self.cluster.state, ClusterWithKept(self.decider, self.cluster.state), writer, lambda _: None
        )
        self.asked = Asked(self.solver.clock, self.schedulers)
        self.follow([self.requeue])

    @classmethod
    def of(cls, *objects: Object, ticking: float = 0.0, limits: Limits = DEFAULT_LIMITS) -> "Scene":
        return cls(Cluster.of(*objects), ticking=ticking, limits=limits)

    def follow(self, tasks: Sequence[BackgroundTask]) -> None:
        """The rescan begins, and tells these tasks."""
        state, faults = self.cluster.state, self.solver.faults
        self.rescan = Rescan(state, self.writer, tasks, self.asked, self.solver.clock, faults)

    def _clock(self) -> float:
        self.now += self.ticking
        return self.now

    def reject(self, *names: str, asked: Sequence[str] = NODE_NAMES) -> None:
        """Filter is asked about pods, and leaves them no node."""
        snapshot = self.cluster.state.snapshot
        for name in names:
            asking = snapshot.pods[ObjectKey("ns", name)]
            result = filter_nodes(asking, asked, snapshot, self.solver)
            assert not result.passed
            self.hear(Rejection(asking, asked, result, snapshot))

    def hear(self, rejection: Rejection) -> None:
        """The background tasks hear of a rejection."""
        self.asked.note(rejection.sent)
        self.requeue.on_rejected(rejection)

    async def turns(self, seconds: float) -> list[str]:
        """The background tasks have their turns for some seconds; returns the pods that were changed by that."""
        before, until = await self._marks(), self.now + seconds
        while self.now < until:
            self.now += PAUSE_SECONDS
            await self.rescan.tick()
            await self.requeue.look()
        after = await self._marks()
        return sorted(name for name, mark in after.items() if mark != before.get(name, ""))

    async def put(self, obj: Object) -> None:
        """Make an object or change it, status and all."""
        resource, metadata = RESOURCES[obj["kind"]], dict(obj["metadata"])
        key = ObjectKey(metadata.get("namespace", ""), metadata["name"])
        try:
            old = await self.cluster.api.get(resource, key)
        except ApiError:
            self.cluster.load(obj)
            return
        metadata |= {name: old["metadata"][name] for name in ("uid", "resourceVersion")}
        new = await self.cluster.api.update(resource, {**obj, "metadata": metadata})
        await self.cluster.api.update_status(resource, {**new, "status": obj.get("status", {})})

    async def take_away(self, obj: Object) -> None:
        metadata = obj["metadata"]
        await self.cluster.api.delete(
            RESOURCES[obj["kind"]], ObjectKey(metadata.get("namespace", ""), metadata["name"])
        )

    async def woken(self) -> list[str]:
        """Look once; the pods that were changed by that."""
        before = await self._marks()
        count = await self.requeue.look()
        after = await self._marks()
        found = sorted(name for name, mark in after.items() if mark != before.get(name, ""))
        assert len(found) == count
        return found

    async def _marks(self) -> Mapping[str, str]:
        pods = (await self.cluster.api.list(PODS)).items
        return {each["metadata"]["name"]: mark(each) for each in pods}


def mark(obj: RawObject) -> str:
    conditions = obj.get("status", {}).get("conditions", [])
    return next((str(c["message"]) for c in conditions if c["type"] == DEVICES_CHANGED), "")
