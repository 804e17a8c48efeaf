"""One namespace with much that waits delays no other namespace, on a real control plane."""

import asyncio
import time
from collections.abc import Iterable

import pytest

from extender.cluster.writes.pods import DEVICES_CHANGED
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS, SLICES, Resource
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name, has_condition, rejection
from tests.kit.objects.manifests import claim, pod, request, requests, resource_slice

pytestmark = pytest.mark.usefixtures("site")

DIGITS = "[0,1,2,3,4,5,6,7,8,9]"
"""Selectors over all tuples of digits take about a second each."""

HOPELESS = 1100
"""More pods than all namespaces together have places for in the memory of rejections."""

WAKE_SECONDS = 1.0
"""From the news of a device until the service has woken the pod. How long its backoff is then, the test does not know:
each claim that is deleted anywhere lets the scheduler try all rejected pods again."""


def slow(number: int) -> str:
    """A selector that takes long and selects nothing; each one is another text."""
    return (
        f"{DIGITS}.all(a, {DIGITS}.all(b, {DIGITS}.all(c, {DIGITS}.all(d, [0,1,2,3,4].all(e, a + b + c + d + e >= 0 &&"
        f" device.driver != 'x{number}'))))) && false"
    )


def immediate(namespace: str, name: str, driver: str, *, priority: str = "0", selector: str = "true") -> RawObject:
    selectors = [{"cel": {"expression": selector}}]
    found = claim(namespace, name, requests(request("gpu", driver, selectors=selectors)))
    annotations = {"dra-extender.dev/allocation-mode": "Immediate", "dra-extender.dev/priority": priority}
    return found | {"metadata": found["metadata"] | {"annotations": annotations}}


async def made(client: Client, resource: Resource, objects: Iterable[RawObject]) -> None:
    """Make objects, twenty at a time."""
    limit = asyncio.Semaphore(20)

    async def one(obj: RawObject) -> None:
        async with limit:
            await client.create(resource, obj)

    await asyncio.gather(*map(one, objects))


async def test_slow_claims_of_the_highest_priority_delay_no_claim_of_another_namespace(
    client: Client, namespace: str, neighbor: str, gpu: Driver
) -> None:
    await gpu.publish("site-0", [{"name": "gpu-0"}, {"name": "gpu-1"}])
    hostile = [immediate(namespace, f"c{n}", gpu.name, priority="2147483647", selector=slow(n)) for n in range(200)]
    await made(client, CLAIMS, hostile)
    seconds = []
    for number in range(2):
        key = ObjectKey(neighbor, f"mine-{number}")
        began = time.monotonic()
        await client.create(CLAIMS, immediate(neighbor, key.name, gpu.name))
        await client.wait_for(CLAIMS, key, lambda found: bool(found and found.get("status", {}).get("allocation")))
        seconds.append(time.monotonic() - began)
    assert min(seconds) < 1.0, seconds
    assert max(seconds) < 4.0, seconds


async def test_hopeless_pods_of_one_namespace_leave_the_pods_of_another_awake(
    client: Client, namespace: str, neighbor: str, gpu: Driver
) -> None:
    key = ObjectKey(neighbor, "mine")
    await client.create(CLAIMS, claim(neighbor, "mine", requests(request("gpu", gpu.name))))
    await client.create(PODS, pod(neighbor, "mine", claims=[by_name("mine")]))
    await rejection(client, key, about="no device for request gpu")
    await client.create(CLAIMS, claim(namespace, "c", requests(request("gpu", gpu.name, count=30))))
    names = [f"hopeless-{number}" for number in range(HOPELESS)]
    await made(client, PODS, [pod(namespace, name, claims=[by_name("c")]) for name in names])
    for name in names:
        await rejection(client, ObjectKey(namespace, name))
    began = time.monotonic()
    name = f"{gpu.name}-late"  # the driver of the kit waits until all news of pods are known, and there are always more
    await client.create(SLICES, resource_slice(name, "site-0", [{"name": "gpu-0"}], driver=gpu.name))
    await client.wait_for(PODS, key, has_condition(DEVICES_CHANGED))
    seconds = time.monotonic() - began
    assert await bound(client, key) == "site-0"
    await client.delete(SLICES, ObjectKey("", name))
    assert seconds < WAKE_SECONDS
