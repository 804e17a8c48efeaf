"""What bind is tried on: two nodes with devices, a binder, and a watch that may be behind."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from extender.cluster.cluster_state import ClusterState
from extender.cluster.double_allocations import DoubleAllocations
from extender.framework.bind.bind import Binder
from extender.framework.bind_errors import BindError
from extender.kube.api import ApiError, Event, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from tests.kit import virtualtime
from tests.kit.binders import binder_over, devices_of, held
from tests.kit.clusters import device_class, local_slice, node
from tests.kit.servers.memory import NOW, Fault, Transport, memory_api

PROTECT, ALLOCATE, BIND = "update resourceclaims", "update_status resourceclaims", "bind pods"
GET_CLAIM = "get resourceclaims"
FORBIDDEN = ApiError(403, "Forbidden", "not allowed")


class Lagging:
    """A watch that is behind: it keeps what it hears of a kind, claims at first, until it is told to go on."""

    def __init__(self, state: ClusterState) -> None:
        self.of = CLAIMS
        self._state = state
        self._kept: list[Event] = []
        self.is_behind = False

    def apply(self, event: Event) -> None:
        if self.is_behind and event.resource == self.of:
            self._kept.append(event)
        else:
            self._state.apply(event)

    def replace(self, resource: Any, objects: Any, at: int) -> bool:
        return self._state.replace(resource, objects, at)

    def catch_up(self) -> None:
        self.is_behind = False
        while self._kept:
            self._state.apply(self._kept.pop(0))


class Scene:
    """Nodes n and m with two devices each, and a binder over an API server.

    Args:
        objects: more objects of the cluster.
        has_group_claims: whether claims may be reserved for PodGroups.
    """

    now = NOW

    def __init__(self, *objects: RawObject, has_group_claims: bool = False) -> None:
        nodes = [node("n"), node("m"), local_slice("n", 2), local_slice("m", 2), device_class()]
        self.api = memory_api(*nodes, *objects)
        self.state = ClusterState(has_group_claims=has_group_claims)
        self.watch = Lagging(self.state)
        self.api.follow(self.watch)
        self.transport = Transport(self.api)
        self.counted: list[None] = []
        self.told: list[tuple[str, str]] = []
        self.double_allocations = DoubleAllocations(
            count=lambda: self.counted.append(None), tell=lambda pod, note: self.told.append((pod.name, note.reason))
        )
        self.binder = self.binder_by()

    def binder_by(self, **more: Any) -> Binder:
        """A binder over the same API server and state."""
        now, double_allocations = lambda: self.now, self.double_allocations
        return binder_over(self.transport, self.state, now=now, double_allocations=double_allocations, **more)

    async def bind(self, name: str = "p", node_name: str = "n", **more: Any) -> None:
        await self.binder.bind(ObjectKey("ns", name), more.pop("uid", f"uid-{name}"), node_name, **more)

    def run(self, *binds: Coroutine[Any, Any, None]) -> list[str]:
        """Run calls at the same time; their errors, empty for those that succeed."""

        async def answer(bind: Coroutine[Any, Any, None]) -> str:
            try:
                await bind
            except BindError as error:
                return str(error)
            return ""

        async def all_of_them() -> list[str]:
            return await asyncio.gather(*map(answer, binds))

        return virtualtime.run(all_of_them())

    def get(self, name: str) -> RawObject:
        return virtualtime.run(self.api.get(CLAIMS, ObjectKey("ns", name)))

    def devices(self, name: str) -> list[str]:
        return devices_of(self.get(name))

    def users(self, name: str) -> list[str]:
        return [consumer["name"] for consumer in self.get(name).get("status", {}).get("reservedFor", [])]

    def node_of(self, name: str) -> str | None:
        found: RawObject = virtualtime.run(self.api.get(PODS, ObjectKey("ns", name)))
        bound: str | None = found["spec"].get("nodeName")
        return bound

    @property
    def held(self) -> set[str]:
        return held(self.state)


def action(what: Callable[[], Any]) -> Fault:
    """Something that happens just before a call arrives."""

    async def before() -> None:
        result = what()
        if asyncio.iscoroutine(result):
            await result

    return Fault(before=before)
