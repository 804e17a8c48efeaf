"""A pool of many devices that changes all the time, on one of the nodes."""

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.large_pool import LargePool
from tests.kit.controlplane.scenario import bound, by_name, findings
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import claim, pod, request, requests

pytestmark = pytest.mark.usefixtures("site")

LARGE, SMALL = "site-0", ("site-1", "site-2")
SOON = 60.0


async def pods_of(client: Client, namespace: str, driver: str, selector: str) -> list[ObjectKey]:
    """Six pods that prefer the node with the large pool, with a claim for one device each."""
    wanted = request("gpu", driver, selectors=[{"cel": {"expression": selector.format(driver)}}])
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [LARGE]}]}
    prefers = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}
    names = [f"p-{number}" for number in range(6)]
    for name in names:
        await client.create(CLAIMS, claim(namespace, name, requests(wanted)))
        await client.create(PODS, pod(namespace, name, claims=[by_name(name)], affinity={"nodeAffinity": prefers}))
    return [ObjectKey(namespace, name) for name in names]


async def test_pods_get_devices_of_a_large_pool_that_changes_all_the_time(
    client: Client, namespace: str, gpu: Driver, verbs: Verbs
) -> None:
    async with LargePool(client, gpu.name, LARGE).changing(verbs, 0.3):
        pods = await pods_of(client, namespace, gpu.name, "device.attributes['{}'].health >= 0")
        assert {await bound(client, each, within=SOON) for each in pods} == {LARGE}
        assert await findings(client, namespace) == []


async def test_a_large_pool_that_no_bind_can_search_before_its_next_change_keeps_no_pod_from_other_nodes(
    client: Client, namespace: str, gpu: Driver, verbs: Verbs
) -> None:
    health = {"attributes": {"health": {"int": 0}}}
    for name in SMALL:
        await gpu.publish(name, [{"name": f"gpu-{place}", **health} for place in range(3)])
    costly = "[1, 2, 3].all(n, device.attributes['{}'].health + n > 0)"
    async with LargePool(client, gpu.name, LARGE).changing(verbs, 0.05):
        pods = await pods_of(client, namespace, gpu.name, costly)
        assert {await bound(client, each, within=SOON) for each in pods} <= {LARGE, *SMALL}
        assert await findings(client, namespace) == []
