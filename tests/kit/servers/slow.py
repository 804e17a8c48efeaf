"""An API server in whose admission the writes to some namespaces take long, as with a slow webhook."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.kube.api import ObjectKey, RawObject, key_of
from extender.kube.resources import Resource
from tests.kit.servers.memory import Transport


@dataclass
class SlowAdmission(Transport):
    """An Api in front of another one.

    Attributes:
        seconds: by namespace, how long each write there takes.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)

    async def create(self, resource: Resource, obj: RawObject) -> RawObject:
        await self._admitted(key_of(obj))
        return await super().create(resource, obj)

    async def update(self, resource: Resource, obj: RawObject) -> RawObject:
        await self._admitted(key_of(obj))
        return await super().update(resource, obj)

    async def update_status(self, resource: Resource, obj: RawObject) -> RawObject:
        await self._admitted(key_of(obj))
        return await super().update_status(resource, obj)

    async def patch(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        await self._admitted(key)
        return await super().patch(resource, key, patch)

    async def patch_status(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        await self._admitted(key)
        return await super().patch_status(resource, key, patch)

    async def delete(self, resource: Resource, key: ObjectKey, *, uid: str = "", resource_version: str = "") -> None:
        await self._admitted(key)
        await super().delete(resource, key, uid=uid, resource_version=resource_version)

    async def bind_pod(self, key: ObjectKey, node: str, *, uid: str, resource_version: str = "") -> None:
        await self._admitted(key)
        await super().bind_pod(key, node, uid=uid, resource_version=resource_version)

    async def _admitted(self, key: ObjectKey) -> None:
        await asyncio.sleep(self.seconds.get(key.namespace, 0.0))
