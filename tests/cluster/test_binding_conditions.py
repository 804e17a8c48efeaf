"""Devices that must get ready first (KEP-5007): the pod waits across binds, and what fails is allocated anew."""

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, EVENTS, PODS
from tests.kit.controlplane.aftermath import is_allocated
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.conditions import report_condition
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name, findings, held, rejection
from tests.kit.objects.manifests import claim, is_bound, pod, request, requests

pytestmark = pytest.mark.usefixtures("site")

ATTACHED, BROKEN = "example.com/attached", "example.com/broken"


def attachable(name: str) -> RawObject:
    """A device that has to be attached to the node of its pod."""
    conditions = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [BROKEN]}
    return {"name": name, "bindsToNode": True, **conditions}


@pytest.fixture
async def waiting(client: Client, namespace: str, gpu: Driver) -> RawObject:
    """A pod whose claim has one of two devices in the fabric, which is not attached yet."""
    await gpu.publish("fabric", [attachable("gpu-0"), attachable("gpu-1")], allNodes=True)
    await client.create(CLAIMS, claim(namespace, "claim", requests(request("gpu", gpu.name))))
    made = await client.create(PODS, pod(namespace, "pod", claims=[by_name("claim")]))
    await client.wait_for(CLAIMS, ObjectKey(namespace, "claim"), is_allocated)
    assert await rejection(client, ObjectKey(namespace, "pod"), about="until its devices are ready")
    return made


async def test_the_pod_runs_when_its_device_is_ready(client: Client, namespace: str, waiting: RawObject) -> None:
    got = await client.get(CLAIMS, ObjectKey(namespace, "claim"))
    assert [user["uid"] for user in got["status"]["reservedFor"]] == [waiting["metadata"]["uid"]]
    assert not is_bound(await client.get(PODS, ObjectKey(namespace, "pod")))
    await report_condition(client, ObjectKey(namespace, "claim"), ATTACHED)
    node = await bound(client, ObjectKey(namespace, "pod"))
    fields = got["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"]
    assert fields == [{"key": "metadata.name", "operator": "In", "values": [node]}]
    assert await findings(client, namespace) == []


async def test_a_device_that_fails_is_given_back_and_the_pod_is_told(
    client: Client, namespace: str, waiting: RawObject
) -> None:
    key = ObjectKey(namespace, "claim")
    before = (await client.get(CLAIMS, key))["status"]["allocation"]["allocationTimestamp"]
    await report_condition(client, ObjectKey(namespace, "claim"), BROKEN)
    await client.wait_for(
        CLAIMS, key, lambda obj: is_allocated(obj) and _since(obj) != before and "devices" not in _status(obj)
    )
    await report_condition(client, ObjectKey(namespace, "claim"), ATTACHED)
    assert await bound(client, ObjectKey(namespace, "pod"))
    assert len(held(await client.get(CLAIMS, key))) == 1
    events = [each for each in (await client.list(EVENTS, namespace)).items if each["reason"] == "DevicesNotReady"]
    assert [each["regarding"]["uid"] for each in events] == [waiting["metadata"]["uid"]]
    assert "said the driver" in events[0]["note"]


def _status(obj: RawObject | None) -> RawObject:
    return dict((obj or {}).get("status", {}))


def _since(obj: RawObject | None) -> object:
    return _status(obj)["allocation"].get("allocationTimestamp")
