"""The extender beside a real kube-scheduler: pods get nodes, and claims get devices that nobody else has."""

from collections.abc import AsyncIterator

import pytest

from extender.auditing import audit_snapshot, listed, listed_live
from extender.cluster.api import CLAIMS, CLASSES, NODES, PODS, SLICES, TEMPLATES, ObjectKey, RawObject
from extender.cluster.credentials import Origin
from tests.cluster.harness.access import EXTENDER, SCHEDULER
from tests.cluster.harness.client import Client
from tests.cluster.harness.controlplane import ControlPlane
from tests.cluster.harness.objects import (
    DEVICE_CLASS,
    add_node,
    claim,
    claim_spec,
    device_class,
    is_bound,
    pod,
    resource_slice,
    template,
)
from tests.cluster.harness.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.cluster.harness.service import Extender, grant_rights, running_extender

pytestmark = pytest.mark.usefixtures("extender")

NODE_NAMES = ["served-0", "served-1"]
GPUS = [{"name": "gpu-0"}, {"name": "gpu-1"}]
UNSCHEDULABLE = "0/2 nodes are available"


@pytest.fixture
async def nodes(client: Client) -> AsyncIterator[list[str]]:
    """Two nodes with two GPUs each."""
    await client.create(CLASSES, device_class())
    for name in NODE_NAMES:
        await add_node(client, name)
        await client.create(SLICES, resource_slice(name, name, GPUS))
    yield NODE_NAMES
    for name in NODE_NAMES:
        await client.delete(SLICES, ObjectKey("", name))
        await client.delete(NODES, ObjectKey("", name))
    await client.delete(CLASSES, ObjectKey("", DEVICE_CLASS))


@pytest.fixture
async def extender(client: Client, plane: ControlPlane, nodes: list[str]) -> AsyncIterator[Extender]:
    """The extender, and a scheduler that asks it, with the configuration that we ship."""
    assert nodes, "a scheduler without nodes asks nobody"
    await grant_rights(client)
    text = SHIPPED.read_text()
    async with running_extender(plane) as running:
        config = localize(text, running.url, plane.kubeconfig(SCHEDULER))
        async with scheduler(plane, config, shipped_flags(text)):
            yield running


def by_name(name: str) -> RawObject:
    return {"name": "gpu", "resourceClaimName": name}


def by_template(name: str) -> RawObject:
    return {"name": "gpu", "resourceClaimTemplateName": name}


def held(obj: RawObject) -> list[tuple[str, str]]:
    """Pool and device."""
    return [(r["pool"], r["device"]) for r in obj["status"]["allocation"]["devices"]["results"]]


async def bound(client: Client, key: ObjectKey) -> str:
    """The node of a pod, once it has one."""
    found = await client.wait_for(PODS, key, is_bound)
    assert found
    node: str = found["spec"]["nodeName"]
    return node


async def rejection(client: Client, key: ObjectKey) -> str:
    """Why a pod can't be scheduled, once that is said."""

    def is_rejected(obj: RawObject | None) -> bool:
        conditions = (obj or {}).get("status", {}).get("conditions", [])
        return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)

    found = await client.wait_for(PODS, key, is_rejected)
    assert found
    return next(str(c["message"]) for c in found["status"]["conditions"] if c["type"] == "PodScheduled")


async def findings(client: Client, namespace: str) -> list[str]:
    """What the audit has against claims of a namespace, alone or together with others."""
    snapshot = await listed(client)
    assert any(each.claim.allocation for key, each in snapshot.claims.items() if key.namespace == namespace)
    return [str(f) for f in audit_snapshot(snapshot) if any(name.startswith(f"{namespace}/") for name in f.claims)]


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
    assert f"{UNSCHEDULABLE}: 2 no free device for request gpu" in await _settled(client, ObjectKey(namespace, "late"))
    await client.delete(PODS, ObjectKey(namespace, names[0]))
    assert await bound(client, ObjectKey(namespace, "late"))
    assert await findings(client, namespace) == []


async def _settled(client: Client, key: ObjectKey) -> str:
    """The rejection that stays, after the one for the claim that was not there yet."""

    def is_for_devices(obj: RawObject | None) -> bool:
        conditions = (obj or {}).get("status", {}).get("conditions", [])
        return any("device" in c.get("message", "") for c in conditions if c["type"] == "PodScheduled")

    await client.wait_for(PODS, key, is_for_devices)
    return await rejection(client, key)
