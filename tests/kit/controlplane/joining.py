"""Nodes that an autoscaler makes are Node objects without a kubelet: they become ready here."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import NODES
from tests.kit.controlplane.client import Client

_NOT_READY: Final = "node.kubernetes.io/not-ready"


@asynccontextmanager
async def kubelets(client: Client, label: str, join: Callable[[str], Awaitable[None]]) -> AsyncIterator[None]:
    """Within the context, new nodes become ready, as by their kubelets; ``join`` is called for each before.

    Args:
        client: an administrator.
        label: that these nodes have.
        join: gets the name of a node.
    """

    # Before the task begins: a node that is made at once is a new one.
    listing = await client.list(NODES)
    seen = {each["metadata"]["name"] for each in listing.items}

    async def follow() -> None:
        async for event in client.watch(NODES, ObjectKey("", ""), since=listing.revision):
            node, name = event.object, event.object["metadata"].get("name", "")
            if event.type == "ADDED" and name not in seen and label in node["metadata"].get("labels", {}):
                seen.add(name)
                await join(name)
                await _make_ready(client, ObjectKey("", name))

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        following.cancel()


async def _make_ready(client: Client, key: ObjectKey) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    await client.patch_status(NODES, key, {"status": {"conditions": [ready]}})
    # Autoscalers take their own taints off. The controller that would take this one off does not run here.
    while True:
        node = await client.get(NODES, key)
        taints = [each for each in node["spec"].get("taints", []) if each["key"] != _NOT_READY]
        try:
            revision = node["metadata"]["resourceVersion"]
            await client.patch(NODES, key, {"metadata": {"resourceVersion": revision}, "spec": {"taints": taints}})
        except ApiError as error:
            if not error.is_conflict:
                raise
        else:
            return
