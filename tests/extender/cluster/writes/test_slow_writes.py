"""Writes that are slow in admission: they delay the objects that they are about, and no other tenant."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from extender.cluster.writes.pods import DEVICES_CHANGED
from extender.config.settings import Settings
from extender.faces.assembly import Surroundings, make_extender
from extender.framework.background_runner import PAUSE_SECONDS, TURN_SECONDS
from extender.framework.service import Service
from extender.framework.wire import BindArgs, FilterArgs
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from extender.tools.offload import at_once
from tests.extender.plugins.preemption.scenes import runs
from tests.kit import virtualtime
from tests.kit.clusters import GPU, NOW, Cluster, Object, claim, local_slice, node, pod, solver
from tests.kit.servers.memory import Transport
from tests.kit.virtualtime import in_virtual_time

SLOW, QUICK = "slow", "quick"
WEBHOOK_SECONDS: Final = 9.0
"""Less than the time that we wait for the answer to a write."""


def now() -> float:
    return asyncio.get_running_loop().time()


def of(namespace: str, *objects: Object) -> list[Object]:
    """Objects of a namespace, with uids of their own."""
    found = []
    for each in objects:
        metadata = {**each["metadata"], "namespace": namespace, "uid": f"{namespace}-{each['metadata']['uid']}"}
        status = {**each.get("status", {})}
        if users := status.get("reservedFor"):
            status["reservedFor"] = [{**user, "uid": f"{namespace}-{user['uid']}"} for user in users]
        found.append({**each, "metadata": metadata, "status": status})
    return found


def waiting(namespace: str, *names: str, **fields: Any) -> list[Object]:
    """Pods of a namespace, with a claim each."""
    return [each for name in names for each in of(namespace, pod(name, f"{name}-c", **fields), claim(f"{name}-c"))]


class Scene:
    """A service whose API server is slow to admit the writes to one namespace."""

    def __init__(self, *objects: Object) -> None:
        self.cluster = Cluster.of(GPU, *objects)
        self.transport = Transport(self.cluster.api, admission={SLOW: WEBHOOK_SECONDS})
        by = replace(solver(), clock=now)
        around = Surroundings(now=lambda: NOW)
        state, settings = self.cluster.state, Settings()
        self.service: Service = make_extender(
            self.transport, state, by, settings, around=around, off_loop=at_once
        ).service

    async def filter(self, namespace: str, name: str, *names: str) -> bool:
        """Whether filter leaves a pod one of some nodes, by default of all."""
        snapshot = self.cluster.state.snapshot
        asked = snapshot.pods[ObjectKey(namespace, name)]
        return bool((await self.service.filter(FilterArgs(asked, list(names or sorted(snapshot.nodes))))).passed)

    async def took(self, holds: Callable[[], Awaitable[bool]], within: float = 60.0) -> float:
        """The time until something holds, while the background tasks have their turns."""
        began = now()
        while not await holds():
            assert now() < began + within, "it never holds"
            await self.service.background.tick(TURN_SECONDS)
            await virtualtime.elapse(PAUSE_SECONDS)
        return now() - began

    async def end(self) -> None:
        """Let what was begun come to its end."""
        await self.service.finish(60.0)

    async def woken(self, namespace: str, *names: str) -> bool:
        """Whether all of these pods were woken."""
        raw = [await self.cluster.api.get(PODS, ObjectKey(namespace, name)) for name in names]
        return all(
            any(each["type"] == DEVICES_CHANGED for each in one.get("status", {}).get("conditions", ())) for one in raw
        )

    async def nominated(self, name: str) -> bool:
        """Whether devices are kept for a pod, so that others are about to be evicted."""
        return bool(self.cluster.state.snapshot.pods[ObjectKey(QUICK, name)].kept.node)

    async def evicted(self, namespace: str, name: str) -> bool:
        """Whether a pod is gone, or terminates."""
        pod_now = self.cluster.state.snapshot.pods.get(ObjectKey(namespace, name))
        return pod_now is None or pod_now.deleting


@in_virtual_time
async def test_pod_is_woken_although_the_writes_that_wake_others_are_slow() -> None:
    names = [f"s{number}" for number in range(30)]
    scene = Scene(node("a"), *waiting(SLOW, *names), *waiting(QUICK, "q"))
    for name in names:
        assert not await scene.filter(SLOW, name)
    assert not await scene.filter(QUICK, "q")
    scene.cluster.load(local_slice("a", 40))
    assert await scene.took(lambda: scene.woken(QUICK, "q")) < 2.0
    assert not await scene.woken(SLOW, names[0])
    assert await scene.took(lambda: scene.woken(SLOW, *names)) < 4 * WEBHOOK_SECONDS
    await scene.end()


@in_virtual_time
async def test_pod_that_waits_later_is_woken_while_slow_writes_go_on() -> None:
    names = [f"s{number}" for number in range(30)]
    scene = Scene(node("a"), node("b"), *waiting(SLOW, *names), *waiting(QUICK, "q"))
    for name in names:
        await scene.filter(SLOW, name, "a")
    scene.cluster.load(local_slice("a", 40))
    await scene.took(lambda: scene.woken(SLOW, names[0]))
    assert not await scene.filter(QUICK, "q", "b")
    scene.cluster.load(local_slice("b"))
    assert await scene.took(lambda: scene.woken(QUICK, "q")) < 2.0
    assert not await scene.woken(SLOW, *names)
    await scene.end()


@in_virtual_time
async def test_filter_does_not_wait_for_an_api_server_that_is_slow() -> None:
    scene = Scene(node("a"), local_slice("a", 40), *waiting(SLOW, "p"), *waiting(QUICK, "q"))
    bind = asyncio.create_task(scene.service.bind(BindArgs("p", SLOW, f"{SLOW}-uid-p", "a")))
    await virtualtime.elapse(0.1)
    began = now()
    assert await scene.filter(QUICK, "q")
    assert now() == began
    assert not bind.done()
    await scene.end()
    await asyncio.gather(bind, return_exceptions=True)


@in_virtual_time
async def test_pod_is_bound_while_binds_of_others_are_slow() -> None:
    names = [f"s{number}" for number in range(30)]
    scene = Scene(node("a"), local_slice("a", 40), *waiting(SLOW, *names), *waiting(QUICK, "q"))
    slow = [asyncio.create_task(scene.service.bind(BindArgs(name, SLOW, f"{SLOW}-uid-{name}", "a"))) for name in names]
    began = now()
    await virtualtime.elapse(0.1)
    await scene.service.bind(BindArgs("q", QUICK, f"{QUICK}-uid-q", "a"))
    assert now() - began < 1.0
    assert not any(each.done() for each in slow)
    await scene.end()
    await asyncio.gather(*slow, return_exceptions=True)


@in_virtual_time
async def test_victims_that_are_deleted_slowly_delay_no_other_preemption() -> None:
    running = [
        *of(SLOW, *runs("v", "a/gpu-0", on="a")),
        *of(QUICK, *runs("w", "b/gpu-0", on="b")),
    ]
    nodes = [*map(node, "ab"), *map(local_slice, "ab")]
    wanting = waiting(QUICK, "x", "y", priority=1000)
    scene = Scene(*nodes, *running, *wanting)
    assert not await scene.filter(QUICK, "x", "a")
    await scene.took(lambda: scene.nominated("x"))
    assert not await scene.filter(QUICK, "y", "b")
    assert await scene.took(lambda: scene.evicted(QUICK, "w")) < 4.0
    assert not await scene.evicted(SLOW, "v")
    await scene.took(lambda: scene.evicted(SLOW, "v"))
    await scene.end()
