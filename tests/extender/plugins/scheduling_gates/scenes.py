"""Clusters with gated pods, the task that lifts gates, and a scheduler that tries the lifted pods."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import GATE, Pod
from extender.cluster.writes.lease import SharedLease
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.verdict import UNKNOWN_NODE, Reasons
from extender.framework.filter import FilterResult, filter_nodes
from extender.framework.plugin import Refused
from extender.framework.task import Rejection
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, NODES, PODS, SLICES
from extender.plugins.scheduling_gates.gate_queue import GateQueue
from extender.plugins.scheduling_gates.pod_lines import PodLines
from extender.plugins.scheduling_gates.shares import Bounds
from extender.plugins.scheduling_gates.task import SCHEDULING_GATES, GateLifter, GateMetrics
from tests.kit.clusters import GPU, NOW, Cluster, Object, claim, local_slice, node, pod, request, solver
from tests.kit.servers.memory import Transport

NOWHERE = request(selectors=["false"])
"""No device matches it."""

BOUNDS = Bounds(lifted=16, hopeless=4)


def of(namespace: str, *objects: Object) -> list[Object]:
    """The objects in another namespace."""
    return [
        {
            **each,
            "metadata": {**each["metadata"], "namespace": namespace, "uid": f"{namespace}-{each['metadata']['uid']}"},
        }
        for each in objects
    ]


def gated(raw: Object, *others: str) -> Object:
    """A pod with the gate, and with gates of others."""
    return {**raw, "spec": {**raw["spec"], "schedulingGates": [{"name": name} for name in (GATE, *others)]}}


def waiting(name: str, *requests: Object, others: Sequence[str] = (), **fields: Any) -> list[Object]:
    """A gated pod with a claim of its own."""
    return [gated(pod(name, f"{name}-c", **fields), *others), claim(f"{name}-c", *requests)]


def crowd(name: str, number: int, *requests: Object, **fields: Any) -> list[Object]:
    """Gated pods, the first the oldest."""
    created = (f"2026-01-01T00:{each // 60:02}:{each % 60:02}Z" for each in range(number))
    return [
        each for place, at in enumerate(created) for each in waiting(f"{name}{place}", *requests, created=at, **fields)
    ]


def site(names: Iterable[str] = "ab", devices: int = 2) -> list[Object]:
    return [GPU, *(each for name in names for each in (node(name), local_slice(name, devices)))]


class Replica:
    """A process that may lift gates.

    Attributes:
        transport: to the API server.
        told: why pods are held, by name; empty: a pod is held no more.
    """

    def __init__(self, scene: "Scene", name: str, bounds: Bounds) -> None:
        state = scene.cluster.state
        self.scene, self.state = scene, state
        self.solver = replace(solver(), clock=scene.clock)
        self.transport = Transport(scene.cluster.api)
        self.decider = Decider(self.solver, state)
        self.told: dict[str, str] = {}
        self.registry = CollectorRegistry()
        lease = SharedLease(self.transport, SCHEDULING_GATES, name, lambda: NOW, self.solver.clock)
        lines = PodLines(state, ())
        self.lease = lease
        self.queue = GateQueue(self.decider, bounds, self._tell)
        self.task = GateLifter(state, self.transport, lease, lines, self.queue, GateMetrics(self.registry))

    def _tell(self, pod: Pod, refused: Refused | None) -> None:
        self.told[pod.name] = "" if refused is None else refused.refusal.reason.in_words()

    async def turns(self, number: int = 2, seconds: float = 1.0) -> list[str]:
        """The task has some turns; returns the pods whose gate was lifted."""
        before = self.scene.at_gate()
        for _ in range(number):
            self.scene.now += seconds
            await self.task.tick()
            await asyncio.gather(*self.task.unfinished)
        return sorted(before - self.scene.at_gate())

    def learn(self, *names: str, namespace: str = "ns") -> None:
        """Filter was asked about pods, so it remembers where they fit."""
        snapshot = self.state.snapshot
        self.decider.follow(snapshot)
        for name in names:
            asked = snapshot.pods[ObjectKey(namespace, name)]
            filter_nodes(asked, tuple(snapshot.nodes), snapshot, self.solver, decider=self.decider)

    def fail(self, *names: str, namespace: str = "ns") -> int:
        """Filter has left rejected pods no node again; returns how many."""
        snapshot = self.state.snapshot
        for name in names:
            asked = snapshot.pods[ObjectKey(namespace, name)]
            result = FilterResult([], unresolvable=Reasons.alike(["a"], UNKNOWN_NODE))
            self.task.on_rejected(Rejection(asked, ["a"], result, snapshot))
        return len(names)


class Scene:
    """A cluster with a replica, and the time.

    Attributes:
        looks: seconds that pass with each look at the clock.
    """

    def __init__(self, *objects: Object, bounds: Bounds = BOUNDS) -> None:
        self.cluster = Cluster.of(*objects)
        self.now = self.looks = 0.0
        self.bounds = bounds
        self.first = Replica(self, "first", bounds)

    def clock(self) -> float:
        """The time; it passes a little with each look."""
        self.now += self.looks
        return self.now

    def replica(self, name: str = "second") -> Replica:
        """Another process beside the first one."""
        return Replica(self, name, self.bounds)

    @property
    def state(self) -> ClusterState:
        return self.cluster.state

    async def turns(self, number: int = 2, seconds: float = 1.0) -> list[str]:
        return await self.first.turns(number, seconds)

    def at_gate(self) -> set[str]:
        return {each.name for each in self.state.snapshot.pods.values() if GATE in each.gates}

    def lifted(self, namespace: str = "ns") -> list[str]:
        """The pods of a namespace that have no gate and no node."""
        pods = (each for key, each in self.state.snapshot.pods.items() if key.namespace == namespace)
        return sorted(each.name for each in pods if not each.gates and each.is_pending)

    async def reject(self, *names: str, namespace: str = "ns") -> None:
        """The scheduler finds no node for pods."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
        for name in names:
            await self.cluster.api.patch_status(
                PODS, ObjectKey(namespace, name), {"status": {"conditions": [condition]}}
            )

    async def bind(self, *names: str, on: str = "a", namespace: str = "ns") -> None:
        """The scheduler binds pods."""
        for name in names:
            await self.cluster.api.bind_pod(ObjectKey(namespace, name), on, uid="")

    async def allocate(self, *names: str, on: str = "a", namespace: str = "ns") -> None:
        """The claims of pods get the first device of a node."""
        for name in names:
            made = claim(f"{name}-c", allocated=[f"{on}/gpu-0"], at=on, users=[name])
            await self.cluster.api.patch_status(CLAIMS, ObjectKey(namespace, f"{name}-c"), {"status": made["status"]})

    async def join(self, name: str) -> None:
        """A node comes, with devices."""
        await self.cluster.api.create(NODES, node(name))
        await self.cluster.api.create(SLICES, local_slice(name, 2))

    async def delete(self, *names: str, namespace: str = "ns") -> None:
        for name in names:
            await self.cluster.api.delete(PODS, ObjectKey(namespace, name))
