"""A DRA driver as the cluster sees it: slices of devices, and a class for them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLASSES, SLICES
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import as_version, device_class

_PLACES: Final = frozenset({"nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"})


@dataclass(slots=True)
class Driver:
    """A driver whose device class has its own name.

    Attributes:
        verbs: of the extender that must know of each slice before a test goes on.
    """

    client: Client
    verbs: Verbs
    name: str
    _slices: dict[str, ObjectKey] = field(default_factory=dict, init=False)

    async def publish(
        self,
        pool: str,
        devices: Sequence[RawObject] = (),
        *,
        generation: int = 1,
        part: int = 1,
        of: int = 1,
        **spec: Any,
    ) -> None:
        """Publish one slice of a pool.

        Args:
            pool: its name; the devices are at the node of that name, unless ``spec`` says where.
            part: number of the slice, from 1.
            of: how many slices the pool has.
            spec: further fields of the slice's spec.
        """
        name = f"{self.name}-{pool}-{generation}-{part}"
        place = {} if _PLACES & spec.keys() else {"nodeName": pool}
        if devices:
            spec["devices"] = list(devices)
        in_pool = {"name": pool, "generation": generation, "resourceSliceCount": of}
        made = await self.client.create(
            SLICES,
            as_version(
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": name},
                    "spec": {"driver": self.name, "pool": in_pool, **place, **spec},
                },
                self.client.version,
            ),
        )
        self._slices[name] = key_of(made)
        await self.verbs.wait_in_step(self.client)

    async def withdraw(self, pool: str, *, generation: int = 1, part: int = 1) -> None:
        """Take one slice of a pool back."""
        await self.client.delete(SLICES, self._slices.pop(f"{self.name}-{pool}-{generation}-{part}"))
        await self.verbs.wait_in_step(self.client)

    async def withdraw_all(self) -> None:
        """Take back every slice."""
        for key in self._slices.values():
            await self.client.delete(SLICES, key)
        self._slices.clear()


@asynccontextmanager
async def driver(client: Client, verbs: Verbs, name: str) -> AsyncIterator[Driver]:
    """A driver with its class; both are gone afterwards, and all its slices."""
    made = await client.create(CLASSES, as_version(device_class(name, name), client.version))
    running = Driver(client, verbs, name)
    try:
        yield running
    finally:
        await running.withdraw_all()
        await client.delete(CLASSES, key_of(made))
