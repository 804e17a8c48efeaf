"""Karpenter makes nodes for pods of dra-scheduler, drivers publish their devices when the nodes come, and the pods run.

Karpenter 1.13 knows no devices. ``make test-karpenter`` runs this module; ``make test-cluster`` does not, because the
first build of Karpenter takes minutes.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, EVENTS, NODES, PODS
from tests.kit.controlplane.binaries import BinariesError
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.joining import kubelets
from tests.kit.controlplane.karpenter import POOL_LABEL, add_pool, define, find_karpenter, karpenter
from tests.kit.controlplane.scenario import GPUS, bound, by_name, findings, rejection
from tests.kit.objects.manifests import claim, is_bound, pod, request, requests
from tests.kit.waiting import wait_for_answer

pytestmark = pytest.mark.usefixtures("site")

WITH_CLAIMS = "--ignore-dra-requests=false"
"""Karpenter's flag to make nodes for pods with claims. It then ignores what the claims ask for."""

CPU = "4"
"""Of a node; the kwok provider keeps 100m of it."""


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return find_karpenter(os.environ)
    except BinariesError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
async def pool(client: Client, namespace: str, gpu: Driver) -> AsyncIterator[str]:
    """A pool of the test's own. Each of its nodes has two GPUs when it is ready."""
    await define(client)
    await add_pool(client, namespace, CPU)

    async def publish(node: str) -> None:
        await gpu.publish(node, GPUS)

    async with kubelets(client, POOL_LABEL, publish):
        yield namespace


async def run(client: Client, driver: Driver, pool: str, name: str, cpu: str) -> ObjectKey:
    """A pod for nodes of the pool, with a claim for one GPU."""
    await client.create(CLAIMS, claim(pool, name, requests(request("gpu", driver.name))))
    wanted = pod(pool, name, claims=[by_name(name)], nodeSelector={POOL_LABEL: pool})
    wanted["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    await client.create(PODS, wanted)
    return ObjectKey(pool, name)


async def nodes_of(client: Client, pool: str) -> set[str]:
    nodes = (await client.list(NODES)).items
    return {each["metadata"]["name"] for each in nodes if each["metadata"].get("labels", {}).get(POOL_LABEL) == pool}


async def said(client: Client, key: ObjectKey, text: str) -> None:
    """Karpenter has told this of the pod in an Event."""

    async def told() -> list[str]:
        events = (await client.list(EVENTS, key.namespace)).items
        return [each.get("note", "") for each in events if each["regarding"].get("name") == key.name]

    await wait_for_answer(told, lambda found: any(text in each for each in found), f"{text!r} of {key}", within=30)


async def test_nodes_are_made_devices_come_and_the_pods_run(
    client: Client, plane: ControlPlane, program: Path, gpu: Driver, pool: str
) -> None:
    async with karpenter(plane, program, WITH_CLAIMS):
        pods = [await run(client, gpu, pool, f"pod-{number}", "1900m") for number in range(3)]
        found = {await bound(client, key) for key in pods}
    assert found == await nodes_of(client, pool)
    assert len(found) == 2
    assert await findings(client, pool) == []


async def test_by_default_karpenter_makes_no_node_for_a_pod_with_a_claim(
    client: Client, plane: ControlPlane, program: Path, gpu: Driver, pool: str
) -> None:
    async with karpenter(plane, program) as log:
        key = await run(client, gpu, pool, "pod", "1900m")
        await rejection(client, key)
        await wait_for_answer(
            lambda: asyncio.to_thread(log.read_text),
            lambda text: f'"namespace":"{pool}"' in text and "Dynamic Resource Allocation requirements" in text,
            "Karpenter skips the pod",
            within=30,
        )
    assert await nodes_of(client, pool) == set()


async def test_karpenter_adds_no_node_while_there_is_cpu_on_a_node_without_free_devices(
    client: Client, plane: ControlPlane, program: Path, gpu: Driver, pool: str
) -> None:
    async with karpenter(plane, program, WITH_CLAIMS):
        for number in range(2):
            assert await bound(client, await run(client, gpu, pool, f"pod-{number}", "100m"))
        third = await run(client, gpu, pool, "third", "100m")
        await rejection(client, third, about="no free device for request gpu")
        [node] = await nodes_of(client, pool)
        await said(client, third, f", node/{node}")
    assert not is_bound(await client.get(PODS, third))


async def test_karpenter_makes_no_node_for_an_extended_resource_that_devices_would_serve(
    client: Client, plane: ControlPlane, program: Path, pool: str
) -> None:
    wanted = pod(pool, "pod", nodeSelector={POOL_LABEL: pool})
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
    async with karpenter(plane, program, WITH_CLAIMS):
        await client.create(PODS, wanted)
        await said(client, ObjectKey(pool, "pod"), "no instance type")
    assert await nodes_of(client, pool) == set()
