"""A kube-scheduler before the replicas: its queue, its one cycle at a time, and its binds beside them.

The queue is as in kube-scheduler 1.37 (pkg/scheduler/backend/queue): activeQ in the order of priority and age, backoffQ
(1 s after the first failure, twice as long after each further one, 10 s at most), and the unschedulable pods, which an
event moves, or a flush after five minutes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import orjson

from extender.kube.api import ApiError, Event, EventType, ObjectKey, RawObject, key_of
from extender.kube.resources import CLAIMS, CLASSES, NODES, PODS, Resource
from extender.lab.api import MemoryApi
from extender.tools.faults import RefusedError
from tests.kit import virtualtime
from tests.simulation.chance import Chance
from tests.simulation.replica import AwayError, Replica

_T = TypeVar("_T")

_FIRST_BACKOFF: Final = 1.0
_LONGEST_BACKOFF: Final = 10.0
FLUSH_SECONDS: Final = 300.0
"""After which an unschedulable pod is tried again, whatever happens."""

_TIMEOUT: Final = 10.0
"""Of a call to the extender."""

_LONGEST_PAUSE: Final = 10.0
"""Between two looks at the queue, if nothing moves a pod and no backoff ends."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

_MOVING: Final = (CLAIMS, CLASSES)
"""Kinds whose events move pods that an extender has rejected, if the scheduler listens to them; slices do not."""


@dataclass(slots=True)
class _Pending:
    """A pod in the queue.

    Attributes:
        pod: as the scheduler knows it.
        attempts: how often it has failed.
        failed: when it failed last.
        moved: it is in activeQ or backoffQ.
        in_cycle: it is tried or bound now.
        moved_meanwhile: an event has come since its cycle began.
    """

    pod: RawObject
    attempts: int = 0
    failed: float = 0.0
    moved: bool = True
    in_cycle: bool = False
    moved_meanwhile: bool = False

    @property
    def ready(self) -> float:
        """When it may be tried."""
        if not self.attempts:
            return self.failed
        return self.failed + min(_FIRST_BACKOFF * 2.0 ** (self.attempts - 1), _LONGEST_BACKOFF)

    @property
    def order(self) -> tuple[Any, ...]:
        """Its place in activeQ."""
        return -self.pod["spec"].get("priority", 0), self.ready, self.pod["metadata"]["uid"]

    def move(self) -> None:
        """Something has happened that may help it."""
        self.moved = True
        self.moved_meanwhile = True


