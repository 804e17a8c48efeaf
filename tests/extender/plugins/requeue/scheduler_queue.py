"""A model of kube-scheduler's queue before the real service, in virtual time.

Pods wait in activeQ, in backoffQ (1 s after the first failure, twice as long after each further one, 10 s at most), or
among the unschedulable pods until an event may help them. SchedulerPopFromBackoffQ is off: a pod leaves backoffQ only
when its time is over. Source: pkg/scheduler/backend/queue of Kubernetes 1.37.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import cycle
from typing import Final

from allocator import Features
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.config.settings import Settings
from extender.faces.assembly import Surroundings, make_extender
from extender.framework.filter import filter_nodes
from extender.framework.service import Service
from extender.framework.wire import BindArgs, FilterArgs
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import PODS, Resource
from extender.plugins.negotiation.protocol import Controller
from extender.tools.faults import RefusedError
from extender.tools.offload import at_once
from tests.extender.plugins.requeue.scenes import mark
from tests.kit.clusters import NOW, Cluster, Object, parsed, solver
from tests.kit.virtualtime import elapse

FIRST_BACKOFF: Final = 1.0
NO_GATES: Final = Features()
LONGEST_BACKOFF: Final = 10.0
TURN: Final = 0.2


@dataclass
class _Waiting:
    """A pending pod in the queue.

    Attributes:
        attempts: how often it has failed.
        failed: when it failed last, in seconds.
        moved: an event has moved it; it is in backoffQ or activeQ.
    """

    attempts: int = 0
    failed: float = 0.0
    moved: bool = True

    @property
    def ready(self) -> float:
        """When it may be tried."""
        if not self.attempts:
            return self.failed
        return self.failed + min(FIRST_BACKOFF * 2.0 ** (self.attempts - 1), LONGEST_BACKOFF)


@dataclass
class SchedulerQueue:
    """A cluster, the service, and a scheduler that asks it about one pod after the other.

    Attributes:
        cluster: what the service follows.
        hears: whether the end of a pod moves all pods, as the usual hints do. Otherwise only the update of a pod moves
            it, and nothing else but `move`.
        rejected_by_scheduler: whether the scheduler's own checks reject a node for a pod.
        tried: called with each pod that was tried, and whether it was bound.
        was_woken: called with the name of each pod that is woken.
        features: of the allocator.
        controllers: of negotiated claims, by name.
        replicas: of the service; the scheduler asks one after the other.
        services: the replicas that run.
        service: the first of them.
        waiting: by uid.
        tries: how often each pod was tried, by name.
    """

    cluster: Cluster
    hears: bool = True
    rejected_by_scheduler: Callable[[Pod, str], bool] = lambda _pod, _node: False
    tried: Callable[[Pod, bool], None] = lambda _pod, _bound: None
    was_woken: Callable[[str], None] = lambda _name: None
    features: Features = NO_GATES
    controllers: Mapping[str, Controller] = field(default_factory=dict)
    replicas: int = 1
    tries: Counter[str] = field(default_factory=Counter, init=False)
    waiting: dict[str, _Waiting] = field(default_factory=dict, init=False)
    _met: set[str] = field(default_factory=set, init=False)
    _are_claims_left: bool = field(default=False, init=False)
    _marks: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start()
        self.cluster.api.follow(self)

    def _start(self) -> None:
        """The replicas start; each has a state of its own, the first that of the cluster."""
        others = [ClusterState(counts_resources=self.features.node_resources) for _ in range(1, self.replicas)]
        for each in others:
            self.cluster.api.follow(each)
        self.services = [self._service(state) for state in (self.cluster.state, *others)]
        self.service = self.services[0]
        self._turns = cycle(self.services)

    def _service(self, state: ClusterState) -> Service:
        loop = self._loop
        own = replace(solver(features=self.features), clock=loop.time)
        settings = Settings.model_validate(
            {"controllers": [{"name": name, "url": "http://localhost:1"} for name in self.controllers]}
        )
        around = Surroundings(None, self.controllers, now=lambda: NOW + timedelta(seconds=loop.time()))
        return make_extender(self.cluster.api, state, own, settings, around=around, off_loop=at_once).service

    def restart(self) -> None:
        """The processes die, and new ones know only what the API server has."""
        self.cluster = Cluster(ClusterState(counts_resources=self.features.node_resources), self.cluster.api)
        self.cluster.api.follow(self.cluster.state)
        self._start()

    # --- what the scheduler's watch tells ---------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """An event moves pods that it may help."""
        if event.resource != PODS:
            return
        pod = parsed(event.object)
        if event.type is EventType.DELETED or pod.node_name or pod.deleting:
            self.waiting.pop(pod.uid, None)
        elif pod.uid not in self.waiting:
            self._met.add(pod.uid)
            self.waiting[pod.uid] = _Waiting(failed=self._loop.time())
        else:
            self.waiting[pod.uid].moved = True
            told = mark(event.object)
            if told != self._marks.get(pod.uid, ""):
                self._marks[pod.uid] = told
                self.was_woken(pod.name)
        self._are_claims_left |= event.type is EventType.DELETED
        if self.hears and event.type is EventType.DELETED and pod.node_name:
            for each in self.waiting.values():
                each.moved = True

    def replace(self, _resource: Resource, _objects: object, _at: int) -> bool:
        """Nothing is listed again."""
        return True

    # --- time -------------------------------------------------------------------------------------------------

    async def run(self, seconds: float) -> None:
        """The scheduler and the background tasks go on for a while."""
        until = self._loop.time() + seconds
        while self._loop.time() < until:
            await self.schedule()
            for each in self.services:
                await each.background.tick()
            if self._are_claims_left:
                self._are_claims_left = False
                await self.cluster.settle()
            await elapse(TURN)

    async def schedule(self) -> None:
        """Try the pods of activeQ, the most important first."""
        while due := [uid for uid, each in self.waiting.items() if each.moved and each.ready <= self._loop.time()]:
            pods = [pod for uid in due if (pod := self.cluster.state.snapshot.pod(uid)) is not None]
            if not pods:
                return
            await self._try(min(pods, key=lambda pod: (-pod.priority, self.waiting[pod.uid].ready, pod.uid)))

    async def _try(self, known: Pod) -> None:
        raw = await self.cluster.api.get(PODS, known.key)
        own = self.waiting[known.uid]
        own.moved = False
        self.tries[known.name] += 1
        nodes = sorted(self.cluster.state.snapshot.nodes)
        names = tuple(name for name in nodes if not self.rejected_by_scheduler(known, name))
        result = await next(self._turns).filter(FilterArgs(parsed(raw), names or ("elsewhere",)))
        is_bound = bool(result.passed) and await self._bind(known, result.passed[0])
        if not is_bound and known.uid in self.waiting:
            own.attempts, own.failed = own.attempts + 1, self._loop.time()
        self.tried(known, is_bound)

    async def _bind(self, pod: Pod, node: str) -> bool:
        try:
            await next(self._turns).bind(BindArgs(pod.name, pod.namespace, pod.uid, node))
        except RefusedError:
            self.waiting[pod.uid].moved = True
            return False
        return True

    # --- the cluster ------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds."""
        return self._loop.time()

    def add(self, *objects: Object) -> None:
        """Objects are made."""
        for each in objects:
            self.cluster.load(each)

    async def end(self, name: str) -> None:
        """A pod ends, and its claims are released."""
        await self.cluster.api.delete(PODS, ObjectKey("ns", name))
        await self.cluster.settle()

    def move(self) -> None:
        """Something happens that may help all pods, as far as the scheduler knows."""
        for each in self.waiting.values():
            each.moved = True

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Go on until something is so, for a minute at most."""
        for _ in range(round(60 / TURN)):
            if is_so():
                return
            await self.run(TURN)
        raise AssertionError("a minute has passed")

    async def relist(self) -> None:
        """The watch of pods begins anew, with a list."""
        listing = await self.cluster.api.list(PODS)
        assert self.cluster.state.replace(PODS, listing.items, listing.revision)

    def pods(self) -> set[str]:
        """The names of all pods."""
        return {pod.name for pod in self.cluster.state.snapshot.pods.values()}

    def bound(self) -> set[str]:
        """The names of the pods that were made pending and have a node."""
        found = self.cluster.state.snapshot.pods.values()
        return {pod.name for pod in found if pod.node_name and pod.uid in self._met}

    def could_run(self) -> list[str]:
        """Pending pods that would fit as things stand."""
        snapshot, own = self.cluster.state.snapshot, replace(solver(), clock=self._loop.time)
        pending = [pod for pod in snapshot.pods.values() if pod.is_pending]
        return [pod.name for pod in pending if filter_nodes(pod, sorted(snapshot.nodes), snapshot, own).passed]
