"""The players of the demo: kube-scheduler, the owners of pods and the kubelets of their nodes, and an autoscaler.

The scheduler has a queue of pending pods, and one try at a time. A rejected pod is tried again after a change of the
pod itself, such as the condition by which the service wakes it, and after a change of a node. The autoscaler asks the
service in sessions which new nodes would help, and adds them if it may.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from extender.client import AsyncAutoscalerClient, NodeGroup
from extender.kube.api import Api, ApiError, Event, EventType, ObjectKey, RawObject, key_of
from extender.kube.resources import NODES, PODS, SLICES
from extender.lab.api import Follower, MemoryApi


class CallError(Exception):
    """The service does not do what it was asked; its own text says why."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer of filter: the nodes that suit, and the reasons of the others, by node."""

    passed: Sequence[str]
    reasons: Mapping[str, str] = field(default_factory=dict)


class Calls:
    """The verbs of a kube-scheduler extender, and the explanation that people read.

    All methods raise httpx.TransportError if nobody answers.

    Args:
        http: a client whose base URL is the service's.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def filter(self, pod: RawObject, nodes: Sequence[str]) -> Judged:
        """Which nodes suit a pod. Raises CallError."""
        reply = await self._post("filter", {"Pod": pod, "NodeNames": nodes})
        failed = {**(reply["FailedAndUnresolvableNodes"] or {}), **(reply["FailedNodes"] or {})}
        return Judged(reply["NodeNames"] or (), failed)

    async def best(self, pod: RawObject, nodes: Sequence[str]) -> str:
        """The node with the highest score; of equals, the first. Raises CallError."""
        scores = await self._post("prioritize", {"Pod": pod, "NodeNames": nodes})
        return str(max(scores, key=lambda each: each["Score"])["Host"])

    async def bind(self, pod: RawObject, node: str) -> None:
        """Allocate the pod's devices on a node, and bind it. Raises CallError."""
        metadata = pod["metadata"]
        names = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
        await self._post("bind", {**names, "Node": node})

    async def headline(self, pod: RawObject) -> str:
        """The reason why a pod waits, in one line; empty if it need not wait any more, or is gone. Raises CallError."""
        key: ObjectKey = key_of(pod)
        reply = await self._http.get(f"explain/{key.namespace}/{key.name}", headers={"accept": "application/json"})
        return (reply.json().get("headline") or "") if reply.is_success else ""

    async def _post(self, verb: str, body: object) -> Any:  # noqa: ANN401 - JSON of any verb
        reply = (await self._http.post(verb, json=body)).json()
        if isinstance(reply, dict) and (problem := reply.get("Error")):
            raise CallError(str(problem))
        return reply


NAME: Final = "dra-scheduler"
"""The scheduler that the demo's pods name."""

FIRST_BACKOFF: Final = 1.0
LONGEST_BACKOFF: Final = 10.0
"""Seconds before a rejected pod is tried again, as kube-scheduler has them: doubled after each try."""

_CONDITION: Final = "PodScheduled"
FLUSH_SECONDS: Final = 60.0
"""After as long a wait a rejected pod is tried again in any case; kube-scheduler has five minutes."""


@dataclass(slots=True, eq=False)
class Pending:
    """A pod in the queue.

    Attributes:
        is_moved: it may be tried; a rejected pod is moved by an event that may help it, or when it has waited for long.
        ready: when its backoff is over, by the clock of the loop.
        said: why it waits, as told last.
    """

    pod: RawObject
    is_moved: bool = True
    ready: float = 0.0
    tries: int = 0
    said: str = ""

    @property
    def order(self) -> tuple[int, str]:
        """The most important pod first, then the oldest."""
        return -self.pod["spec"].get("priority", 0), self.pod["metadata"]["creationTimestamp"]