@dataclass
class KubeScheduler:
    """Schedules the pods of an API server.

    Attributes:
        api: the API server; its own requests take no time, but what it hears comes late.
        replicas: of the extender; the ready ones are asked in turn.
        chance: draws delays, and which replica is asked.
        name: of the scheduler; only its pods count.
        hears: whether events of claims and classes move pods. A pod's own update, a node and the end of a bound pod
            always do.
        flushed: the keys of the pods whose wait has ended by the flush alone.
    """

    api: MemoryApi
    replicas: Sequence[Replica]
    chance: Chance
    name: str
    hears: bool = True
    flushed: list[ObjectKey] = field(default_factory=list)
    _queue: dict[str, _Pending] = field(default_factory=dict, init=False)
    _nodes: dict[str, RawObject] = field(default_factory=dict, init=False)
    _bound: dict[str, RawObject] = field(default_factory=dict, init=False)
    _binds: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _heard: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Event()
        """Something may have moved a pod."""
        self.api.follow(self)

    # --- what the scheduler's watch tells -----------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """An event has happened; the scheduler hears of it a moment later."""
        self._heard = max(self._heard + 1e-6, self._loop.time() + self.chance.between("scheduler hears", 0.001, 0.05))
        self._loop.call_at(self._heard, self._hear, event)

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """What there is at the start."""
        del at
        for each in objects:
            self._hear(Event(EventType.ADDED, resource, each))
        return True

    def _hear(self, event: Event) -> None:
        self._moved.set()
        is_there, obj = event.type is not EventType.DELETED, event.object
        if event.resource == NODES:
            if is_there:
                self._nodes[obj["metadata"]["name"]] = obj
            else:
                self._nodes.pop(obj["metadata"]["name"], None)
            self._move_all()
        if event.resource == PODS:
            self._hear_of_pod(obj, is_there=is_there)
        elif event.resource in _MOVING and self.hears:
            self._move_all()

    def _hear_of_pod(self, pod: RawObject, *, is_there: bool) -> None:
        uid = pod["metadata"]["uid"]
        is_bound = bool(pod["spec"].get("nodeName"))
        if is_bound and is_there and pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
            self._bound[uid] = pod
        elif self._bound.pop(uid, None) is not None:
            self._move_all()
        if not is_there or is_bound or "deletionTimestamp" in pod["metadata"]:
            self._queue.pop(uid, None)
            return
        if pod["spec"].get("schedulerName") != self.name or pod["spec"].get("schedulingGates") or not _has_claims(pod):
            return
        known = self._queue.get(uid)
        if known is None:
            self._queue[uid] = _Pending(pod, failed=self._loop.time())
            return
        known.move()  # whatever has changed, also in its status
        known.pod = pod

    def _move_all(self) -> None:
        for each in self._queue.values():
            each.move()

    def waiting(self) -> list[RawObject]:
        """The pods in the queue."""
        return [each.pod for each in self._queue.values()]

    def nodes_for(self, pod: RawObject) -> list[str]:
        """The nodes that its own filters pass."""
        return sorted(name for name, node in self._nodes.items() if _takes(node, pod))

    # --- its own work -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Schedule until cancelled."""
        while True:
            if (pending := self._next()) is None:
                await self._until_something_may_be_due()
                continue
            pending.in_cycle, pending.moved, pending.moved_meanwhile = True, False, False
            node = ""
            try:
                node = await self._cycle(pending)
            except (RefusedError, TimeoutError, AwayError):
                pending.moved = True  # a failed call is an error: the pod goes to backoffQ
            if node:
                bind = asyncio.create_task(self._bind(pending, node))
                self._binds.add(bind)
                bind.add_done_callback(self._binds.discard)
            else:
                self._failed(pending)
                await self._say(pending.pod)

    async def _say(self, pod: RawObject) -> None:
        """Write the condition of a pod that fits nowhere, once."""
        conditions = pod.get("status", {}).get("conditions") or []
        if any(each["type"] == "PodScheduled" for each in conditions):
            return
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0 nodes"}
        metadata = {"uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]}
        patch = {"metadata": metadata, "status": {"conditions": [*conditions, condition]}}
        with suppress(ApiError):
            await self.api.patch_status(PODS, key_of(pod), patch)

    async def _until_something_may_be_due(self) -> None:
        self._moved.clear()
        ready = [each.ready for each in self._queue.values() if each.moved and not each.in_cycle]
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min([self._loop.time() + _LONGEST_PAUSE, *ready])):
                await self._moved.wait()

    def _next(self) -> _Pending | None:
        now = self._loop.time()
        for each in self._queue.values():
            if not each.moved and not each.in_cycle and now - each.failed > FLUSH_SECONDS:
                self.flushed.append(key_of(each.pod))
                each.moved = True
        due = [each for each in self._queue.values() if each.moved and not each.in_cycle and each.ready <= now]
        return min(due, key=lambda each: each.order, default=None)

    def _failed(self, pending: _Pending) -> None:
        pending.in_cycle = False
        pending.attempts, pending.failed = pending.attempts + 1, self._loop.time()
        pending.moved |= pending.moved_meanwhile
        self._moved.set()

    async def _cycle(self, pending: _Pending) -> str:
        """The node for a pod; empty if there is none now."""
        pod, names = pending.pod, self.nodes_for(pending.pod)
        nominated = pod.get("status", {}).get("nominatedNodeName")
        unresolvable: list[str] = []
        for asked in ([nominated] if nominated in names else [], names):
            if asked:
                passed, unresolvable = await self._filter(pod, asked)
                if passed:
                    return await self._best(pod, passed)
        await self._preempt(pod, [name for name in names if name not in unresolvable])
        return ""

    async def _filter(self, pod: RawObject, names: list[str]) -> tuple[list[str], list[str]]:
        body = orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})
        return await self._ask(lambda replica: replica.filter(body))

    async def _best(self, pod: RawObject, passed: list[str]) -> str:
        body = orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": passed})
        scores = await self._ask(lambda replica: replica.prioritize(body))
        return max(zip(scores, passed, strict=True))[1]

    async def _preempt(self, pod: RawObject, names: list[str]) -> None:
        """Ask whom to evict, where the scheduler's own filters would have it evict somebody, and evict them."""
        priority = pod["spec"].get("priority", 0)
        offered: dict[str, Any] = {}
        for name in names if self.chance.happens("scheduler preempts", 0.3) else []:
            lower = sorted(
                (each for each in self._bound.values() if each["spec"]["nodeName"] == name and _below(each, priority)),
                key=lambda each: each["spec"].get("priority", 0),
            )
            if lower and pod["spec"].get("preemptionPolicy") != "Never":
                offered[name] = {"Pods": [{"UID": lower[0]["metadata"]["uid"]}], "NumPDBViolations": 0}
        if not offered:
            return
        body = orjson.dumps({"Pod": pod, "NodeNameToMetaVictims": offered})
        found = await self._ask(lambda replica: replica.preempt(body))
        if not found:
            return
        node = min(found, key=lambda name: (len(found[name]), name))
        try:
            await self.api.patch_status(PODS, key_of(pod), {"status": {"nominatedNodeName": node}})
            for uid in found[node]:
                if victim := self._bound.get(uid):
                    await self.api.delete(PODS, key_of(victim), uid=uid)
        except ApiError:
            return

    async def _bind(self, pending: _Pending, node: str) -> None:
        """The binding cycle of a pod."""
        metadata = pending.pod["metadata"]
        body = orjson.dumps(
            {
                "PodName": metadata["name"],
                "PodNamespace": metadata["namespace"],
                "PodUID": metadata["uid"],
                "Node": node,
            }
        )
        try:
            await self._ask(lambda replica: replica.bind(body))
        except (RefusedError, TimeoutError, AwayError):
            pending.moved = True
            self._failed(pending)
            return
        await virtualtime.elapse(5.0)  # its watch has shown the pod's node by then
        if metadata["uid"] in self._queue:
            pending.in_cycle, pending.moved = False, True
            self._moved.set()

    async def _ask(self, ask: Callable[[Replica], Awaitable[_T]]) -> _T:
        """Call one of the ready replicas. Raises AwayError, TimeoutError and what the service raises."""
        await virtualtime.elapse(self.chance.between("call", 0.0005, 0.003))
        ready = [each for each in self.replicas if each.is_ready]
        if not ready:
            raise AwayError("no replica is ready")
        replica = self.chance.of("replica", ready)
        async with asyncio.timeout(_TIMEOUT):
            return await ask(replica)


