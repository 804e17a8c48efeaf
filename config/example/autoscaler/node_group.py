"""An autoscaler for one group of nodes, as KEP-3063 draws it: start, filter, NodeSelected, provision, NodeReady.

`Machines` is what you write for your cloud. docs/how-to/autoscaler.md shows how to run it.
"""

import asyncio
import logging
import ssl
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol

import httpx

from extender.client import AsyncAutoscalerClient, AsyncSession, AutoscalerError, NodeGroup

Object = Mapping[str, Any]  # as the API server has it
log = logging.getLogger(__name__)


class Machines(Protocol):
    async def nodes(self) -> Sequence[Object]:
        """The Nodes that are ready, of all groups."""

    async def pods(self) -> Sequence[Object]:
        """The Pods that have not ended, without those of DaemonSets, which go with their Nodes."""

    async def add(self) -> str:
        """Order a machine of the group; the name of its Node."""

    async def remove(self, name: str) -> None:
        """Drain a Node of the group, and give its machine back."""


def connect(url: str, ca: Path, token: str) -> AsyncAutoscalerClient:
    """The service at its port for callers off the node, which speaks TLS and asks who calls."""
    context = ssl.create_default_context(cafile=ca)
    headers = {"Authorization": f"Bearer {token}"}
    return AsyncAutoscalerClient(httpx.AsyncClient(base_url=url, verify=context, headers=headers, timeout=60))


class Autoscaler:
    def __init__(self, client: AsyncAutoscalerClient, machines: Machines, group: NodeGroup) -> None:
        self.client = client
        self.machines = machines
        self.group = group
        self.ordered = set[str]()  # names of Nodes that were added, and have not been ready yet

    async def run(self, every: float) -> None:
        """Run one cycle after the other, with a pause of so many seconds between them."""
        while True:
            try:
                await self.cycle()
            except AutoscalerError as error:  # the session is gone, or the service is away: the next cycle begins anew
                log.warning("this cycle failed: %s", error)
            await asyncio.sleep(every)

    async def cycle(self) -> None:
        """Add the Nodes that waiting pods need. If no pod gets a place, remove a Node that is not needed."""
        found, pods = await self.machines.nodes(), await self.machines.pods()
        group = {name_of(node) for node in found if self.has(node)} | self.ordered
        coming = {name for name in group if not (await self.client.latest.node_ready(name)).ready}
        self.ordered &= coming
        nodes = [node for node in found if name_of(node) not in coming]
        waiting = [pod for pod in pods if waits(pod)]
        if not await self.scale_up(nodes, waiting, len(coming), self.group.limit - len(group)):
            await self.scale_down(nodes, pods)

    async def scale_up(self, nodes: Sequence[Object], waiting: Iterable[Object], coming: int, room: int) -> bool:
        """Whether a waiting pod has a place, or gets one."""
        session = await self.client.start(whole_pods=True)
        # A Node that is coming has not published its devices: it is asked about as one that does not exist yet.
        there = [*nodes, *(self.new_node(number) for number in range(coming))]
        known, placed = len(there), False
        for pod in waiting:
            if await place(session, pod, there):
                placed = True
            elif len(there) < known + room and await place(session, pod, [another := self.new_node(len(there))]):
                placed = True
                there.append(another)
        for _ in there[known:]:
            self.ordered.add(await self.machines.add())
        return placed

    async def scale_down(self, nodes: Sequence[Object], pods: Sequence[Object]) -> None:
        """Remove the first Node of the group whose pods all find another place."""
        for node in filter(self.has, nodes):
            # Bookings stay for the rest of a session, so each try has a session of its own.
            session = await self.client.start(whole_pods=True)
            others = [each for each in nodes if each is not node]
            moving = [pod for pod in pods if pod["spec"].get("nodeName") == name_of(node)]
            if all([await place(session, without_node(pod), others) for pod in moving]):
                await self.machines.remove(name_of(node))
                return

    def has(self, node: Object) -> bool:
        """Whether a Node is of the group: it has the labels of the group's template."""
        labels = node["metadata"].get("labels", {})
        wanted = self.group.template["metadata"]["labels"]
        return all(labels.get(name) == value for name, value in wanted.items())

    def new_node(self, number: int) -> Object:
        """A Node that does not exist; the service knows its devices by its labels."""
        node = deepcopy(dict(self.group.template))
        node["metadata"]["name"] = f"{self.group.name}-new-{number}"
        return node


async def place(session: AsyncSession, pod: Object, nodes: Sequence[Object]) -> bool:
    """Book the pod on the best Node that suits it, if there is one."""
    passed = set((await session.filter(pod, nodes)).passed)
    suitable = [node for node in nodes if name_of(node) in passed]
    if not suitable:
        return False
    scores = await session.prioritize(pod, suitable)
    await session.book(pod, max(suitable, key=lambda node: scores[name_of(node)]))
    return True


def waits(pod: Object) -> bool:
    return not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates")


def without_node(pod: Object) -> Object:
    return {**pod, "spec": {name: value for name, value in pod["spec"].items() if name != "nodeName"}}


def name_of(obj: Object) -> str:
    return str(obj["metadata"]["name"])
