"""A pool of many devices that changes all the time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count, cycle

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import SLICES
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import as_version

SLICES_OF_POOL = 80
DEVICES_OF_SLICE = 128


class LargePool:
    """A pool of 10,240 devices on one node, which changes all the time."""

    def __init__(self, client: Client, driver: str, node: str) -> None:
        self._node = node
        self._client = client
        self._driver = driver
        self._health = count()
        self._order = cycle(range(SLICES_OF_POOL))

    def part(self, number: int) -> RawObject:
        """A slice of the pool, as it is published next."""
        health = {"attributes": {"health": {"int": next(self._health)}}}
        devices = [{"name": f"gpu-{number}-{place}", **health} for place in range(DEVICES_OF_SLICE)]
        in_pool = {"name": self._node, "generation": 1, "resourceSliceCount": SLICES_OF_POOL}
        return as_version(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": self._name(number)},
                "spec": {"driver": self._driver, "pool": in_pool, "nodeName": self._node, "devices": devices},
            },
            self._client.version,
        )

    def _name(self, number: int) -> str:
        return f"{self._driver}-large-{number}"

    @asynccontextmanager
    async def changing(self, verbs: Verbs, seconds: float) -> AsyncIterator[None]:
        """Publish the pool, and change a slice after each of these pauses."""
        for number in range(SLICES_OF_POOL):
            await self._client.create(SLICES, self.part(number))
        await verbs.wait_in_step(self._client)
        changes = asyncio.create_task(self._change(seconds))
        try:
            yield
        finally:
            changes.cancel()
            for number in range(SLICES_OF_POOL):
                await self._client.delete(SLICES, ObjectKey("", self._name(number)))

    async def _change(self, seconds: float) -> None:
        while True:
            number = next(self._order)
            spec = {"spec": {"devices": self.part(number)["spec"]["devices"]}}
            await self._client.patch(SLICES, ObjectKey("", self._name(number)), spec)
            await asyncio.sleep(seconds)
