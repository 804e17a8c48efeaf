"""`dra-extender mock-driver` on a real node: its slices, the devices in containers, and kills."""

from collections.abc import AsyncIterator

import pytest_asyncio

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, SLICES, TEMPLATES
from tests.kit.controlplane.client import Client, connect, key_of
from tests.kit.controlplane.components import START_SECONDS
from tests.kit.controlplane.scenario import bound, by_name, by_template, held
from tests.kit.node.driver import prepared_claims, variable
from tests.kit.node.mock import MOCK_DRIVER, mock_driver
from tests.kit.node.node import Node
from tests.kit.node.pods import RUN_SECONDS, devices_of, end_pods, start_pod, wait_running
from tests.kit.objects.manifests import claim, claim_spec, device_class, template
from tests.kit.process import Process, running
from tests.kit.waiting import wait_for_answer, wait_until

CLASS = "mock"
TPUS = ("tpu-0", "tpu-1")
SLICE = {"devices": [{"name": each, "attributes": {"host": {"string": "$(NODE_NAME)"}}} for each in TPUS]}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mock(node: Node) -> AsyncIterator[Process]:
    process = mock_driver(node.plane, SLICE)
    async with connect(node.plane.access()) as client, running(process, within=START_SECONDS):
        found = device_class(CLASS, MOCK_DRIVER)
        parameters = {"opaque": {"driver": MOCK_DRIVER, "parameters": {"mode": "fast"}}}
        found["spec"]["config"] = [parameters]
        await client.create(CLASSES, found)
        await wait_published(client)
        yield process
        await client.delete(CLASSES, ObjectKey("", CLASS))


async def wait_published(client: Client, *, before: str = "") -> str:
    """Wait until the slice is there, other than the one before; its name."""

    async def own() -> list[RawObject]:
        return [each for each in (await client.list(SLICES)).items if each["spec"]["driver"] == MOCK_DRIVER]

    def is_whole(found: list[RawObject]) -> bool:
        devices = [device["name"] for each in found for device in each["spec"]["devices"]]
        return devices == list(TPUS) and key_of(found[0]).name != before

    return key_of((await wait_for_answer(own, is_whole, "the slice is published", within=RUN_SECONDS))[0]).name


async def test_a_container_has_the_devices_and_the_parameters(mock: Process, client: Client, namespace: str) -> None:
    assert mock.pid
    await client.create(CLAIMS, claim(namespace, "two", claim_spec(2, CLASS)))
    key = await start_pod(client, namespace, "pod", claims=[by_name("two")])
    seen = await devices_of(client, key)
    found = await client.get(CLAIMS, ObjectKey(namespace, "two"))
    assert sorted(device for _, device in held(found)) == list(TPUS)
    assert seen == dict(variable(each, MOCK_DRIVER) for each in TPUS) | {"DEVICE_PARAMETERS_GPU": '[{"mode": "fast"}]'}
    uid = found["metadata"]["uid"]
    assert uid in prepared_claims(MOCK_DRIVER)
    await end_pods(client, key)
    wait_until(lambda: uid not in prepared_claims(MOCK_DRIVER), "the claim is unprepared", within=RUN_SECONDS)


async def test_after_kills_of_kubelet_and_driver_containers_have_their_devices_and_the_slice_is_back(
    mock: Process, node: Node, client: Client, namespace: str
) -> None:
    await client.create(TEMPLATES, template(namespace, "one", claim_spec(1, CLASS)))
    before = await start_pod(client, namespace, "before", claims=[by_template("one")])
    seen = await devices_of(client, before)
    async with node.without_kubelet(client):
        mock.kill()
        meanwhile = await start_pod(client, namespace, "meanwhile", claims=[by_template("one")])
        await bound(client, meanwhile)
    mock.start(within=START_SECONDS)
    await wait_published(client)
    assert seen.items() ^ (await devices_of(client, meanwhile)).items() == {
        variable(each, MOCK_DRIVER) for each in TPUS
    }
    (container,) = (await wait_running(client, before))["status"]["containerStatuses"]
    assert container["restartCount"] == 0
    assert await devices_of(client, before) == seen


async def test_a_kubelet_that_starts_deletes_the_slice_and_the_driver_publishes_it_again(
    mock: Process, node: Node, client: Client
) -> None:
    before, running_since = await wait_published(client), mock.pid
    node.kubelet.kill()
    node.kubelet.start(within=START_SECONDS)
    assert await wait_published(client, before=before) != before
    assert mock.pid == running_since
    # The other driver publishes again after half a minute, and at once if it starts.
    node.driver.kill()
    node.driver.start(within=START_SECONDS)
