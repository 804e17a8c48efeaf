"""Pods with optional requests start with the devices that they have, also with none."""

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.scenario import by_name, findings, held
from tests.kit.node.driver import GPU_DRIVER, variable
from tests.kit.node.pods import devices_of, start_pod
from tests.kit.objects.manifests import DEVICE_CLASS, claim, request, requests
from tests.kit.objects.parts import selectors

pytestmark = pytest.mark.usefixtures("node")


def wish(namespace: str, *optional: str) -> RawObject:
    """A claim for a GPU, and for one of a model that the node does not have."""
    missing = selectors(f'device.attributes["{GPU_DRIVER}"].model == "h200"')
    spec = requests(request("gpu", DEVICE_CLASS), request("better", DEVICE_CLASS, selectors=missing))
    found = claim(namespace, "wish", spec)
    found["metadata"]["annotations"] = {"dra-extender.dev/optional-requests": ",".join(optional)}
    return found


async def test_a_container_starts_with_the_devices_that_its_pod_has(client: Client, namespace: str) -> None:
    """The second entry of the container names the request that is left out."""
    await client.create(CLAIMS, wish(namespace, "better"))
    key = await start_pod(client, namespace, "pod", claims=[by_name("wish")], asks=("gpu", "better"))
    seen = await devices_of(client, key)
    ((_, device),) = held(await client.get(CLAIMS, ObjectKey(namespace, "wish")))
    assert seen == dict([variable(device)])
    assert await findings(client, namespace) == []


async def test_a_container_starts_without_devices_if_all_requests_are_left_out(client: Client, namespace: str) -> None:
    missing = wish(namespace, "better")
    missing["spec"]["devices"]["requests"] = missing["spec"]["devices"]["requests"][1:]
    await client.create(CLAIMS, missing)
    key = await start_pod(client, namespace, "pod", claims=[by_name("wish")])
    assert await devices_of(client, key) == {}
