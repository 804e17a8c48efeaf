"""The nodes of the cluster, and their driver: a pool of devices for each node, in two slices."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLASSES, NODES, SLICES
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.kwok import KUBELET
from tests.kit.objects.manifests import DEVICE_CLASS, device_class
from tests.kit.objects.parts import DRIVER, api_object, slice_spec
from tests.kit.waiting import pause, wait_for_answer

EXTENDED: Final = "example.com/gpu"
"""The extended resource that the devices' class serves."""

MODELS: Final = ("h100", "a100")
BROKEN: Final = {"key": "example.com/broken", "effect": "NoExecute"}
READY_SECONDS: Final = 120.0
_SLICES: Final = 2
_AT_ONCE: Final = 20
"""Calls at a time while the nodes are made."""


@dataclass(slots=True)
class Node:
    """A node, and what its driver publishes.

    Attributes:
        model: of its devices.
        generation: of its pool; 0 before the first.
        version: of the driver.
        broken: numbers of devices that have failed.
    """

    name: str
    model: str
    generation: int = 0
    version: int = 1
    broken: set[int] = field(default_factory=set)

    @property
    def key(self) -> ObjectKey:
        """The Node object."""
        return ObjectKey("", self.name)


@dataclass(slots=True)
class Site:
    """All nodes.

    Attributes:
        devices: of each node.
        quiet: nodes to which nothing happens now.
        node_count: of all.
    """

    client: Client
    random: Random
    devices: int
    node_count: int
    quiet: list[Node] = field(default_factory=list, init=False)

    async def build(self) -> None:
        """Make the class, the nodes and their pools, and wait until all nodes are ready."""
        extended = {"spec": {"extendedResourceName": EXTENDED}}
        await self.client.create(CLASSES, device_class())
        await self.client.patch(CLASSES, ObjectKey("", DEVICE_CLASS), extended)
        limit = asyncio.Semaphore(_AT_ONCE)

        async def add(number: int) -> None:
            node = Node(f"node-{number:04}", MODELS[number % len(MODELS)])
            async with limit:
                await self.join(node)
            self.quiet.append(node)

        async with asyncio.TaskGroup() as tasks:
            for number in range(self.node_count):
                tasks.create_task(add(number))
        await wait_for_answer(
            self.not_ready, lambda left: not left, "the nodes are ready", within=READY_SECONDS, every=1.0
        )

    def take(self) -> Node | None:
        """A node to which something is going to happen: it is not quiet until it is given back."""
        return self.quiet.pop(self.random.randrange(len(self.quiet))) if self.quiet else None

    async def not_ready(self) -> list[str]:
        """The names of nodes that cannot take pods."""
        nodes = (await self.client.list(NODES)).items
        return [each["metadata"]["name"] for each in nodes if not is_usable(each)]

    async def join(self, node: Node) -> None:
        """A node that the cluster does not have: its object, and the first generation of its pool."""
        label, value = KUBELET
        labels = {label: value, "kubernetes.io/hostname": node.name}
        await self.client.create(NODES, api_object("Node", node.name, metadata={"labels": labels}))
        node.generation = 0
        node.broken.clear()
        await self.publish(node)

    async def publish(self, node: Node) -> None:
        """Publish the next generation of a pool, one slice after the other: between them, the pool is incomplete."""
        node.generation += 1
        owner = await self.client.get(NODES, node.key)
        for part in range(_SLICES):
            made = self._slice(node, part, owner["metadata"]["uid"])
            name = ObjectKey("", made["metadata"]["name"])
            try:
                await self.client.patch(SLICES, name, {"spec": made["spec"]})
            except ApiError as error:
                if not error.is_missing:
                    raise
                await self.client.create(SLICES, made)

    async def upgrade(self, nodes: Sequence[Node]) -> None:
        """Give nodes a newer driver: the old one takes its slices with it, and the new one publishes its own."""
        for node in nodes:
            for part in range(_SLICES):
                with suppress(ApiError):
                    await self.client.delete(SLICES, ObjectKey("", _slice_name(node, part)))
        await pause(self.random.uniform(1.0, 3.0))
        for node in nodes:
            node.version += 1
            await self.publish(node)

    async def set_kubelet(self, node: Node, *, runs: bool) -> None:
        """Start the kubelet of a node, or end it without warning."""
        label, value = KUBELET
        await self.client.patch(NODES, node.key, {"metadata": {"labels": {label: value if runs else None}}})

    async def set_taint(self, node: Node, key: str, *, there: bool) -> None:
        """Put a ``NoExecute`` taint on a node, or take it off; the controllers' own taints stay."""
        while True:
            found = await self.client.get(NODES, node.key)
            taints = [each for each in found["spec"].get("taints", []) if each["key"] != key]
            taints += [{"key": key, "effect": "NoExecute"}] if there else []
            revision = {"resourceVersion": found["metadata"]["resourceVersion"]}
            try:
                await self.client.patch(NODES, node.key, {"metadata": revision, "spec": {"taints": taints}})
            except ApiError as error:
                if not error.is_conflict:
                    raise
            else:
                return

    def _slice(self, node: Node, part: int, owner: str) -> RawObject:
        numbers = range(part * self.devices // _SLICES, (part + 1) * self.devices // _SLICES)
        spec = slice_spec(
            node.name, [_device(node, number) for number in numbers], slices=_SLICES, nodeName=node.name, driver=DRIVER
        )
        spec["pool"]["generation"] = node.generation
        # As kubelets' drivers do: slices go with their node.
        owners = [{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": owner}]
        return api_object("ResourceSlice", _slice_name(node, part), metadata={"ownerReferences": owners}, spec=spec)


def is_usable(node: RawObject) -> bool:
    """Is a node ready, and without taints?"""
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not node["spec"].get("taints")


def _slice_name(node: Node, part: int) -> str:
    return f"{node.name}-{part}"


def _device(node: Node, number: int) -> RawObject:
    attributes = {
        "model": {"string": node.model},
        "driverVersion": {"version": f"{node.version}.0.0"},
        "firmware": {"int": node.generation},
        "index": {"int": number},
    }
    taints = {"taints": [BROKEN]} if number in node.broken else {}
    return {"name": f"gpu-{number}", "attributes": attributes, **taints}
