"""Pods of lower priority give their devices to a pod that lacks nothing else, on a real control plane.

At the end of each test, the audit finds nothing, no pod has lost a claim, and no victim was evicted in vain.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import BUDGETS, CLAIMS, CLASSES, PODS
from tests.kit.controlplane.aftermath import check_preempted
from tests.kit.controlplane.client import PRIORITIES, Client
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name, held, rejection
from tests.kit.controlplane.service import Extender
from tests.kit.objects.manifests import claim, is_bound, pod, priority_class, request, requests
from tests.kit.objects.parts import api_object
from tests.kit.waiting import answers_during

GPU: list[RawObject] = [{"name": "gpu-0"}]
AT_ONCE = {"terminationGracePeriodSeconds": 0}
HOST = "kubernetes.io/hostname"
NODES = ("site-0", "site-1", "site-2")
SECONDS = 5.0
"""Within which a pod has the device of a pod that goes at once."""


@pytest.fixture(autouse=True)
async def ended(client: Client, namespace: str, gpu: Driver, site: Extender) -> AsyncIterator[None]:
    assert gpu.name, "the devices are there until the end"
    yield
    await check_preempted(client, namespace, site)


async def start(client: Client, namespace: str, name: str, driver: Driver, *claims: str, **spec: Any) -> ObjectKey:
    """A pod that uses claims, by default one of its own with one device, and that terminates at once."""
    if not claims:
        await client.create(CLAIMS, claim(namespace, name, requests(request("gpu", driver.name))))
    used = [by_name(each) for each in claims or (name,)]
    made = pod(namespace, name, claims=used, **{**AT_ONCE, **spec})
    made["metadata"]["labels"] = {"app": name}
    await client.create(PODS, made)
    return ObjectKey(namespace, name)


async def run(client: Client, namespace: str, name: str, driver: Driver, *claims: str, **spec: Any) -> str:
    """Start a pod; returns its node."""
    return await bound(client, await start(client, namespace, name, driver, *claims, **spec))


async def names(client: Client, namespace: str) -> list[str]:
    return sorted(each["metadata"]["name"] for each in (await client.list(PODS, namespace)).items)


def is_nominated(found: RawObject | None) -> bool:
    return bool(found and found["status"].get("nominatedNodeName"))


def is_terminating(found: RawObject | None) -> bool:
    return bool(found and found["metadata"].get("deletionTimestamp"))


async def bound_soon(client: Client, key: ObjectKey) -> str:
    found = await client.wait_for(PODS, key, is_bound, within=SECONDS)
    assert found
    node: str = found["spec"]["nodeName"]
    return node


async def test_a_pod_gets_the_device_of_the_one_right_victim(
    client: Client, namespace: str, gpu: Driver, important: str
) -> None:
    for node in NODES:
        await gpu.publish(node, GPU)
    where = await run(client, namespace, "low", gpu)
    for name in ("boss", "boss-2"):
        await run(client, namespace, name, gpu, priorityClassName=important)
    wanted = await start(client, namespace, "wanted", gpu, priorityClassName=important)
    assert await bound_soon(client, wanted) == where
    assert await names(client, namespace) == ["boss", "boss-2", "wanted"]


async def test_of_two_holders_on_a_node_one_goes_if_one_device_is_asked(
    client: Client, namespace: str, gpu: Driver, important: str
) -> None:
    await gpu.publish("site-0", [{"name": "gpu-0"}, {"name": "gpu-1"}])
    for name in ("one", "two"):
        await run(client, namespace, name, gpu)
    await bound_soon(client, await start(client, namespace, "wanted", gpu, priorityClassName=important))
    assert len(await names(client, namespace)) == 2


async def test_both_holders_on_a_node_go_if_both_devices_are_asked(
    client: Client, namespace: str, gpu: Driver, important: str
) -> None:
    await gpu.publish("site-0", [{"name": "gpu-0"}, {"name": "gpu-1"}])
    for name in ("one", "two"):
        await run(client, namespace, name, gpu)
    await client.create(CLAIMS, claim(namespace, "both", requests(request("gpu", gpu.name, count=2))))
    await bound_soon(client, await start(client, namespace, "wanted", gpu, "both", priorityClassName=important))
    assert await names(client, namespace) == ["wanted"]


async def test_a_partition_is_freed_whose_siblings_use_up_the_memory(
    client: Client, namespace: str, gpu: Driver, important: str
) -> None:
    parts = [
        {"name": f"part-{n}", "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": "1Gi"}}}]}
        for n in range(3)
    ]
    counters = [{"name": "gpu", "counters": {"memory": {"value": "1Gi"}}}]
    await gpu.publish("site-0", part=1, of=2, sharedCounters=counters)
    await gpu.publish("site-0", parts, part=2, of=2)
    await run(client, namespace, "low", gpu)
    await bound_soon(client, await start(client, namespace, "wanted", gpu, priorityClassName=important))
    assert await names(client, namespace) == ["wanted"]


async def test_what_neither_a_victim_holds_nor_is_kept_goes_to_others_while_the_victim_terminates(
    client: Client, namespace: str, gpu: Driver, important: str
) -> None:
    """The device has 80Gi: the victim holds 60Gi until it is gone, 40Gi are kept, and 20Gi are for anybody."""
    device = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
    await gpu.publish("site-0", [device])

    async def starts(name: str, memory: str, **spec: Any) -> ObjectKey:
        share = request("gpu", gpu.name, capacity={"requests": {"memory": memory}})
        await client.create(CLAIMS, claim(namespace, name, requests(share)))
        return await start(client, namespace, name, gpu, name, **spec)

    victim = await starts("victim", "60Gi", terminationGracePeriodSeconds=60)
    await bound(client, victim)
    wanted = await starts("wanted", "40Gi", priorityClassName=important)
    await client.wait_for(PODS, victim, is_terminating, within=SECONDS)
    await bound_soon(client, await starts("small", "20Gi"))
    assert not is_bound(await client.get(PODS, wanted))
    await client.delete(PODS, victim)
    await bound_soon(client, wanted)


async def test_all_pods_of_a_shared_claim_go(client: Client, namespace: str, gpu: Driver, important: str) -> None:
    await gpu.publish("site-0", GPU)
    await client.create(CLAIMS, claim(namespace, "shared", requests(request("gpu", gpu.name))))
    for name in ("one", "two"):
        await run(client, namespace, name, gpu, "shared")
    wanted = await start(client, namespace, "wanted", gpu, priorityClassName=important)
    await bound_soon(client, wanted)
    assert await names(client, namespace) == ["wanted"]
    assert held(await client.get(CLAIMS, wanted)) == [("site-0", "gpu-0")]


async def test_a_pod_within_its_budget_goes_first(client: Client, namespace: str, gpu: Driver, important: str) -> None:
    for node in NODES[:2]:
        await gpu.publish(node, GPU)
    for name in ("kept", "free"):
        await run(client, namespace, name, gpu)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    budget = api_object("PodDisruptionBudget", "kept", namespace=namespace, apiVersion="policy/v1", spec=spec)
    made = await client.create(BUDGETS, budget)
    await client.update_status(BUDGETS, {**made, "status": {"disruptionsAllowed": 0, "currentHealthy": 1,
        "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1}})  # fmt: skip
    await bound_soon(client, await start(client, namespace, "wanted", gpu, priorityClassName=important))
    assert await names(client, namespace) == ["kept", "wanted"]


async def test_pods_that_never_preempt_and_pods_of_equal_priority_evict_nobody(
    client: Client, namespace: str, gpu: Driver
) -> None:
    patient = f"{namespace}-patient"
    await client.create(PRIORITIES, {**priority_class(patient, 1000), "preemptionPolicy": "Never"})
    await gpu.publish("site-0", GPU)
    await run(client, namespace, "low", gpu)
    for name, spec in (("never", {"priorityClassName": patient}), ("equal", {})):
        await rejection(client, await start(client, namespace, name, gpu, **spec))
    there = await answers_during(lambda: names(client, namespace), seconds=2)
    await client.delete(PRIORITIES, ObjectKey("", patient))
    assert there == [["equal", "low", "never"]], "a preemption would have begun by now"


async def test_a_pod_with_an_extended_resource_gets_the_device_of_another(
    client: Client, namespace: str, gpu: Driver, important: str
) -> None:
    resource = f"{namespace}.example.com/gpu"
    await client.patch(CLASSES, ObjectKey("", gpu.name), {"spec": {"extendedResourceName": resource}})
    await gpu.publish("site-0", GPU)
    await run(client, namespace, "low", gpu)
    wanted = pod(namespace, "wanted", priorityClassName=important)
    wanted["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}}
    await client.create(PODS, wanted)
    await bound_soon(client, ObjectKey(namespace, "wanted"))
    assert await names(client, namespace) == ["wanted"]


async def test_the_victim_may_run_on_another_node_if_the_network_attaches_the_device(
    client: Client, namespace: str, gpu: Driver, important: str
) -> None:
    await gpu.publish("network", GPU, allNodes=True)
    await run(client, namespace, "low", gpu, nodeSelector={HOST: "site-2"})
    wanted = await start(client, namespace, "wanted", gpu, priorityClassName=important, nodeSelector={HOST: "site-0"})
    assert await bound_soon(client, wanted) == "site-0"
    assert await names(client, namespace) == ["wanted"]


async def test_the_device_of_a_slow_victim_is_kept_for_the_pod(
    client: Client, namespace: str, gpu: Driver, important: str
) -> None:
    await gpu.publish("site-0", GPU)
    slow = ObjectKey(namespace, "slow")
    await run(client, namespace, "slow", gpu, terminationGracePeriodSeconds=20)
    wanted = await start(client, namespace, "wanted", gpu, priorityClassName=important)
    dying = await client.wait_for(PODS, slow, is_terminating)
    assert dying
    assert dying["metadata"]["deletionGracePeriodSeconds"] == 20
    assert "DisruptionTarget" in [each["type"] for each in dying["status"]["conditions"]]
    greedy = await start(client, namespace, "greedy", gpu, priorityClassName=important)
    assert await rejection(client, greedy)
    await client.delete(PODS, slow)
    assert await bound_soon(client, wanted) == "site-0"
    assert "no free device" in await rejection(client, greedy)


async def test_a_pod_waits_for_its_victim_and_leaves_a_device_that_becomes_free_to_another_pod(
    client: Client, namespace: str, gpu: Driver, important: str
) -> None:
    for node in NODES[:2]:
        await gpu.publish(node, GPU)
    slow, boss = ObjectKey(namespace, "slow"), ObjectKey(namespace, "boss")
    where = await run(client, namespace, "slow", gpu, terminationGracePeriodSeconds=20)
    free = await run(client, namespace, "boss", gpu, priorityClassName=important)
    wanted = await start(client, namespace, "wanted", gpu, priorityClassName=important)
    assert await client.wait_for(PODS, slow, is_terminating)
    assert await rejection(client, wanted, about=f"kept for the pod on node {where}")
    await client.delete(PODS, boss)
    other = await start(client, namespace, "other", gpu, priorityClassName=important)
    assert await bound_soon(client, other) == free
    assert not is_bound(await client.get(PODS, wanted))
    await client.delete(PODS, slow)
    assert await bound_soon(client, wanted) == where


async def test_each_of_two_pods_gets_the_device_that_is_freed_for_it_whichever_is_free_first(
    client: Client, namespace: str, gpu: Driver, important: str
) -> None:
    await gpu.publish("site-0", [{"name": f"gpu-{n}", "attributes": {"large": {"bool": not n}}} for n in range(2)])
    slow = {"terminationGracePeriodSeconds": 20}
    holders = [await start(client, namespace, f"low-{number}", gpu, **slow) for number in range(2)]
    for each in holders:
        await bound(client, each)
    by_device = {held(await client.get(CLAIMS, each))[0][1]: each for each in holders}
    selectors = [{"cel": {"expression": f'device.attributes["{gpu.name}"].large'}}]
    await client.create(CLAIMS, claim(namespace, "large", requests(request("gpu", gpu.name, selectors=selectors))))
    wanted = {}
    for device, name, claims in (("gpu-0", "large", ("large",)), ("gpu-1", "any", ())):
        wanted[device] = await start(client, namespace, name, gpu, *claims, priorityClassName=important)
        assert await client.wait_for(PODS, wanted[device], is_nominated)
        assert await client.wait_for(PODS, by_device[device], is_terminating)
    await client.delete(PODS, by_device["gpu-0"])
    await bound_soon(client, wanted["gpu-0"])
    assert not is_bound(await client.get(PODS, wanted["gpu-1"]))
    await client.delete(PODS, by_device["gpu-1"])
    await bound_soon(client, wanted["gpu-1"])
    assert [held(await client.get(CLAIMS, each)) for each in wanted.values()] == [[("site-0", name)] for name in wanted]
