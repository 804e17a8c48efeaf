"""API servers for tests: the one in memory with a clock that stands still, and a transport that can fail."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar

from extender.kube.api import ApiError, Listing, ObjectKey, OutcomeUnknownError, RawObject, key_of
from extender.kube.resources import PODS, RESOURCES, Resource
from extender.lab.api import MemoryApi

_T = TypeVar("_T")

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW_TEXT = "2026-01-02T03:04:05Z"


def memory_api(*objects: dict[str, Any]) -> MemoryApi:
    """An API server that holds some objects, as they are."""
    numbers = count(1)
    api = MemoryApi(now=lambda: NOW, new_uid=lambda: f"{next(numbers):05}-made")
    for each in objects:
        api.load(RESOURCES[each["kind"]], each)
    return api


Before = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """What befalls one call.

    Attributes:
        before: what somebody else does just before it arrives.
        seconds: how long it is on its way.
        lost: it never arrives, and nobody says so.
        late: seconds after which it arrives; its caller no longer waits.
        reply_lost: it does what it is to do, and nobody says so.
        refused: the API server answers this.
        reply: changes the answer on its way.
    """

    before: Before | None = None
    seconds: float = 0
    lost: bool = False
    late: float = 0
    reply_lost: bool = False
    refused: ApiError | None = None
    reply: Callable[[Any], Any] | None = None


@dataclass
class Transport:
    """An Api in front of another one: calls fail as scripted, each fault once, in order; and all are written down.

    Attributes:
        admission: by namespace, the seconds that each write there takes, as with a slow webhook.
    """

    api: MemoryApi
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    late: list[asyncio.Task[None]] = field(default_factory=list)
    admission: Mapping[str, float] = field(default_factory=dict)

    def script(self, call: str, *faults: Fault) -> None:
        """The next calls of this name meet these."""
        self.faults.setdefault(call, []).extend(faults)

    def api_version(self, resource: Resource) -> str:
        return self.api.api_version(resource)

    async def get(self, resource: Resource, key: ObjectKey) -> RawObject:
        return await self._call("get", resource, lambda: self.api.get(resource, key))

    async def list(self, resource: Resource) -> Listing:
        return await self._call("list", resource, lambda: self.api.list(resource))

    async def select(self, resource: Resource, namespace: str, fields: Mapping[str, str]) -> tuple[RawObject, ...]:
        return await self._call("select", resource, lambda: self.api.select(resource, namespace, fields))

    async def create(self, resource: Resource, obj: RawObject) -> RawObject:
        return await self._write("create", resource, key_of(obj), lambda: self.api.create(resource, obj))

    async def update(self, resource: Resource, obj: RawObject) -> RawObject:
        return await self._write("update", resource, key_of(obj), lambda: self.api.update(resource, obj))

    async def update_status(self, resource: Resource, obj: RawObject) -> RawObject:
        return await self._write("update_status", resource, key_of(obj), lambda: self.api.update_status(resource, obj))

    async def patch(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        return await self._write("patch", resource, key, lambda: self.api.patch(resource, key, patch))

    async def patch_status(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        return await self._write("patch_status", resource, key, lambda: self.api.patch_status(resource, key, patch))

    async def delete(self, resource: Resource, key: ObjectKey, *, uid: str = "", resource_version: str = "") -> None:
        await self._write(
            "delete", resource, key, lambda: self.api.delete(resource, key, uid=uid, resource_version=resource_version)
        )

    async def bind_pod(self, key: ObjectKey, node: str, *, uid: str, resource_version: str = "") -> None:
        await self._write(
            "bind", PODS, key, lambda: self.api.bind_pod(key, node, uid=uid, resource_version=resource_version)
        )

    async def _write(self, name: str, resource: Resource, key: ObjectKey, call: Callable[[], Awaitable[_T]]) -> _T:
        if key.namespace in self.admission:
            await asyncio.sleep(self.admission[key.namespace])
        return await self._call(name, resource, call)

    async def _call(self, name: str, resource: Resource, call: Callable[[], Awaitable[_T]]) -> _T:
        name = f"{name} {resource.plural}"
        self.calls.append(name)
        fault = self.faults[name].pop(0) if self.faults.get(name) else Fault()
        await asyncio.sleep(fault.seconds)
        if fault.before is not None:
            await fault.before()
        if fault.refused is not None:
            raise fault.refused
        if fault.late:
            self.late.append(asyncio.get_running_loop().create_task(_later(fault.late, call)))
        if fault.lost or fault.late:
            raise OutcomeUnknownError(name, "timed out")
        reply = await call()
        if fault.reply_lost:
            raise OutcomeUnknownError(name, "connection reset")
        return fault.reply(reply) if fault.reply else reply


async def _later(seconds: float, call: Callable[[], Awaitable[object]]) -> None:
    await asyncio.sleep(seconds)
    with suppress(ApiError):
        await call()


def writes(calls: Iterable[str]) -> list[str]:
    """The calls that write."""
    return [call for call in calls if not call.startswith(("get", "list"))]