def _has_claims(pod: RawObject) -> bool:
    """Whether PreEnqueue of DynamicResources lets the pod into the queue: its claims from templates are made."""
    entries = pod["spec"].get("resourceClaims") or ()
    made = {each["name"] for each in pod.get("status", {}).get("resourceClaimStatuses") or ()}
    return all("resourceClaimTemplateName" not in each or each["name"] in made for each in entries)


def _takes(node: RawObject, pod: RawObject) -> bool:
    """Whether the scheduler's own filters pass a node: its taints, its labels, and the pod's affinity to them."""
    spec, selector = node.get("spec") or {}, pod["spec"].get("nodeSelector") or {}
    labels, affinity = node["metadata"].get("labels") or {}, (pod["spec"].get("affinity") or {}).get("nodeAffinity")
    if affinity and not _matches(affinity[_REQUIRED]["nodeSelectorTerms"], labels):
        return False
    tolerated = {each.get("key") for each in pod["spec"].get("tolerations") or ()}
    taints = [each["key"] for each in spec.get("taints") or () if each["effect"] == "NoSchedule"]
    return all(labels.get(name) == value for name, value in selector.items()) and all(
        key in tolerated for key in taints
    )


def _matches(terms: list[RawObject], labels: dict[str, str]) -> bool:
    """Whether labels match one of the terms; the histories have no other operator than In."""
    return any(all(labels.get(each["key"]) in each["values"] for each in term["matchExpressions"]) for term in terms)


def _below(pod: RawObject, priority: int) -> bool:
    return bool(pod["spec"].get("priority", 0) < priority and "deletionTimestamp" not in pod["metadata"])
