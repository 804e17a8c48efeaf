"""The extender beside a real kube-scheduler: pods get nodes, and claims get devices that nobody else has."""

import pytest

from extender.answers.audit import audit_snapshot
from extender.faces.commands.audit import listed_live
from extender.kube.api import ObjectKey
from extender.kube.connection.credentials import Origin
from extender.kube.resources import CLAIMS, PODS, TEMPLATES
from tests.kit.controlplane.access import EXTENDER
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import GPUS, SITE, bound, by_name, by_template, findings, held, rejection
from tests.kit.objects.manifests import claim, pod, request, requests, template

pytestmark = pytest.mark.usefixtures("site")

WITH_GPUS = ["site-0", "site-2"]


@pytest.fixture
async def one(client: Client, namespace: str, gpu: Driver) -> ObjectKey:
    """A claim for one GPU, and a template of it; two nodes have two each."""
    for node in WITH_GPUS:
        await gpu.publish(node, GPUS)
    spec = requests(request("gpu", gpu.name))
    await client.create(TEMPLATES, template(namespace, "one", spec))
    return key_of(await client.create(CLAIMS, claim(namespace, "one", spec)))


async def test_a_pod_without_claims(client: Client, namespace: str) -> None:
    key = ObjectKey(namespace, "plain")
    await client.create(PODS, pod(namespace, key.name))
    assert await bound(client, key) in SITE


@pytest.mark.every_version
async def test_a_claim_by_name(client: Client, namespace: str, one: ObjectKey) -> None:
    made = await client.create(PODS, pod(namespace, "pod", claims=[by_name(one.name)]))
    node = await bound(client, ObjectKey(namespace, "pod"))
    got = await client.get(CLAIMS, one)
    assert [pool for pool, _ in held(got)] == [node]
    assert [user["uid"] for user in got["status"]["reservedFor"]] == [made["metadata"]["uid"]]
    assert got["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert got["status"]["allocation"]["allocationTimestamp"]
    assert await findings(client, namespace) == []


@pytest.mark.every_version
async def test_a_claim_from_a_template(client: Client, namespace: str, gpu: Driver) -> None:
    """Its first filter often comes before the claim is there."""
    await gpu.publish("site-1", GPUS)
    await client.create(TEMPLATES, template(namespace, "two", requests(request("gpu", gpu.name, count=2))))
    await client.create(PODS, pod(namespace, "pod", claims=[by_template("two")]))
    node = await bound(client, ObjectKey(namespace, "pod"))
    (made,) = (await client.list(CLAIMS, namespace)).items
    assert sorted(held(made)) == [(node, "gpu-0"), (node, "gpu-1")]
    assert await findings(client, namespace) == []


async def test_the_audit_of_a_kubeconfig(client: Client, plane: ControlPlane, namespace: str, one: ObjectKey) -> None:
    await client.create(PODS, pod(namespace, "pod", claims=[by_name(one.name)]))
    await bound(client, ObjectKey(namespace, "pod"))
    snapshot = await listed_live(Origin(str(plane.kubeconfig(EXTENDER))))
    assert snapshot.claims[one].claim.allocation
    assert not [f for f in audit_snapshot(snapshot) if str(one) in f.claims]


@pytest.mark.usefixtures("one")
async def test_until_all_devices_are_taken_and_one_comes_back(client: Client, namespace: str) -> None:
    names = [f"pod-{number}" for number in range(4)]
    for name in names:
        await client.create(PODS, pod(namespace, name, claims=[by_template("one")]))
    for name in names:
        await bound(client, ObjectKey(namespace, name))
    found = (await client.list(CLAIMS, namespace)).items
    taken = [pair for each in found if each.get("status") for pair in held(each)]
    assert sorted(taken) == [(node, gpu["name"]) for node in WITH_GPUS for gpu in GPUS]

    late = key_of(await client.create(PODS, pod(namespace, "late", claims=[by_template("one")])))
    reason = await rejection(client, late, about="device")
    assert reason.startswith("0/3 nodes are available: 1 no device for request gpu, 2 no free device for request gpu.")
    await client.delete(PODS, ObjectKey(namespace, names[0]))
    assert await bound(client, late)
    assert await findings(client, namespace) == []
