"""Two replicas that hear of rejections: of the same pod, or of two pods that want the same devices.

Both replicas hear of the same pod when the scheduler's leader changes. For a pod that needs one device, at most one pod
is evicted. Meanwhile a pod of lower priority appears, and the replicas hear of it at different times. Both replicas
hear of two pods of equal priority if the scheduler asks both. At most one replica evicts, so no pod is evicted in vain.

Calls, faults of writes and news of watches come in any order.
"""

import asyncio
import os
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final

import pytest
from prometheus_client import CollectorRegistry

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.pods import Evictor, Nominator
from extender.framework.decisions.evaluate import Decider
from extender.framework.filter import filter_nodes
from extender.framework.task import Rejection
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from extender.lab.api import MemoryApi
from extender.lab.cluster import ClaimController
from extender.plugins.preemption.eviction_limits import EvictionLimits
from extender.plugins.preemption.preemptor import PATIENCE_SECONDS, PreemptionMetrics, PreemptionWrites, Preemptor
from extender.tools.offload import at_once
from tests.extender.framework.bind.interleaving import BrokenError, Dice, Step, play
from tests.extender.framework.bind.replica_gates import Gate, Late, Records, Stop, Watch
from tests.extender.framework.bind.replicas import FAULTS
from tests.extender.plugins.preemption.scenes import MANY, full, runs, waits
from tests.kit import virtualtime
from tests.kit.clusters import NOW, Object, request, solver

HISTORIES: Final = int(os.environ.get("REPLICA_HISTORIES", "200"))
SEED: Final = os.environ.get("REPLICA_SEED", "0")
PARTS: Final = 4
REJECTIONS: Final = 3
TURNS: Final = 2


@dataclass(frozen=True)
class Scenery:
    """What is there, and of which pod each replica hears.

    Attributes:
        nodes: their names, a letter each.
        devices: of each node.
        there: the objects.
        appears: the objects of a pod that does not run yet.
        asking: a letter for each replica: the pod of which it hears.
    """

    nodes: str
    devices: int
    there: Sequence[Object]
    appears: Sequence[Object]
    asking: str


X: Final = runs("x", "a/gpu-0", on="a", priority=5)
ONE_POD: Final = Scenery(
    nodes="abc",
    devices=1,
    there=(*waits("p"), *X, *runs("y", "b/gpu-0", on="b", priority=5)),
    appears=runs("new", "c/gpu-0", on="c", priority=1),
    asking="pp",
)
TWO_PODS: Final = Scenery(
    nodes="a",
    devices=2,
    there=(*waits("p"), *waits("q", request(count=2)), *X, *runs("y", "a/gpu-1", on="a", priority=5)),
    appears=(),
    asking="pq",
)


def _nothing(_pod: Pod, _claims: Sequence[ClaimObject], _why: str) -> None:
    """No pod waits for devices that are not ready here."""


class Replica:
    """An extender that hears of rejections of a pod, and takes its turns after each of them.

    Attributes:
        evicted: the names of the pods that it has evicted.
    """

    def __init__(self, name: str, pod: str, api: MemoryApi, records: Records) -> None:
        self.name = name
        self.evicted: set[str] = set()
        self._key = ObjectKey("ns", pod)
        self.state = ClusterState()
        self.watch = Watch(self.state)
        api.follow(self.watch)
        self.gate = Gate(api, records, lambda _: 0)
        self._now = 0.0
        self._solver = replace(solver(), clock=lambda: self._now)
        metrics = PreemptionMetrics(CollectorRegistry())
        evictor = Evictor(self.gate, lambda: NOW, lambda pod, _: self.evicted.add(pod.name))
        writes, limits = (
            PreemptionWrites(Nominator(self.gate, lambda: NOW), evictor, _nothing),
            EvictionLimits(MANY, lambda: 0.0),
        )
        decider = Decider(self._solver, self.state)
        self.task = Preemptor(self.state, decider, writes, lambda _: False, metrics, limits, at_once)
        self.work = asyncio.ensure_future(self._work())

    async def _work(self) -> None:
        for _ in range(REJECTIONS):
            await self.gate.stop("get a rejection")
            self._reject()
            self._now += PATIENCE_SECONDS
            for _ in range(TURNS):
                await self.gate.stop("get a turn")
                await self.task.tick()

    def _reject(self) -> None:
        snapshot = self.state.snapshot
        pod, names = snapshot.pods[self._key], sorted(snapshot.nodes)
        result = filter_nodes(pod, names, snapshot, self._solver)
        if not result.passed:
            self.task.on_rejected(Rejection(pod, names, result, snapshot))


