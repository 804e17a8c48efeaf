"""Device preemption while something happens: the extender is killed, a node is drained, others schedule as well."""

import asyncio
from typing import Any

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, NODES, PODS
from tests.kit.controlplane.aftermath import check_preempted
from tests.kit.controlplane.client import WAIT_SECONDS, Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.in_tree import IN_TREE, in_tree
from tests.kit.controlplane.pair import Pair
from tests.kit.controlplane.proxy import Exchange, cut_before
from tests.kit.controlplane.scenario import GPUS, NODE_NAMES, bound, by_name, held
from tests.kit.objects.manifests import DEVICE_CLASS, claim, pod, request, requests

pytestmark = pytest.mark.usefixtures("nodes")

A_POD = r".*/pods/[^/?]+"


async def start(client: Client, namespace: str, name: str, *, count: int = 1, grace: int = 0, **more: Any) -> ObjectKey:
    """A pod that uses a claim of its own, and terminates within some seconds."""
    await client.create(CLAIMS, claim(namespace, name, requests(request("gpu", DEVICE_CLASS, count=count))))
    await client.create(PODS, pod(namespace, name, claims=[by_name(name)], terminationGracePeriodSeconds=grace, **more))
    return ObjectKey(namespace, name)


async def fill(client: Client, namespace: str, **more: Any) -> dict[str, str]:
    """Pods of low priority that hold all devices: their names and nodes."""
    names = [f"low-{number}" for number in range(len(NODE_NAMES) * len(GPUS))]
    keys = [await start(client, namespace, name, **more) for name in names]
    return {key.name: await bound(client, key) for key in keys}


async def running(client: Client, namespace: str) -> dict[str, str]:
    """The pods that are not terminating, and their nodes."""
    pods = [each for each in (await client.list(PODS, namespace)).items if "deletionTimestamp" not in each["metadata"]]
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in pods}


def is_terminating(found: RawObject, node: str) -> bool:
    return "deletionTimestamp" in found["metadata"] and found["spec"].get("nodeName") == node


async def until_terminating(client: Client, namespace: str, node: str) -> ObjectKey:
    """The first pod that terminates on a node."""
    listed = await client.list(PODS, namespace)
    for each in listed.items:
        if is_terminating(each, node):
            return key_of(each)
    async with asyncio.timeout(WAIT_SECONDS):
        async for event in client.watch(PODS, ObjectKey(namespace, ""), since=listed.revision):
            if event.type != "BOOKMARK" and is_terminating(event.object, node):
                return key_of(event.object)
    raise AssertionError("the watch has ended")


async def test_killed_after_the_first_delete(client: Client, namespace: str, ours: Pair, important: str) -> None:
    """The next process evicts the other victim, and nobody else."""
    low = await fill(client, namespace)

    async def kill(exchange: Exchange) -> None:
        await exchange.forward()
        ours.kill()

    ours.proxy.on("DELETE", A_POD, cut_before, nth=2)
    rule = ours.proxy.on("DELETE", A_POD, kill)
    wanted = await start(client, namespace, "wanted", count=2, priorityClassName=important)
    await rule.followed()
    await ours.restart()
    where = await bound(client, wanted)
    left = await running(client, namespace)
    assert left == {name: node for name, node in low.items() if node != where} | {"wanted": where}
    assert len(held(await client.get(CLAIMS, wanted))) == 2
    await check_preempted(client, namespace, ours.extender)


async def test_the_node_is_drained_while_the_victim_terminates(
    client: Client, namespace: str, ours: Pair, important: str
) -> None:
    """The devices there are of no use any more: a pod on the other node makes room."""
    low = await fill(client, namespace, grace=20)
    assert ours.name
    wanted = await start(client, namespace, "wanted", priorityClassName=important)
    found = await client.wait_for(PODS, wanted, lambda found: bool(found and found["status"].get("nominatedNodeName")))
    assert found
    drained = found["status"]["nominatedNodeName"]
    (other,) = (name for name in NODE_NAMES if name != drained)
    await until_terminating(client, namespace, drained)
    await client.patch(NODES, ObjectKey("", drained), {"spec": {"unschedulable": True}})
    for name in (name for name, node in low.items() if node == drained):
        await client.delete(PODS, ObjectKey(namespace, name))
    await client.delete(PODS, await until_terminating(client, namespace, other))
    assert await bound(client, wanted) == other
    assert len(await running(client, namespace)) == 2
    await check_preempted(client, namespace, ours.extender, given_up=1)


async def test_a_pod_of_the_in_tree_scheduler_is_evicted(
    client: Client, plane: ControlPlane, namespace: str, ours: Pair, important: str
) -> None:
    async with in_tree(plane):
        low = await fill(client, namespace, scheduler=IN_TREE)
        wanted = await start(client, namespace, "wanted", priorityClassName=important)
        where = await bound(client, wanted)
        assert ours.name
        left = await running(client, namespace)
    assert left.pop("wanted") == where
    assert len(left) == len(low) - 1
    await check_preempted(client, namespace, ours.extender)