@dataclass(slots=True)
class Scheduler(Follower):
    """Follows the API server, and asks the service where each pod can run.

    Attributes:
        tell: hears what becomes of a pod.
    """

    api: Api
    calls: Calls
    tell: Callable[[ObjectKey, str], None]
    _queue: dict[str, Pending] = field(default_factory=dict)
    _nodes: dict[str, None] = field(default_factory=dict)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def rejected(self) -> list[RawObject]:
        """The pods that were tried, and wait."""
        return [each.pod for each in self._queue.values() if each.tries]

    def apply(self, event: Event) -> None:
        """Take in an event."""
        is_gone = event.type is EventType.DELETED
        if event.resource == PODS:
            self._put(event.object, is_gone=is_gone)
        elif event.resource == NODES:
            self._nodes.pop(event.key.name, None)
            if not is_gone:
                self._nodes[event.key.name] = None
                for each in self._queue.values():
                    each.is_moved = True
        self._moved.set()

    def _put(self, pod: RawObject, *, is_gone: bool) -> None:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        if is_gone or spec.get("nodeName") or spec.get("schedulerName") != NAME:
            self._queue.pop(uid, None)
        elif uid not in self._queue:
            self._queue[uid] = Pending(pod)
        else:
            pending = self._queue[uid]
            pending.is_moved |= _without_own_condition(pod) != _without_own_condition(pending.pod)
            pending.pod = pod

    async def run(self) -> None:
        """Try pods until cancelled."""
        while True:
            pending = self._next()
            if pending is None:
                await self._until_one_may_be_due()
            else:
                await self._try(pending)

    def _next(self) -> Pending | None:
        now = asyncio.get_running_loop().time()
        for each in self._queue.values():
            each.is_moved |= now >= each.ready + FLUSH_SECONDS
        due = (each for each in self._queue.values() if each.is_moved and each.ready <= now and _has_claims(each.pod))
        return min(due, key=lambda each: each.order, default=None)

    async def _until_one_may_be_due(self) -> None:
        self._moved.clear()
        loop = asyncio.get_running_loop()
        waiting = [each.ready for each in self._queue.values() if each.is_moved and each.ready > loop.time()]
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min([loop.time() + FLUSH_SECONDS, *waiting])):
                await self._moved.wait()

    async def _try(self, pending: Pending) -> None:
        """One scheduling cycle and, if a node suits, the binding cycle."""
        pending.is_moved, pod = False, pending.pod
        try:
            judged = await self.calls.filter(pod, list(self._nodes))
            if judged.passed:
                node = await self.calls.best(pod, judged.passed)
                await self.calls.bind(pod, node)
                self.tell(key_of(pod), f"is bound to {node}")
                return
            await self._reject(pending, _counted(judged.reasons.values()))
        except CallError as error:
            pending.is_moved = True
            await self._reject(pending, str(error))

    async def _reject(self, pending: Pending, reasons: str) -> None:
        pending.ready = asyncio.get_running_loop().time() + min(FIRST_BACKOFF * 2**pending.tries, LONGEST_BACKOFF)
        pending.tries += 1
        await self._write_condition(pending.pod, f"0/{len(self._nodes)} nodes are available: {reasons}.")
        headline = await self.calls.headline(pending.pod)
        if headline and headline != pending.said:
            pending.said = headline
            self.tell(key_of(pending.pod), f"waits: {headline}")

    async def _write_condition(self, pod: RawObject, message: str) -> None:
        """Say on the pod that it is unschedulable."""
        own = {"type": _CONDITION, "status": "False", "reason": "Unschedulable", "message": message}
        with suppress(ApiError):  # the pod is gone, or has a node meanwhile
            now = await self.api.get(PODS, key_of(pod))
            conditions = [each for each in now.get("status", {}).get("conditions", ()) if each["type"] != _CONDITION]
            metadata = {"uid": pod["metadata"]["uid"], "resourceVersion": now["metadata"]["resourceVersion"]}
            patch = {"metadata": metadata, "status": {"conditions": [*conditions, own]}}
            if not now["spec"].get("nodeName"):
                await self.api.patch_status(PODS, key_of(pod), patch)


