"""SIGTERM: no new calls, but what was begun is finished."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import orjson
from httpx import AsyncClient, ConnectError, ReadError

from extender.cluster.cluster_state import ClusterState
from extender.config.sources import load
from extender.faces.serving import run as serving
from extender.faces.serving.listeners import Port, Ports
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import RESOURCES, Resource
from extender.lab.api import MemoryApi
from extender.planning.templates import read_catalog
from tests.kit.clusters import GPU, NOW, binding, claim, local_slice, node, pod

OBJECTS = (
    GPU,
    node("a"),
    local_slice("a"),
    claim("c"),
    pod("p", "c"),
)
BINDING = binding("p", "a")


class SlowApi(MemoryApi):
    """Writes to a claim's status and Bindings wait at a gate.

    Attributes:
        reached: somebody has come to the gate.
        gate: opens it.
        passed: what was done after that.
    """

    def __init__(self) -> None:
        ids = count()
        super().__init__(now=lambda: NOW, new_uid=lambda: str(next(ids)))
        self.reached, self.gate = asyncio.Event(), asyncio.Event()
        self.passed: list[str] = []

    async def update_status(self, resource: Resource, obj: RawObject) -> RawObject:
        self.reached.set()
        await self.gate.wait()
        done = await super().update_status(resource, obj)
        self.passed.append("claim")
        return done

    async def bind_pod(self, key: ObjectKey, node: str, *, uid: str, resource_version: str = "") -> None:
        await super().bind_pod(key, node, uid=uid, resource_version=resource_version)
        self.passed.append("binding")


@asynccontextmanager
async def serving_over(api: SlowApi, deadline: float) -> AsyncIterator[tuple[AsyncClient, asyncio.Task[None]]]:
    """A service in this process, and the task that it is."""
    state = ClusterState()
    for each in OBJECTS:
        api.load(RESOURCES[each["kind"]], each)
    api.follow(state)

    @asynccontextmanager
    async def opening() -> AsyncIterator[serving.ServedCluster]:
        yield serving.ServedCluster(api, state)
        api.passed.append("closed")

    settings = load(f"scheduling: {{deadlineSeconds: {deadline}}}")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        task = asyncio.create_task(serving.serve(opening(), settings, read_catalog(settings), Ports(Port(listener))))
        async with AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            async with asyncio.timeout(30):
                await until(client, ready=True)
            yield client, task


async def is_ready(client: AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).status_code == 200
    except (ConnectError, ReadError):  # refused, or reset while it closes
        return False


async def until(client: AsyncClient, *, ready: bool) -> None:
    while await is_ready(client) is not ready:
        pass


async def bind(client: AsyncClient) -> Any:
    return (await client.post("/bind", content=orjson.dumps(BINDING))).json()


async def test_a_bind_that_runs_is_finished_and_answered() -> None:
    api = SlowApi()
    async with serving_over(api, deadline=20) as (client, task), asyncio.timeout(30):
        call = asyncio.create_task(bind(client))
        await api.reached.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        async with AsyncClient(base_url=client.base_url) as other:
            await until(other, ready=False)
        assert not task.done()
        api.gate.set()
        assert await call == {}
        await task
    assert api.passed == ["claim", "binding", "closed"]


async def test_a_bind_whose_caller_has_given_up_is_finished() -> None:
    """It posts no Binding any more, but what it has written is brought to an end."""
    api = SlowApi()
    async with serving_over(api, deadline=0.1) as (client, task), asyncio.timeout(30):
        assert "Error" in await bind(client)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(client, ready=False)
        assert not task.done()
        api.gate.set()
        await task
    assert api.passed[-1] == "closed"
    assert "claim" in api.passed
    assert "binding" not in api.passed
