"""Room is made for pods by evicting others, for want of CPU: devices decide whom, and are there for the pod then."""

from collections.abc import Callable
from typing import Any

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name, findings, held, rejection
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import claim, pod, request, requests

pytestmark = pytest.mark.usefixtures("site")

GPU: list[RawObject] = [{"name": "gpu-0"}]
MOST = "20"
"""CPUs; a node has 32, which is not enough for two such pods."""


def on(node: str) -> dict[str, Any]:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def with_cpu(amount: str, *, claims: list[RawObject]) -> dict[str, Any]:
    used = [{"name": each["name"]} for each in claims]
    return {
        "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": amount}, "claims": used}}]
    }


async def start(
    client: Client, namespace: str, name: str, *, cpu: str = "0", driver: Driver | None = None, **spec: Any
) -> ObjectKey:
    """A pod that wants CPUs and, given a driver, one device."""
    claims = []
    if driver is not None:
        await client.create(CLAIMS, claim(namespace, name, requests(request("gpu", driver.name))))
        claims = [by_name(name)]
    await client.create(PODS, pod(namespace, name, claims=claims, **with_cpu(cpu, claims=claims), **spec))
    return ObjectKey(namespace, name)


def is_terminating(found: RawObject | None) -> bool:
    return bool(found and found["metadata"].get("deletionTimestamp"))


def is_nominated(node: str) -> Callable[[RawObject | None], bool]:
    return lambda found: bool(found and found.get("status", {}).get("nominatedNodeName") == node)


async def names_terminating(client: Client, namespace: str) -> list[str]:
    return sorted(key_of(each).name for each in (await client.list(PODS, namespace)).items if is_terminating(each))


async def test_devices_decide_who_makes_room(
    client: Client, verbs: Verbs, namespace: str, gpu: Driver, important: str
) -> None:
    """CPUs can be had anywhere for one victim. Only on site-1 can the device be had as well, for one victim more."""
    for node in ("site-0", "site-1"):
        await gpu.publish(node, GPU)
    running = [
        await start(client, namespace, "cpu-0", cpu=MOST, **on("site-0")),
        await start(client, namespace, "gpu-0", driver=gpu, priorityClassName=important, **on("site-0")),
        await start(client, namespace, "cpu-1", cpu=MOST, **on("site-1")),
        await start(client, namespace, "gpu-1", driver=gpu, **on("site-1")),
        await start(client, namespace, "cpu-2", cpu=MOST, **on("site-2")),
    ]
    for key in running:
        await bound(client, key)
    await verbs.wait_in_step(client)

    wanted = await start(client, namespace, "wanted", cpu=MOST, driver=gpu, priorityClassName=important)
    await client.wait_for(PODS, wanted, is_nominated("site-1"))
    victims = [ObjectKey(namespace, name) for name in ("gpu-1", "cpu-1")]
    for key in victims:
        await client.wait_for(PODS, key, is_terminating)
    await verbs.wait_in_step(client)

    greedy = await start(client, namespace, "greedy", driver=gpu)
    await rejection(client, greedy)
    await client.delete(PODS, victims[0])
    await client.wait_for(CLAIMS, victims[0], lambda found: found and not found.get("status", {}).get("allocation"))
    assert "no free device" in await rejection(client, greedy), "the device is there for the pod that it was freed for"
    assert is_nominated("site-1")(await client.get(PODS, wanted))
    assert await names_terminating(client, namespace) == ["cpu-1"], "nobody else dies while it waits"

    await client.delete(PODS, victims[1])
    assert await bound(client, wanted) == "site-1"
    assert held(await client.get(CLAIMS, wanted)) == [("site-1", "gpu-0")]
    assert await names_terminating(client, namespace) == []
    assert "no free device" in await rejection(client, greedy)
    assert await findings(client, namespace) == []


async def test_nobody_dies_where_the_device_can_not_be_had(
    client: Client, verbs: Verbs, namespace: str, gpu: Driver, important: str
) -> None:
    await gpu.publish("site-0", GPU)
    running = [await start(client, namespace, f"cpu-{n}", cpu=MOST, **on(f"site-{n}")) for n in range(3)]
    running.append(await start(client, namespace, "gpu-0", driver=gpu, priorityClassName=important, **on("site-0")))
    for key in running:
        await bound(client, key)
    await verbs.wait_in_step(client)
    before = await verbs.answered("preempt")
    wanted = await start(client, namespace, "wanted", cpu=MOST, driver=gpu, priorityClassName=important)
    await rejection(client, wanted)
    await verbs.wait_answered("preempt", before + 1)
    assert await names_terminating(client, namespace) == []
    assert not (await client.get(PODS, wanted))["status"].get("nominatedNodeName")
    assert await findings(client, namespace) == []


async def test_a_pod_waits_for_victims_that_take_their_time(
    client: Client, verbs: Verbs, namespace: str, gpu: Driver, important: str
) -> None:
    """There are CPUs for it as soon as the first is gone, but the second holds the device."""
    for number in range(3):
        await bound(client, await start(client, namespace, f"cpu-{number}", cpu=MOST, **on(f"site-{number}")))
    await gpu.publish("site-0", GPU)
    await bound(client, await start(client, namespace, "gpu-0", driver=gpu, **on("site-0")))
    await verbs.wait_in_step(client)
    wanted = await start(client, namespace, "wanted", cpu=MOST, driver=gpu, priorityClassName=important)
    victims = [ObjectKey(namespace, name) for name in ("cpu-0", "gpu-0")]
    for key in victims:
        await client.wait_for(PODS, key, is_terminating)
    await client.delete(PODS, victims[0])
    assert "waiting for devices of terminating pods" in await rejection(client, wanted, about="terminating")
    assert await names_terminating(client, namespace) == ["gpu-0"]
    assert is_nominated("site-0")(await client.get(PODS, wanted))
    await client.delete(PODS, victims[1])
    assert await bound(client, wanted) == "site-0"
    assert await findings(client, namespace) == []


async def test_a_pod_waits_for_claims_whose_pods_are_gone(
    client: Client, plane: ControlPlane, verbs: Verbs, namespace: str, gpu: Driver, important: str
) -> None:
    """A controller releases them, in its own time. Meanwhile the scheduler knows no reason not to evict others."""
    for number in range(2):
        await gpu.publish(f"site-{number}", GPU)
        await bound(
            client, await start(client, namespace, f"low-{number}", cpu=MOST, driver=gpu, **on(f"site-{number}"))
        )
    await bound(client, await start(client, namespace, "cpu-2", cpu=MOST, **on("site-2")))
    await verbs.wait_in_step(client)
    wanted = await start(client, namespace, "wanted", cpu=MOST, driver=gpu, priorityClassName=important)
    found = await client.wait_for(PODS, wanted, lambda found: found and found["status"].get("nominatedNodeName"))
    assert found
    node = found["status"]["nominatedNodeName"]
    victim = ObjectKey(namespace, f"low-{node[-1]}")
    await client.wait_for(PODS, victim, is_terminating)

    asked = await verbs.answered("preempt")
    with plane.components["kube-controller-manager"].paused():
        await client.delete(PODS, victim)
        await verbs.wait_answered("preempt", asked + 1)
        await rejection(client, wanted, about="waiting for devices of terminating pods")
        assert await names_terminating(client, namespace) == []
        assert is_nominated(node)(await client.get(PODS, wanted))
    assert await bound(client, wanted) == node
    assert await names_terminating(client, namespace) == []
    assert await findings(client, namespace) == []