def _without_own_condition(pod: RawObject) -> RawObject:
    """What others have written of a pod: a change of it may help the pod."""
    metadata = {name: value for name, value in pod["metadata"].items() if name != "resourceVersion"}
    status = dict(pod.get("status") or {})
    status["conditions"] = [each for each in status.get("conditions") or () if each["type"] != _CONDITION]
    return {"metadata": metadata, "spec": pod["spec"], "status": status}


def _has_claims(pod: RawObject) -> bool:
    """Whether the pod's claims are made: before that, kube-scheduler holds it back (PreEnqueue)."""
    entries = pod["spec"].get("resourceClaims") or ()
    made = {each["name"] for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    return all("resourceClaimTemplateName" not in each or each["name"] in made for each in entries)


def _counted(reasons: Iterable[str]) -> str:
    """Equal reasons counted, as kube-scheduler does."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(Counter(reasons).items()))


SECONDS: Final = "demo.example.com/seconds"
"""The annotation that says how long a pod runs, in seconds of the demo."""

_START_SECONDS: Final = 1.0
_SEEN_SECONDS: Final = 4.0
"""How long a finished pod can be looked at before its owner deletes it."""

_EVICTED: Final = "DisruptionTarget"


def pod_of(key: ObjectKey, template: str, seconds: float, **more: Any) -> RawObject:  # noqa: ANN401 - fields of its spec
    """A pod with a claim from a template.

    Args:
        key: of the pod.
        template: name of the ResourceClaimTemplate.
        seconds: how long it runs.
        more: further fields of its spec; ``annotations`` go to the metadata.
    """
    annotations = {SECONDS: str(seconds), **more.pop("annotations", {})}
    container = {"name": "main", "image": "registry.example.com/job", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**key._asdict(), "annotations": annotations},
        "spec": {
            "schedulerName": NAME,
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
            **more,
        },
    }


@dataclass(slots=True)
class Workloads(Follower):
    """Starts and ends pods that have a node, and makes evicted ones again, as a Job does.

    Attributes:
        pause: waits for some seconds of the demo.
        tell: hears what becomes of a pod.
        pods: all of them, as they are now.
    """

    api: Api
    tasks: asyncio.TaskGroup
    pause: Callable[[float], Awaitable[None]]
    tell: Callable[[ObjectKey, str], None]
    pods: dict[ObjectKey, RawObject] = field(default_factory=dict)
    _wanted: dict[ObjectKey, RawObject] = field(default_factory=dict)
    """What was submitted and has not ended, as it was submitted."""
    _started: set[str] = field(default_factory=set)

    async def submit(self, pod: RawObject) -> None:
        """Create a pod, and create it again whenever it is evicted."""
        self._wanted[key_of(pod)] = pod
        await self.api.create(PODS, pod)

    async def withdraw(self, key: ObjectKey) -> None:
        """Delete a pod before its end, as its owner does."""
        self._wanted.pop(key, None)
        with suppress(ApiError):  # it has ended meanwhile
            await self.api.delete(PODS, key)

    def apply(self, event: Event) -> None:
        """Take in an event."""
        if event.resource != PODS:
            return
        pod, uid = event.object, event.object["metadata"]["uid"]
        if event.type is EventType.DELETED:
            self.pods.pop(event.key, None)
            self._started.discard(uid)
            if again := self._wanted.get(event.key):
                self.tell(event.key, f"is evicted{_why(pod)}; its owner makes it again")
                self.tasks.create_task(self.submit(again))
            return
        self.pods[event.key] = pod
        if pod["spec"].get("nodeName") and uid not in self._started:
            self._started.add(uid)
            self.tasks.create_task(self._live(pod))

    async def _live(self, pod: RawObject) -> None:
        """The life of a pod on its node. It ends early if the pod is deleted."""
        key, uid = key_of(pod), pod["metadata"]["uid"]
        with suppress(ApiError):  # the pod is gone
            await self.pause(_START_SECONDS)
            await self._set_phase(key, uid, "Running")
            await self.pause(float(pod["metadata"]["annotations"][SECONDS]))
            await self._set_phase(key, uid, "Succeeded")
            self._wanted.pop(key, None)
            self.tell(key, "has ended; its devices are free")
            await self.pause(_SEEN_SECONDS)
            await self.api.delete(PODS, key, uid=uid)

    async def _set_phase(self, key: ObjectKey, uid: str, phase: str) -> None:
        await self.api.patch_status(PODS, key, {"metadata": {"uid": uid}, "status": {"phase": phase}})


def _why(pod: RawObject) -> str:
    """Why a pod was evicted, as its condition says."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((f" ({each['message']})" for each in conditions if each["type"] == _EVICTED), "")


_LOOK_SECONDS: Final = 3.0
_JOIN_SECONDS: Final = 4.0
GROUP: Final = "falcon"
_MODEL: Final = "falcon-1"
"""The node that a new one of the group equals."""

_OF_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "generation")


