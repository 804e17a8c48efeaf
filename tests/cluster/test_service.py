"""The extender beside a real kube-scheduler: pods get nodes, and claims get devices that nobody else has."""

import pytest

from extender.auditing import audit_snapshot, listed_live
from extender.cluster.api import CLAIMS, PODS, TEMPLATES, ObjectKey
from extender.cluster.credentials import Origin
from tests.cluster.harness.access import EXTENDER
from tests.cluster.harness.client import Client
from tests.cluster.harness.controlplane import ControlPlane
from tests.cluster.harness.objects import claim, claim_spec, pod, template
from tests.cluster.harness.scenario import GPUS, NODE_NAMES, bound, by_name, by_template, findings, held, rejection

pytestmark = pytest.mark.usefixtures("extender")

UNSCHEDULABLE = "0/2 nodes are available"


async def test_a_pod_without_claims(client: Client, namespace: str) -> None:
    key = ObjectKey(namespace, "plain")
    await client.create(PODS, pod(namespace, key.name))
    assert await bound(client, key) in NODE_NAMES


async def test_a_claim_by_name(client: Client, namespace: str) -> None:
    await client.create(CLAIMS, claim(namespace, "one"))
    made = await client.create(PODS, pod(namespace, "pod", claims=[by_name("one")]))
    node = await bound(client, ObjectKey(namespace, "pod"))
    got = await client.get(CLAIMS, ObjectKey(namespace, "one"))
    assert [pool for pool, _ in held(got)] == [node]
    assert [user["uid"] for user in got["status"]["reservedFor"]] == [made["metadata"]["uid"]]
    assert got["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert got["status"]["allocation"]["allocationTimestamp"]
    assert await findings(client, namespace) == []


async def test_a_claim_from_a_template(client: Client, namespace: str) -> None:
    """Its first filter often comes before the claim is there."""
    await client.create(TEMPLATES, template(namespace, "two", claim_spec(2)))
    await client.create(PODS, pod(namespace, "pod", claims=[by_template("two")]))
    node = await bound(client, ObjectKey(namespace, "pod"))
    (made,) = (await client.list(CLAIMS, namespace)).items
    assert sorted(held(made)) == [(node, "gpu-0"), (node, "gpu-1")]
    assert await findings(client, namespace) == []


async def test_a_claim_that_pods_share(client: Client, namespace: str) -> None:
    await client.create(CLAIMS, claim(namespace, "shared"))
    for name in ("first", "second"):
        await client.create(PODS, pod(namespace, name, claims=[by_name("shared")]))
    nodes = {await bound(client, ObjectKey(namespace, name)) for name in ("first", "second")}
    got = await client.get(CLAIMS, ObjectKey(namespace, "shared"))
    assert len(nodes) == 1
    assert [pool for pool, _ in held(got)] == [*nodes]
    assert len(got["status"]["reservedFor"]) == 2
    assert await findings(client, namespace) == []


async def test_the_audit_of_a_kubeconfig(client: Client, plane: ControlPlane, namespace: str) -> None:
    await client.create(CLAIMS, claim(namespace, "one"))
    await client.create(PODS, pod(namespace, "pod", claims=[by_name("one")]))
    await bound(client, ObjectKey(namespace, "pod"))
    snapshot = await listed_live(Origin(str(plane.kubeconfig(EXTENDER))))
    assert snapshot.claims[ObjectKey(namespace, "one")].claim.allocation
    assert not [f for f in audit_snapshot(snapshot) if f"{namespace}/one" in f.claims]


async def test_until_all_devices_are_taken_and_one_comes_back(client: Client, namespace: str) -> None:
    await client.create(TEMPLATES, template(namespace, "one"))
    names = [f"pod-{number}" for number in range(4)]
    for name in names:
        await client.create(PODS, pod(namespace, name, claims=[by_template("one")]))
    for name in names:
        await bound(client, ObjectKey(namespace, name))
    taken = [pair for each in (await client.list(CLAIMS, namespace)).items for pair in held(each)]
    assert sorted(taken) == [(node, gpu["name"]) for node in NODE_NAMES for gpu in GPUS]

    await client.create(PODS, pod(namespace, "late", claims=[by_template("one")]))
    assert f"{UNSCHEDULABLE}: 2 no free device for request gpu" in await rejection(
        client, ObjectKey(namespace, "late"), about="device"
    )
    await client.delete(PODS, ObjectKey(namespace, names[0]))
    assert await bound(client, ObjectKey(namespace, "late"))
    assert await findings(client, namespace) == []
