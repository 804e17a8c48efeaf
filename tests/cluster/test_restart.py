"""A restart in a quiet cluster: the next process goes on for pods that wait, and that no event brings back."""

import time
from typing import Any

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.pair import Pair
from tests.kit.controlplane.proxy import Exchange
from tests.kit.controlplane.scenario import GPUS, NODE_NAMES, bound, by_name, rejection
from tests.kit.objects.manifests import DEVICE_CLASS, claim, pod, request, requests

pytestmark = pytest.mark.usefixtures("nodes")

READY_SECONDS = 5.0
"""From the time when the next process is ready to its first act for each pod."""

NUMBER = len(NODE_NAMES) * len(GPUS)


async def start(client: Client, namespace: str, name: str, **more: Any) -> ObjectKey:
    await client.create(CLAIMS, claim(namespace, name, requests(request("gpu", DEVICE_CLASS))))
    await client.create(PODS, pod(namespace, name, claims=[by_name(name)], terminationGracePeriodSeconds=0, **more))
    return ObjectKey(namespace, name)


async def test_victims_are_chosen_soon_after_a_restart(
    client: Client, namespace: str, ours: Pair, important: str
) -> None:
    """All pods of high priority were rejected, and the process ends before the first of them is nominated."""
    low = [await start(client, namespace, f"low-{number}") for number in range(NUMBER)]
    for key in low:
        await bound(client, key)
    names = [f"high-{number}" for number in range(NUMBER)]

    async def kill(_: Exchange) -> None:
        for name in names:
            await rejection(client, ObjectKey(namespace, name), about="no free device")
        ours.kill()

    rule = ours.proxy.on("PATCH", r".*/pods/[^/?]+/status.*", kill)
    high = [await start(client, namespace, name, priorityClassName=important) for name in names]
    await rule.followed()
    assert not [key for key in high if await is_nominated(client, key)]
    await ours.restart()
    began = time.monotonic()
    for key in high:
        await client.wait_for(PODS, key, has_nomination)
    assert time.monotonic() - began < READY_SECONDS
    for key in high:
        await bound(client, key)


def has_nomination(obj: RawObject | None) -> bool:
    """Whether a node is kept for a pod, or it has one already."""
    return obj is not None and bool(obj["status"].get("nominatedNodeName") or obj["spec"].get("nodeName"))


async def is_nominated(client: Client, key: ObjectKey) -> bool:
    return has_nomination(await client.get(PODS, key))
