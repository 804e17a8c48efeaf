"""Devices that must get ready first (KEP-5007): the pod waits across binds, and what fails is allocated anew."""

import time

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, EVENTS, PODS, SLICES
from tests.kit.controlplane.aftermath import is_allocated
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.conditions import report_condition
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.pair import pair
from tests.kit.controlplane.scenario import bound, by_name, findings, held, rejection
from tests.kit.controlplane.service import SERVE
from tests.kit.objects.manifests import claim, device_class, is_bound, pod, request, requests
from tests.kit.objects.parts import api_object, slice_spec

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


async def test_a_pod_that_waits_for_its_devices_gives_them_to_a_more_important_one_and_lives(
    client: Client, namespace: str, gpu: Driver, waiting: RawObject, important: str
) -> None:
    """It runs nothing yet: nothing is lost with its devices, so nobody waits for the binding timeout."""
    taken = held(await client.get(CLAIMS, ObjectKey(namespace, "claim")))
    await client.create(CLAIMS, claim(namespace, "all", requests(request("gpu", gpu.name, count=2))))
    key = ObjectKey(namespace, "important")
    await client.create(PODS, pod(namespace, "important", claims=[by_name("all")], priorityClassName=important))
    got = await client.wait_for(CLAIMS, ObjectKey(namespace, "all"), is_allocated)
    assert got
    assert set(taken) < set(held(got))
    await report_condition(client, ObjectKey(namespace, "all"), ATTACHED)
    assert await bound(client, key)
    left = await client.get(PODS, ObjectKey(namespace, "pod"))
    assert left["metadata"]["uid"] == waiting["metadata"]["uid"]
    assert not is_bound(left)
    assert not is_allocated(await client.get(CLAIMS, ObjectKey(namespace, "claim")))


TIMEOUT_SECONDS = 6.0


@pytest.mark.parametrize("recovers", [False, True], ids=["no other device", "another device without conditions"])
async def test_after_the_binding_timeout_the_pod_says_so_and_gets_another_device_if_there_is_one(
    client: Client, plane: ControlPlane, namespace: str, recovers: bool
) -> None:
    """As upstream's own plugin with ``bindingTimeout``."""
    name = f"timing-{namespace}"
    driver, key = f"gpu.{namespace}.example.com", ObjectKey(namespace, "pod")
    variable = "DRA_EXTENDER__SCHEDULING__BINDING_TIMEOUT_SECONDS"
    serve = ("env", f"{variable}={TIMEOUT_SECONDS}", *SERVE)
    async with pair(client, plane, name, serve=serve):
        await client.create(CLASSES, device_class(driver, driver))
        await client.create(SLICES, _fabric(f"a-{namespace}", driver, attachable("slow")))
        await client.create(CLAIMS, claim(namespace, "claim", requests(request("gpu", driver))))
        await client.create(PODS, pod(namespace, "pod", claims=[by_name("claim")], scheduler=name))
        await client.wait_for(CLAIMS, ObjectKey(namespace, "claim"), is_allocated)
        began = time.monotonic()
        if recovers:
            await client.create(SLICES, _fabric(f"b-{namespace}", driver, {"name": "quick"}))
        await client.wait_for(PODS, key, lambda obj: "binding timeout" in str(_status(obj).get("conditions")))
        assert TIMEOUT_SECONDS - 1 <= time.monotonic() - began <= 1.9 * TIMEOUT_SECONDS
        if recovers:
            assert await bound(client, key)
            assert held(await client.get(CLAIMS, ObjectKey(namespace, "claim"))) == [(f"b-{namespace}", "quick")]
        else:
            assert not is_bound(await client.get(PODS, key))
    for each in (f"a-{namespace}", *([f"b-{namespace}"] if recovers else [])):
        await client.delete(SLICES, ObjectKey("", each))
    await client.delete(CLASSES, ObjectKey("", driver))


def _fabric(pool: str, driver: str, device: RawObject) -> RawObject:
    return api_object("ResourceSlice", pool, spec=slice_spec(pool, [device], driver=driver, allNodes=True))


def _status(obj: RawObject | None) -> RawObject:
    return dict((obj or {}).get("status", {}))


def _since(obj: RawObject | None) -> object:
    return _status(obj)["allocation"].get("allocationTimestamp")
