"""What happens to nodes, devices, drivers and the extender."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import NODES, SLICES
from tests.kit.controlplane.components import START_SECONDS
from tests.kit.process import Process
from tests.kit.waiting import WaitError, pause, wait_for_answer
from tests.soak.pods import Pods
from tests.soak.site import Node, Site
from tests.soak.workloads import Workloads

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
LOST_SECONDS: Final = (50.0, 80.0)
"""How long a kubelet is away. The node counts as lost after 40 seconds, and its pods are deleted 10 seconds later."""

EMPTY_SECONDS: Final = 300.0
"""How long it may take until a node has no pods: controllers look at lost pods each 20 seconds."""


@dataclass(slots=True)
class Happenings:
    """Makes things happen.

    Attributes:
        extender: that is killed.
        done: how often what has happened, and how node failures have ended.
        stuck: what has not come to its end.
    """

    site: Site
    pods: Pods
    workloads: Workloads
    extender: Process
    random: Random
    done: Counter[str] = field(default_factory=Counter, init=False)
    stuck: list[str] = field(default_factory=list, init=False)
    _kills: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def happen(self, name: str) -> None:
        """One thing, to its end. What does not come to its end is remembered in `stuck`.

        Args:
            name: of `tests.soak.plan.HAPPENINGS`, or ``kill``.
        """
        to_workloads: Mapping[str, Callable[[], Awaitable[None]]] = {
            "job": self.workloads.add_job,
            "rollout": self.workloads.roll_out,
            "resize": self.workloads.resize,
            "kill": self._kill,
            "driver upgrade": self._upgrade,
        }
        to_a_node: Mapping[str, Callable[[Node], Awaitable[None]]] = {
            "slice update": self.site.publish,
            "device failure": self._fail_device,
            "drain": self._drain,
            "node failure": self._fail,
        }
        if name in to_workloads:
            await to_workloads[name]()
        elif node := self.site.take():
            try:
                await to_a_node[name](node)
            except WaitError as error:
                self.stuck.append(f"{name}: {error}")
            self.site.quiet.append(node)
        self.done[name] += 1

    async def _kill(self) -> None:
        async with self._kills:
            self.extender.kill()
            await pause(self.random.uniform(0.0, 2.0))
            await asyncio.to_thread(self.extender.start, within=START_SECONDS)

    async def _upgrade(self) -> None:
        """A rolling upgrade of the driver on a tenth of all nodes, ten at a time."""
        for _ in range(max(1, self.site.node_count // 100)):
            nodes = [node for node in (self.site.take() for _ in range(10)) if node]
            await self.site.upgrade(nodes)
            self.site.quiet += nodes

    async def _fail_device(self, node: Node) -> None:
        """A device fails: its taint evicts the pod that has it. Later it is mended."""
        node.broken.add(self.random.randrange(self.site.devices))
        await self.site.publish(node)
        await pause(self.random.uniform(15.0, 30.0))
        node.broken.clear()
        await self.site.publish(node)

    async def _drain(self, node: Node) -> None:
        """As ``kubectl drain``; then the node gets a newer driver, and takes pods again."""

        async def evict() -> list[ObjectKey]:
            found = self.pods.on(node.name)
            for key in found:
                with suppress(ApiError):  # it has ended meanwhile
                    await self.site.client.evict(key)
            return found

        await self._set_unschedulable(node, value=True)
        # A pod that was on its way to the node arrives late.
        await wait_for_answer(evict, lambda keys: not keys, f"{node.name} is drained", within=EMPTY_SECONDS, every=1.0)
        await self.site.upgrade([node])
        await self._set_unschedulable(node, value=False)

    async def _fail(self, node: Node) -> None:
        """The kubelet is gone. It comes back, or the machine is replaced, or an administrator declares it dead."""
        await self.site.set_kubelet(node, runs=False)
        await pause(self.random.uniform(*LOST_SECONDS))
        match outcome := self.random.choice(("came back", "replaced", "declared dead")):
            case "replaced":
                await self._replace(node)
            case "declared dead":
                await self._declare_dead(node)
            case _:
                await self.site.set_kubelet(node, runs=True)
        self.done[f"node {outcome}"] += 1

    async def _replace(self, node: Node) -> None:
        """The Node object is deleted, its slices and pods go after it, and a new machine gets its name."""

        async def slices() -> list[str]:
            found = await self.site.client.select(SLICES, "", {"spec.nodeName": node.name})
            return [each["metadata"]["name"] for each in found]

        await self.site.client.delete(NODES, ObjectKey("", node.name))
        await wait_for_answer(
            slices, lambda left: not left, f"{node.name} has no slices", within=EMPTY_SECONDS, every=1.0
        )
        await self._wait_empty(node)
        await self.site.join(node)

    async def _declare_dead(self, node: Node) -> None:
        """The taint makes the controllers delete its pods by force; then the machine comes back."""
        await self.site.set_taint(node, OUT_OF_SERVICE, there=True)
        await self._wait_empty(node)
        await self.site.set_kubelet(node, runs=True)
        await self.site.set_taint(node, OUT_OF_SERVICE, there=False)

    async def _set_unschedulable(self, node: Node, *, value: bool) -> None:
        await self.site.client.patch(NODES, node.key, {"spec": {"unschedulable": value or None}})

    async def _wait_empty(self, node: Node) -> None:
        async def left() -> list[ObjectKey]:
            return self.pods.on(node.name)

        await wait_for_answer(left, lambda keys: not keys, f"{node.name} has no pods", within=EMPTY_SECONDS, every=1.0)
