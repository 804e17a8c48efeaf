"""A selector at which the extender itself fails is its own pod's problem: others are woken, and it is explained."""

import httpx

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, PODS, SLICES
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.pair import Pair
from tests.kit.controlplane.scenario import GPUS, bound, by_name, findings, rejection
from tests.kit.objects.manifests import DEVICE_CLASS, claim, pod, request, requests, resource_slice

POISON = "null.major() == 1"
"""kube-apiserver admits it; it can't be evaluated."""


async def test_a_pod_with_poison_is_pending_when_the_extender_starts(
    client: Client, namespace: str, nodes: list[str], ours: Pair
) -> None:
    selectors = [{"cel": {"expression": POISON}}]
    sick, well = ObjectKey(namespace, "sick"), ObjectKey(namespace, "well")
    await client.create(CLAIMS, claim(*sick, requests(request("gpu", DEVICE_CLASS, selectors=selectors))))
    await client.create(CLAIMS, claim(*well, requests(request("gpu", DEVICE_CLASS, count=len(GPUS) + 1))))
    for key in (sick, well):
        await client.create(PODS, pod(*key, claims=[by_name(key.name)]))
    await rejection(client, sick, about="claim")
    await rejection(client, well, about="request gpu")

    ours.kill()
    await ours.restart()
    more = resource_slice("more", nodes[0], [{"name": "gpu-more"}])
    more["spec"]["pool"]["name"] = "more"
    await client.create(SLICES, more)
    assert await bound(client, well) == nodes[0]
    async with httpx.AsyncClient(base_url=ours.extender.url) as asking:
        explained = await asking.get(f"/explain/{sick.namespace}/{sick.name}", headers={"accept": "application/json"})
        livez = await asking.get("/livez")
    assert (explained.status_code, livez.status_code) == (200, 200)
    assert f"claim {namespace}/sick" in explained.json()["cause"]
    assert await findings(client, namespace) == []
    await client.delete(SLICES, ObjectKey("", "more"))
