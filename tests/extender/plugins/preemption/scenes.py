"""Clusters in which pods of lower priority hold the devices that others wait for, and the task that evicts them."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.cluster.writes.pods import Evictor, Nominator
from extender.framework.decisions.evaluate import Decider
from extender.framework.filter import FilterResult, filter_nodes
from extender.framework.plugin import Plugins
from extender.framework.task import Rejection
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import PODS
from extender.plugins.preemption.eviction_limits import EvictionCaps, EvictionLimits
from extender.plugins.preemption.preemptor import PATIENCE_SECONDS, PreemptionMetrics, PreemptionWrites, Preemptor
from extender.plugins.table import PLUGINS
from extender.tools.offload import at_once
from tests.kit.binders import bind_error, binder_over
from tests.kit.clusters import GPU, NOW, Cluster, Object, claim, local_slice, node, pod, solver
from tests.kit.servers.memory import Transport

T = TypeVar("T")

MANY = EvictionCaps(1000, 1000, 1000)
MARK, DELETE = "patch_status pods", "delete pods"


def runs(name: str, *devices: str, on: str, priority: int = 10, **more: Any) -> list[Object]:
    """A pod that runs on a node with devices of its own claim."""
    own = claim(f"{name}-c", allocated=devices, at=on, users=[name])
    own["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    return [pod(name, f"{name}-c", on=on, priority=priority, **more), own]


def slow(running: list[Object]) -> list[Object]:
    """The pod takes long to terminate."""
    running[0]["metadata"]["finalizers"] = ["example.com/slow"]
    return running


def waits(name: str, *requests: Object, priority: int = 100, **more: Any) -> list[Object]:
    """A pod that waits for devices of its own claim, by default for one."""
    return [pod(name, f"{name}-c", priority=priority, **more), claim(f"{name}-c", *requests)]


def full(nodes: Iterable[str], *objects: Object, devices: int = 1) -> Cluster:
    """Nodes with some devices each, and what runs and waits there."""
    there = [GPU, *(each for name in nodes for each in (node(name), local_slice(name, devices)))]
    return Cluster.of(*there, *objects)


@dataclass
class Scene:
    """A cluster, and the task.

    Attributes:
        transport: of the task to the API server.
        now: seconds.
        told: pods, and what they were told.
        preemptors: of each pod that was evicted, by its name, the pod that it was evicted for.
        binding: uids of pods whose bind runs.
        searches: searches for victims.
        search_seconds: how long each of them takes.
        meanwhile: what happens after a search, before the task goes on.
        caps: of evictions.
        plugins: the table.
    """

    cluster: Cluster
    transport: Transport = field(init=False)
    now: float = 0.0
    told: list[tuple[str, str]] = field(default_factory=list)
    preemptors: dict[str, str] = field(default_factory=dict)
    binding: set[str] = field(default_factory=set)
    searches: int = 0
    search_seconds: float = 0.0
    meanwhile: Callable[[], Awaitable[None]] | None = None
    caps: EvictionCaps = MANY
    plugins: Plugins = PLUGINS

    def __post_init__(self) -> None:
        self.solver = replace(solver(), clock=lambda: self.now, plugins=self.plugins)
        self.registry = CollectorRegistry()
        self.metrics = PreemptionMetrics(self.registry)
        self.limits = EvictionLimits(self.caps, self.solver.clock, self.metrics.refused)
        self.start(Transport(self.cluster.api))

    @classmethod
    def of(cls, *objects: Object, nodes: str = "a", devices: int = 1) -> "Scene":
        return cls(full(nodes, *objects, devices=devices))

    def start(self, transport: Transport) -> None:
        """A process starts."""
        self.transport = transport
        self.binder = binder_over(transport, self.cluster.state, by=self.solver)
        self.task = Preemptor(
            self.cluster.state,
            Decider(self.solver, self.cluster.state),
            PreemptionWrites(
                Nominator(transport, lambda: NOW),
                Evictor(transport, lambda: NOW, self._tell),
                self.binder.give_back,
            ),
            self.binding.__contains__,
            self.metrics,
            self.limits,
            self._search,
        )

    async def _search(self, work: Callable[[], T]) -> T:
        self.searches += 1
        self.now += self.search_seconds
        found = await at_once(work)
        if self.meanwhile is not None:
            await self.meanwhile()
        return found

    def _tell(self, told: Pod, note: Note) -> None:
        self.told.append((told.name, note.text))
        if note.reason == "Preempted":
            pods = self.cluster.state.snapshot.pods.values()
            self.preemptors[told.name] = next(each.name for each in pods if told.uid in each.kept.victims)

    def filter(self, name: str, *, names: Iterable[str] | None = None) -> FilterResult:
        """Filter is asked about a pod and some nodes, by default all; the task hears of it."""
        snapshot = self.cluster.state.snapshot
        asked, nodes = snapshot.pods[ObjectKey("ns", name)], sorted(names or snapshot.nodes)
        result = filter_nodes(asked, nodes, snapshot, self.solver)
        if result.passed:
            self.task.on_passed(asked)
        else:
            self.task.on_rejected(Rejection(asked, nodes, result, snapshot))
        return result

    async def turns(self, number: int = 3) -> None:
        """The task has some turns, the first one when a scheduler has given up the pods."""
        self.now += PATIENCE_SECONDS
        for _ in range(number):
            await self.task.tick()

    async def terminate(self, names: Collection[str] | None = None) -> None:
        """Pods that are terminating come to their end, all or some, and controllers release their devices."""
        for raw in (await self.cluster.api.list(PODS)).items:
            namespace, name = raw["metadata"]["namespace"], raw["metadata"]["name"]
            if "deletionTimestamp" in raw["metadata"] and (names is None or name in names):
                await self.cluster.api.patch(PODS, ObjectKey(namespace, name), {"metadata": {"finalizers": None}})
        await self.cluster.settle()

    async def end(self, names: Collection[str]) -> None:
        """Pods end by themselves, and controllers release their devices. Pods that are terminating still do."""
        for each in list(self.cluster.state.snapshot.pods.values()):
            if each.name in names and not each.deleting:
                await self.cluster.api.patch(PODS, each.key, {"metadata": {"finalizers": None}})
                await self.cluster.api.delete(PODS, each.key)
        await self.cluster.settle()

    async def pods(self) -> list[str]:
        return sorted(each["metadata"]["name"] for each in (await self.cluster.api.list(PODS)).items)

    async def pod(self, name: str) -> RawObject:
        return await self.cluster.api.get(PODS, ObjectKey("ns", name))

    def known(self, name: str) -> Pod:
        return self.cluster.state.snapshot.pods[ObjectKey("ns", name)]

    def is_pending(self, name: str) -> bool:
        """The pod is there, and has no node."""
        found = self.cluster.state.snapshot.pods.get(ObjectKey("ns", name))
        return found is not None and found.is_pending

    async def bind(self, name: str, on: str) -> str:
        """The error; empty for a success."""
        return await bind_error(binder_over(self.cluster.api, self.cluster.state, by=self.solver), name, on)

    def counted(self, name: str) -> float:
        return self.registry.get_sample_value(f"dra_extender_{name}") or 0
