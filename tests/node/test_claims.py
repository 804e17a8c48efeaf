"""A pod's containers have the devices of its claims, from the start of the pod to its end."""

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, PODS, TEMPLATES
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.scenario import by_name, by_template, findings, held, rejection
from tests.kit.node.driver import GPU_DRIVER, prepared_claims, variable
from tests.kit.node.kubelet import NODE
from tests.kit.node.pods import devices_of, end_pods, is_running, start_pod
from tests.kit.objects.manifests import DEVICE_CLASS, claim, claim_spec, requests, template
from tests.kit.objects.parts import selectors

pytestmark = pytest.mark.usefixtures("node")


async def test_a_container_has_the_device_of_its_pods_template_claim(client: Client, namespace: str) -> None:
    await client.create(TEMPLATES, template(namespace, "one-gpu"))
    pods = [await start_pod(client, namespace, name, claims=[by_template("one-gpu")]) for name in ("a", "b")]
    seen = [await devices_of(client, key) for key in pods]
    claims = (await client.list(CLAIMS, namespace)).items
    given = [device for each in claims for _, device in held(each)]
    assert len(set(given)) == 2
    assert sorted(map(sorted, (found.items() for found in seen))) == sorted([variable(each)] for each in given)
    assert await findings(client, namespace) == []


async def test_a_claim_for_more_devices_gives_all_of_them_to_the_container(client: Client, namespace: str) -> None:
    await client.create(CLAIMS, claim(namespace, "three", claim_spec(3)))
    key = await start_pod(client, namespace, "pod", claims=[by_name("three")])
    seen = await devices_of(client, key)
    given = held(await client.get(CLAIMS, ObjectKey(namespace, "three")))
    assert len(given) == 3
    assert seen == dict(variable(device) for _, device in given)


async def test_two_pods_have_the_device_of_one_claim(client: Client, namespace: str) -> None:
    await client.create(CLAIMS, claim(namespace, "shared"))
    pods = [await start_pod(client, namespace, name, claims=[by_name("shared")]) for name in ("a", "b")]
    seen = [await devices_of(client, key) for key in pods]
    found = await client.get(CLAIMS, ObjectKey(namespace, "shared"))
    ((_, device),) = held(found)
    assert seen == [dict([variable(device)])] * 2

    await end_pods(client, pods[0])
    assert found["metadata"]["uid"] in prepared_claims(GPU_DRIVER), "the other pod still uses it"
    assert is_running(await client.get(PODS, pods[1]))


async def test_the_first_of_a_prioritized_list_that_the_node_has(client: Client, namespace: str) -> None:
    """No device is an h200. Of the second subrequest the container gets the device, under the request's own name."""
    wanted = [
        {
            "name": model,
            "deviceClassName": DEVICE_CLASS,
            "selectors": selectors(f'device.attributes["{GPU_DRIVER}"].model == "{model}"'),
        }
        for model in ("h200", "a100")
    ]
    spec = requests({"name": "gpu", "firstAvailable": wanted})
    await client.create(CLAIMS, claim(namespace, "best", spec))
    key = await start_pod(client, namespace, "pod", claims=[by_name("best")])
    seen = await devices_of(client, key)
    found = await client.get(CLAIMS, ObjectKey(namespace, "best"))
    (result,) = found["status"]["allocation"]["devices"]["results"]
    assert result["request"] == "gpu/a100"
    assert result["device"] in {"gpu-2", "gpu-3"}
    assert seen == dict([variable(result["device"])])


async def test_a_device_is_unprepared_after_its_pod_and_goes_to_the_next(client: Client, namespace: str) -> None:
    await client.create(CLAIMS, claim(namespace, "all", claim_spec(4)))
    await client.create(TEMPLATES, template(namespace, "one-gpu"))
    first = await start_pod(client, namespace, "first", claims=[by_name("all")])
    assert len(await devices_of(client, first)) == 4
    prepared = (await client.get(CLAIMS, ObjectKey(namespace, "all")))["metadata"]["uid"]
    assert prepared in prepared_claims(GPU_DRIVER)

    last = await start_pod(client, namespace, "last", claims=[by_template("one-gpu")])
    assert "no free device" in await rejection(client, last, about="device")
    await end_pods(client, first)
    assert len(await devices_of(client, last)) == 1
    assert prepared not in prepared_claims(GPU_DRIVER)

    await end_pods(client, last)
    assert [key_of(each).name for each in (await client.list(CLAIMS, namespace)).items] == ["all"]


async def test_a_pod_whose_author_chose_the_node_starts_with_its_device(client: Client, namespace: str) -> None:
    """No scheduler sees it. The kubelet starts it when the extender has allocated its claim for the node."""
    await client.create(TEMPLATES, template(namespace, "one-gpu"))
    key = await start_pod(client, namespace, "pod", claims=[by_template("one-gpu")], nodeName=NODE)
    seen = await devices_of(client, key)
    (made,) = (await client.list(CLAIMS, namespace)).items
    assert seen == dict(variable(device) for _, device in held(made))
    assert await findings(client, namespace) == []