@dataclass(slots=True)
class Autoscaler:
    """Plans for the pods that wait.

    Attributes:
        pause: waits for some seconds of the demo.
        tell: hears, in one line, what is planned and done.
        nodes: the nodes that were added.
        may_add: how many nodes may be added.
    """

    api: MemoryApi
    client: AsyncAutoscalerClient
    scheduler: Scheduler
    pause: Callable[[float], Awaitable[None]]
    tell: Callable[[str], None]
    nodes: list[str] = field(default_factory=list)
    may_add: int = 0
    _planned: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Look for pods that wait, until cancelled."""
        while True:
            await self.pause(_LOOK_SECONDS)
            waiting = self.scheduler.rejected
            uids = frozenset(each["metadata"]["uid"] for each in waiting)
            if waiting and (uids != self._planned or self.may_add):
                self._planned = uids
                await self._plan(waiting)

    async def _plan(self, waiting: list[RawObject]) -> None:
        session = await self.client.start()
        model = await self.api.get(NODES, ObjectKey("", _MODEL))
        plan = await session.estimate(waiting, [NodeGroup(GROUP, _renamed(model, f"{GROUP}-new"), limit=4)])
        (added,) = plan.groups
        if not added.nodes:
            return
        pods = ", ".join(pod for node in added.nodes for pod in node)
        count = len(added.nodes)
        self.tell(f"autoscaler: {count} more {GROUP} node{'s' if count > 1 else ''} would run {pods}")
        for _ in range(min(self.may_add, count)):
            self.may_add -= 1
            await self._add()

    async def _add(self) -> None:
        """A node joins, and a moment later its driver publishes its devices."""
        name = f"{GROUP}-{3 + len(self.nodes)}"
        self.nodes.append(name)
        self.api.load(NODES, _renamed(await self.api.get(NODES, ObjectKey("", _MODEL)), name))
        self.tell(f"node {name} joins; its driver has not published its devices yet")
        await self.pause(_JOIN_SECONDS)
        model = next(each for each in (await self.api.list(SLICES)).items if each["spec"].get("nodeName") == _MODEL)
        made = _renamed(model, f"{name}-gpu.example.com")
        made["spec"] = {**made["spec"], "nodeName": name, "pool": {**made["spec"]["pool"], "name": name}}
        await self.api.create(SLICES, made)
        self.tell(f"node {name}: 4 GPUs are published")

    async def remove_nodes(self) -> None:
        """Take away the nodes that were added."""
        for name in self.nodes:
            for each in (await self.api.list(SLICES)).items:
                if each["spec"].get("nodeName") == name:
                    await self.api.delete(SLICES, key_of(each))
            await self.api.delete(NODES, ObjectKey("", name))
            self.tell(f"node {name} is no longer needed, and leaves")
        self.nodes.clear()


def _renamed(obj: RawObject, name: str) -> RawObject:
    """A copy of an object under another name, without what a server has added."""
    metadata = {field: value for field, value in obj["metadata"].items() if field not in _OF_SERVER}
    if "labels" in metadata:
        metadata["labels"] = {**metadata["labels"], "kubernetes.io/hostname": name}
    return {**obj, "metadata": {**metadata, "name": name}}
