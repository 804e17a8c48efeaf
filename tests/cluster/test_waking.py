"""Pods that were rejected are tried again when there are devices for them: soon, once, and no others."""

import time
from typing import Any

import pytest

from extender.cluster.writes.pods import DEVICES_CHANGED
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name, findings, has_condition, held, rejection
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import claim, is_bound, pod, request, requests
from tests.kit.waiting import answers_during, wait_for_answer

pytestmark = pytest.mark.usefixtures("site")

GPU: list[RawObject] = [{"name": "gpu-0"}]
WATCHED_SECONDS = 5.0
"""In which a scheduler that asks without end has asked a hundred times."""

WAKE_SECONDS = 1.0
"""From the news of a device until the service has woken the pod. Its backoff comes after that: the scheduler tries
rejected pods again whenever a claim is deleted anywhere, so nobody knows how long it is by then."""


async def run(client: Client, namespace: str, name: str, driver: Driver, **spec: Any) -> ObjectKey:
    """Make a claim for one device and a pod that uses it, both of this name."""
    await client.create(CLAIMS, claim(namespace, name, requests(request("gpu", driver.name))))
    await client.create(PODS, pod(namespace, name, claims=[by_name(name)], **spec))
    return ObjectKey(namespace, name)


async def test_a_pod_is_tried_again_as_soon_as_devices_appear(client: Client, namespace: str, gpu: Driver) -> None:
    """The scheduler does not look at slices: it would try the pod again after five minutes."""
    here = await run(client, namespace, "here", gpu)
    west = await run(client, namespace, "west", gpu, nodeSelector={"topology.kubernetes.io/zone": "west"})
    for key in (here, west):
        await rejection(client, key, about="no device for request gpu")
    await gpu.publish("site-0", GPU)
    published = time.monotonic()
    await client.wait_for(PODS, here, has_condition(DEVICES_CHANGED))
    assert time.monotonic() - published < WAKE_SECONDS
    assert await bound(client, here) == "site-0"
    assert not has_condition(DEVICES_CHANGED)(await client.get(PODS, west)), "its node has nothing new"

    await gpu.publish("site-2", GPU)
    assert await bound(client, west) == "site-2"
    assert await findings(client, namespace) == []


async def test_one_device_for_many_pods(client: Client, namespace: str, gpu: Driver) -> None:
    keys = [await run(client, namespace, f"pod-{number}", gpu) for number in range(4)]
    for key in keys:
        await rejection(client, key, about="no device for request gpu")
    await gpu.publish("site-1", GPU)
    await client.wait_for(CLAIMS, keys[0], lambda found: found and found.get("status", {}).get("allocation"))
    assert await bound(client, keys[0]) == "site-1"
    woken = [has_condition(DEVICES_CHANGED)(await client.get(PODS, key)) for key in keys]
    assert woken == [True, False, False, False]
    assert await findings(client, namespace) == []


async def test_a_freed_device_waits_for_the_pod_that_was_woken_for_it(
    client: Client, verbs: Verbs, namespace: str, gpu: Driver, important: str
) -> None:
    """The pod is in its backoff for 8 s. A pod of lower priority that comes meanwhile does not get the device."""
    at_once: dict[str, Any] = {"terminationGracePeriodSeconds": 0}
    await gpu.publish("site-0", GPU)
    user = await run(client, namespace, "user", gpu, priorityClassName=important, **at_once)
    assert await bound(client, user) == "site-0"
    vip = await run(client, namespace, "vip", gpu, priorityClassName=important, **at_once)
    await rejection(client, vip, about="no free device for request gpu")
    for step in range(3):
        await tried_again(client, verbs, vip, step)
    await client.delete(PODS, user)
    await client.wait_for(PODS, vip, has_condition(DEVICES_CHANGED))
    young = await run(client, namespace, "young", gpu, **at_once)
    await rejection(client, young)
    assert not is_bound(await client.get(PODS, vip)), "it is still in its backoff"
    assert await bound(client, vip) == "site-0"
    assert not (await client.get(PODS, young))["metadata"].get("deletionTimestamp")
    assert await findings(client, namespace) == []


async def tried_again(client: Client, verbs: Verbs, key: ObjectKey, step: int) -> None:
    """A pod that waits is changed, and its scheduler tries it again."""
    before = await verbs.answered("filter")
    raw = await client.get(PODS, key)
    raw["metadata"]["labels"] = {"step": str(step)}
    await client.update(PODS, raw)
    await wait_for_answer(lambda: verbs.answered("filter"), lambda now: now > before, "the pod is tried", within=15.0)


async def test_a_claim_that_is_in_the_way(client: Client, namespace: str, gpu: Driver) -> None:
    """It was allocated for a pod that is gone, on a node where this pod can't go, and nobody has it reserved."""
    await gpu.publish("site-0", GPU)
    await gpu.publish("site-2", GPU)
    made = await client.create(CLAIMS, claim(namespace, "left", requests(request("gpu", gpu.name))))
    await client.update_status(CLAIMS, made | {"status": {"allocation": _allocation("site-0", gpu)}})
    await client.create(
        PODS, pod(namespace, "pod", claims=[by_name("left")], nodeSelector={"kubernetes.io/hostname": "site-2"})
    )
    assert await bound(client, ObjectKey(namespace, "pod")) == "site-2"
    assert held(await client.get(CLAIMS, ObjectKey(namespace, "left"))) == [("site-2", "gpu-0")]
    assert await findings(client, namespace) == []


async def test_a_claim_that_another_pod_uses_stays_where_it_is(client: Client, namespace: str, gpu: Driver) -> None:
    await gpu.publish("site-0", GPU)
    await gpu.publish("site-2", GPU)
    user = await run(client, namespace, "shared", gpu, nodeSelector={"kubernetes.io/hostname": "site-0"})
    await bound(client, user)
    await client.create(
        PODS, pod(namespace, "late", claims=[by_name("shared")], nodeSelector={"kubernetes.io/hostname": "site-2"})
    )
    assert "claim shared is allocated for other nodes" in await rejection(client, ObjectKey(namespace, "late"))
    assert held(await client.get(CLAIMS, user)) == [("site-0", "gpu-0")]
    assert await findings(client, namespace) == []


async def test_nobody_is_asked_again_and_again(
    client: Client, verbs: Verbs, namespace: str, gpu: Driver, important: str
) -> None:
    """Pods of lower priority all around: a scheduler that believes that evicting them might help asks without end."""
    await gpu.publish("site-0", GPU)
    await bound(client, await run(client, namespace, "user", gpu, priorityClassName=important))
    for number in range(6):
        await client.create(PODS, pod(namespace, f"low-{number}"))
        await bound(client, ObjectKey(namespace, f"low-{number}"))
    before = await verbs.answered("filter")
    key = await run(client, namespace, "pod", gpu, priorityClassName=important)
    await rejection(client, key)
    counts = await answers_during(lambda: verbs.answered("filter"), seconds=WATCHED_SECONDS)
    assert counts[-1] - before <= 5


def _allocation(node: str, driver: Driver) -> RawObject:
    results = [{"request": "gpu", "driver": driver.name, "pool": node, "device": "gpu-0"}]
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]}}
