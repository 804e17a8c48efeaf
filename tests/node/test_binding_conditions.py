"""Devices that must get ready first (KEP-5007): the pod starts when its driver has said so."""

from collections.abc import AsyncIterator

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, CLASSES, PODS, SLICES
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.aftermath import is_allocated
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import START_SECONDS
from tests.kit.controlplane.conditions import report_condition
from tests.kit.controlplane.scenario import by_name, findings, rejection
from tests.kit.node.driver import node_driver, prepared_claims, variable
from tests.kit.node.node import Node
from tests.kit.node.pods import devices_of, end_all_pods, start_pod
from tests.kit.objects.manifests import claim, device_class, is_bound, request, requests
from tests.kit.process import running

ATTACHED = "example.com/attached"


@pytest.fixture
async def fabric(node: Node, client: Client, namespace: str) -> AsyncIterator[str]:
    """A second driver on the node: its only device has to be attached first."""
    name = "fabric.example.com"
    device = {
        "name": "gpu-9",
        "bindsToNode": True,
        "bindingConditions": [ATTACHED],
        "bindingFailureConditions": ["example.com/broken"],
    }
    await client.create(CLASSES, device_class(name, name))
    async with running(
        node_driver(node.plane.kubeconfig(ADMIN), node.programs.programs, name, [device]), within=START_SECONDS
    ):
        yield name
        # Who unprepares needs the driver.
        await end_all_pods(client, namespace)
    for each in (await client.list(SLICES)).items:
        if each["spec"]["driver"] == name:
            await client.delete(SLICES, key_of(each))
    await client.delete(CLASSES, ObjectKey("", name))


async def test_a_container_starts_when_its_device_is_attached(client: Client, namespace: str, fabric: str) -> None:
    wanted = ObjectKey(namespace, "attachable")
    await client.create(CLAIMS, claim(namespace, wanted.name, requests(request("gpu", fabric))))
    key = await start_pod(client, namespace, "pod", claims=[by_name(wanted.name)])
    await client.wait_for(CLAIMS, wanted, is_allocated)
    await rejection(client, key, about="until its devices are ready")
    assert not is_bound(await client.get(PODS, key))
    assert prepared_claims(fabric) == set()

    await report_condition(client, wanted, ATTACHED)
    assert await devices_of(client, key) == dict([variable("gpu-9", fabric)])
    assert await findings(client, namespace) == []
