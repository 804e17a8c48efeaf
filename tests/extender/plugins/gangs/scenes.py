"""Clusters in which pods of gangs wait for devices, the task that plans them, and a scheduler that asks about them."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import replace
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import GROUP, GROUP_SIZE, GROUP_TOPOLOGY, Pod
from extender.cluster.writes.pods import Nominator
from extender.cluster.writes.writer import Writer
from extender.framework.decisions.evaluate import Decider
from extender.framework.filter import FilterResult, filter_nodes
from extender.framework.plugin import Plugins
from extender.framework.task import Rejection
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from extender.plugins.gangs.task import GangMetrics, Gangs
from extender.plugins.table import PLUGINS
from extender.tools.offload import Offload, at_once
from tests.extender.framework.bind.replica_gates import Watch
from tests.kit.binders import bind_error, binder_over
from tests.kit.clusters import GPU, NOW, Cluster, Object, claim, local_slice, node, pod, solver
from tests.kit.servers.memory import Transport


def member(
    name: str, gang: str, size: int, *requests: Object, topology: str = "", on: str = "", **more: Any
) -> list[Object]:
    """A pod of a gang, with a claim of its own for one device by default."""
    raw = pod(name, f"{name}-c", on=on, **more)
    raw["metadata"]["annotations"] = {GROUP: gang, GROUP_SIZE: str(size)}
    if topology:
        raw["metadata"]["annotations"][GROUP_TOPOLOGY] = topology
    return [raw, claim(f"{name}-c", *requests)]


def members(gang: str, size: int, *requests: Object, **more: Any) -> list[Object]:
    """All pods of a gang: x0, x1, ... of gang x."""
    return [each for number in range(size) for each in member(f"{gang}{number}", gang, size, *requests, **more)]


def nodes(names: Iterable[str], devices: int = 1) -> list[Object]:
    """The device class, and nodes with some devices each."""
    return [GPU, *(each for name in names for each in (node(name), local_slice(name, devices)))]


class Scene:
    """A cluster, and the task.

    Attributes:
        transport: of the task to the API server.
        decider: of the task.
        nominator: of the task.
        now: seconds.
        binding: uids of pods whose bind runs.
        off_loop: where the task plans.
    """

    def __init__(self, *objects: Object, plugins: Plugins = PLUGINS) -> None:
        self.cluster = Cluster.of(*objects)
        self.now = 0.0
        self.binding: set[str] = set()
        self.solver = replace(solver(), clock=lambda: self.now, plugins=plugins)
        self.off_loop: Offload = at_once
        self.registry = CollectorRegistry()
        self.metrics = GangMetrics(self.registry)
        self.start()

    def start(self) -> None:
        """A process starts: it knows nothing but the cluster."""
        self.transport = Transport(self.cluster.api)
        self.nominator = Nominator(self.transport, lambda: NOW)
        state = self.cluster.state
        self.decider = Decider(self.solver, state)
        self.task = Gangs(
            state,
            self.decider,
            self.nominator,
            Writer(self.transport, state, lambda: NOW),
            self.binding.__contains__,
            self.metrics,
            self.off_loop,
        )

    def replica(self) -> "Replica":
        """Another process on the same API server. The clock is that of this scene."""
        return Replica(self)

    def known(self, name: str) -> Pod:
        return self.cluster.state.snapshot.pods[ObjectKey("ns", name)]

    def filter(self, name: str, *, names: Collection[str] = ()) -> FilterResult:
        """Filter is asked about a pod and some nodes, by default all; the task hears of it."""
        snapshot = self.cluster.state.snapshot
        asked, among = snapshot.pods[ObjectKey("ns", name)], sorted(names or snapshot.nodes)
        result = filter_nodes(asked, among, snapshot, self.solver)
        if result.passed:
            self.task.on_passed(asked)
        else:
            self.task.on_rejected(Rejection(asked, among, result, snapshot))
        return result

    def reason(self, name: str) -> str:
        """Why the pod fits nowhere, for any node; empty if it fits somewhere."""
        result = self.filter(name)
        return "" if result.passed else next(iter(result.unresolvable.in_words().values()))

    async def turns(self, number: int = 3, seconds: float = 2.0) -> None:
        """The task has some turns, this time apart; what it begins between the turns ends before the next."""
        for _ in range(number):
            self.now += seconds
            await self.task.tick()
            await asyncio.gather(*self.task.unfinished)

    async def bind(self, name: str, on: str) -> str:
        """The error; empty for a success."""
        return await bind_error(binder_over(self.cluster.api, self.cluster.state, by=self.solver), name, on)

    def pending(self) -> Sequence[str]:
        return sorted(pod.name for pod in self.cluster.state.snapshot.pods.values() if pod.is_pending)

    async def schedule(self, order: Iterable[str] | None = None) -> None:
        """A scheduler tries some pods, by default all that are pending; each that fits is bound."""
        for name in list(self.pending() if order is None else order):
            if self.known(name).is_pending:
                passed = self.filter(name).passed
                if passed:
                    await self.bind(name, passed[0])

    async def run(self, rounds: int = 4, seed: int | None = None) -> None:
        """A scheduler tries all pods in turns with the task, in a random order if there is a seed."""
        chance = Random(seed)  # noqa: S311 - the order needs no secrets
        for _ in range(rounds):
            order = list(self.pending())
            if seed is not None:
                chance.shuffle(order)
            await self.schedule(order)
            await self.turns()

    async def end(self, *names: str) -> None:
        """Pods are deleted, and controllers release their devices."""
        for name in names:
            await self.cluster.api.delete(PODS, ObjectKey("ns", name))
        await self.cluster.settle()

    def bound(self, gang: str = "") -> dict[str, str]:
        """The pods that have a node, all or those of a gang."""
        pods = self.cluster.state.snapshot.pods.values()
        of_gang = [each for each in pods if not gang or (each.gang is not None and each.gang.name == gang)]
        return {each.name: each.node_name for each in of_gang if each.node_name}

    def counted(self, name: str) -> float:
        return self.registry.get_sample_value(f"dra_extender_{name}") or 0


class Replica:
    """A process with a task and a state of its own, whose scheduler asks nothing.

    Attributes:
        transport: of the task to the API server.
    """

    def __init__(self, scene: Scene) -> None:
        other = copy(scene)
        other.cluster = Cluster(ClusterState(), scene.cluster.api)
        self._watch = Watch(other.cluster.state)
        scene.cluster.api.follow(self._watch)
        other.start()
        self.task, self.transport = other.task, other.transport

    def hear(self) -> None:
        """The watches tell all that has happened; until then, the process knows nothing of it."""
        for of, news in self._watch.news.items():
            self._watch.tell(of, len(news))
