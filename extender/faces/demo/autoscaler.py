"""Plays an autoscaler: it asks the service in sessions which new nodes would help, and adds them if it may."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from extender.client import AsyncAutoscalerClient, NodeGroup
from extender.faces.demo.scheduler import Scheduler
from extender.kube.api import ObjectKey, RawObject, key_of
from extender.kube.resources import NODES, SLICES
from extender.lab.api import MemoryApi

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