@dataclass
class Replicas:
    """Two replicas over one API server; a world for `tests.extender.framework.bind.interleaving`.

    Attributes:
        scenery: at the start.
        faults: how many writes of a run something befalls, at most.
        appears: what does not run yet.
        released: the pods whose claims were released.
    """

    scenery: Scenery
    faults: int
    api: MemoryApi = field(init=False)
    replicas: Sequence[Replica] = field(init=False)
    appears: Sequence[RawObject] = field(init=False)
    released: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.appears = self.scenery.appears
        self.api = full(self.scenery.nodes, *self.scenery.there, devices=self.scenery.devices).api
        records = Records()
        self.api.follow(records)
        asking = zip("AB", self.scenery.asking, strict=True)
        self.replicas = [Replica(name, pod, self.api, records) for name, pod in asking]

    def steps(self) -> list[Step]:
        """What each replica can do, hear of, or have landed, and what others can do."""
        return [*self._others(), *(step for each in self.replicas for step in self._of(each))]

    def _others(self) -> Iterator[Step]:
        if self.appears:
            yield Step("a pod of lower priority appears", self._appear)
        if self.dead - self.released:
            yield Step("claims are released", self._release)

    def _of(self, replica: Replica) -> Iterator[Step]:
        for stop in replica.gate.stops:
            yield Step(f"{replica.name}: {stop.name}", partial(self._go, stop, ""))
            for fault in FAULTS if stop.is_write and self.faults else ():
                yield Step(f"{replica.name}: {stop.name}: {fault}", partial(self._go, stop, fault))
        for of in (of for of, news in replica.watch.news.items() if news and not replica.work.done()):
            yield Step(f"{replica.name}: hears of {of}", partial(replica.watch.tell, of))
        for late in replica.gate.landing:
            yield Step(f"{replica.name}: {late.name} lands late", partial(self._land, replica, late))

    def _appear(self) -> None:
        for each in self.appears:
            self.api.load(PODS if each["kind"] == "Pod" else CLAIMS, each)
        self.appears = ()

    def _release(self) -> None:
        self.released = self.dead
        _at_once(ClaimController(self.api).reconcile())

    def _go(self, stop: Stop, fault: str) -> None:
        self.faults -= bool(fault)
        stop.future.set_result(fault)

    def _land(self, replica: Replica, late: Late) -> None:
        replica.gate.landing.remove(late)
        _at_once(late.call())

    def place(self) -> None:
        """Histories are random: no place is remembered."""

    @property
    def dead(self) -> set[str]:
        """The pods that were there and are not."""
        names = {"x", "y"} | (set() if self.appears or not self.scenery.appears else {"new"})
        return {name for name in names if not self.api.has(PODS, ObjectKey("ns", name))}

    async def check(self) -> None:
        for replica in self.replicas:
            if replica.work.done():
                replica.work.result()
        if self.scenery.asking == "pp":
            assert len(self.dead) <= 1, f"{self.dead} are dead"
        else:
            assert not all(replica.evicted for replica in self.replicas), "both have evicted"

    async def close(self) -> None:
        """End what still runs."""
        for replica in self.replicas:
            replica.work.cancel()
        await asyncio.gather(*(replica.work for replica in self.replicas), return_exceptions=True)


def _at_once(call: Awaitable[object]) -> None:
    """The API server in memory never waits, so that a call is done at the first step."""
    with suppress(StopIteration, ApiError):
        call.__await__().__next__()


async def histories(scenery: Scenery, part: int) -> int:
    """Play every fourth history; returns how many pods have died."""
    dead = 0
    for number in range(part, HISTORIES, PARTS):
        random = Random(f"{SEED}-{number}")  # noqa: S311 - chance needs no secrets
        world = Replicas(scenery, faults=random.randint(0, 3))
        try:
            await play(world, Dice(random))
        except BrokenError as error:
            raise AssertionError(f"seed {SEED}-{number}") from error
        finally:
            await world.close()
        dead += len(world.dead)
    return dead


@pytest.mark.parametrize("part", range(PARTS))
def test_two_replicas_evict_one_pod_for_one_device(part: int) -> None:
    assert virtualtime.run(histories(ONE_POD, part)) > HISTORIES / PARTS / 2


@pytest.mark.parametrize("part", range(PARTS))
def test_of_two_replicas_one_evicts_for_two_pods_that_want_the_same_devices(part: int) -> None:
    assert virtualtime.run(histories(TWO_PODS, part)) > HISTORIES / PARTS / 2
