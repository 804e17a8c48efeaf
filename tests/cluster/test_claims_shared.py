"""Claims that more than one pod or container uses."""

import asyncio

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from tests.cluster.claim_rules import MAX_CONSUMERS
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name, findings, held, rejection
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import claim, consumer, pod, request, requests

pytestmark = pytest.mark.usefixtures("site")

PODS_TOGETHER = 100
"""Of one claim, bound as fast as the scheduler goes: their writes to the claim are in each other's way."""


@pytest.fixture
async def shared(client: Client, namespace: str, gpu: Driver) -> ObjectKey:
    """A claim for one device; each of two nodes has one."""
    for node in ("site-0", "site-2"):
        await gpu.publish(node, [{"name": "gpu-0"}])
    return key_of(await client.create(CLAIMS, claim(namespace, "shared", requests(request("gpu", gpu.name)))))


async def consumers(client: Client, key: ObjectKey) -> list[str]:
    found = await client.get(CLAIMS, key)
    return sorted(each["name"] for each in found["status"]["reservedFor"])


async def test_many_pods_share_a_claim(client: Client, namespace: str, shared: ObjectKey) -> None:
    names = sorted(f"pod-{number}" for number in range(PODS_TOGETHER))
    for name in names:
        await client.create(PODS, pod(namespace, name, claims=[by_name(shared.name)]))
    nodes = await asyncio.gather(*(bound(client, ObjectKey(namespace, name)) for name in names))
    assert await consumers(client, shared) == names
    assert [pool for pool, _ in held(await client.get(CLAIMS, shared))] == [*set(nodes)], "all where the device is"
    assert await findings(client, namespace) == []


async def test_the_257th_consumer_waits_quietly(
    client: Client, namespace: str, shared: ObjectKey, verbs: Verbs
) -> None:
    await client.create(PODS, pod(namespace, "first", claims=[by_name(shared.name)]))
    node = await bound(client, ObjectKey(namespace, "first"))
    others = [consumer(f"job-{number}") for number in range(MAX_CONSUMERS - 1)]
    await reserve(client, shared, others)
    await verbs.wait_in_step(client)

    late = await client.create(PODS, pod(namespace, "late", claims=[by_name(shared.name)]))
    reason = await rejection(client, key_of(late))
    assert f"3 claim shared is reserved for {MAX_CONSUMERS} pods already" in reason
    rejected = await client.get(PODS, key_of(late))
    before = await verbs.answered("filter")
    await client.patch(CLAIMS, shared, {"metadata": {"labels": {"wakes": "pods"}}})
    await verbs.wait_answered("filter", before + 1)
    assert await client.get(PODS, key_of(late)) == rejected, "the same reason as before, so nothing is written"

    await reserve(client, shared, others[1:])
    assert await bound(client, key_of(late)) == node
    assert len(await consumers(client, shared)) == MAX_CONSUMERS
    assert await findings(client, namespace) == []
    await reserve(client, shared, [])  # only who has reserved a claim for a job would release it


async def reserve(client: Client, key: ObjectKey, others: list[RawObject]) -> None:
    """Make the consumers that are no pods these."""
    found = await client.get(CLAIMS, key)
    pods = [each for each in found["status"]["reservedFor"] if each["resource"] == "pods"]
    await client.update_status(CLAIMS, found | {"status": found["status"] | {"reservedFor": [*pods, *others]}})


async def test_a_claim_that_only_an_init_container_uses(client: Client, namespace: str, shared: ObjectKey) -> None:
    preparing = {"name": "prepare", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    working = {"name": "main", "image": "none"}
    made = pod(namespace, "pod", claims=[by_name(shared.name)], initContainers=[preparing], containers=[working])
    await client.create(PODS, made)
    node = await bound(client, ObjectKey(namespace, "pod"))
    assert held(await client.get(CLAIMS, shared)) == [(node, "gpu-0")]
    assert await consumers(client, shared) == ["pod"]
    assert await findings(client, namespace) == []
