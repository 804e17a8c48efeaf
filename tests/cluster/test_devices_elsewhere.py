"""Devices that are not at one node: attached to a network, within reach of some nodes or of all."""

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS, TEMPLATES
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import SITE, bound, by_name, by_template, findings, held, rejection
from tests.kit.objects.manifests import claim, pod, request, requests, template

pytestmark = pytest.mark.usefixtures("site")

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
EAST: RawObject = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["east"]}]}]}


async def at(client: Client, namespace: str, name: str, claim_name: str, **labels: str) -> ObjectKey:
    """Make a pod that uses a claim and wants a node with these labels."""
    await client.create(PODS, pod(namespace, name, claims=[by_name(claim_name)], nodeSelector=labels))
    return ObjectKey(namespace, name)


async def test_within_reach_of_some_nodes(client: Client, namespace: str, gpu: Driver) -> None:
    await gpu.publish("fabric", [{"name": "gpu-0"}], nodeSelector=EAST)
    await client.create(CLAIMS, claim(namespace, "fabric", requests(request("gpu", gpu.name))))
    key = ObjectKey(namespace, "fabric")

    west = await at(client, namespace, "west", "fabric", **{ZONE: "west"})
    assert "no device for request gpu" in await rejection(client, west)

    first = await at(client, namespace, "first", "fabric", **{HOST: "site-0"})
    assert await bound(client, first) == "site-0"
    got = await client.get(CLAIMS, key)
    assert held(got) == [("fabric", "gpu-0")]
    assert got["status"]["allocation"]["nodeSelector"] == EAST

    assert "claim fabric is allocated for other nodes" in await rejection(client, west, about="for other nodes")
    second = await at(client, namespace, "second", "fabric", **{HOST: "site-1"})
    assert await bound(client, second) == "site-1", "the claim's other node"
    assert await findings(client, namespace) == []


async def test_within_reach_of_all_nodes(client: Client, namespace: str, gpu: Driver) -> None:
    await gpu.publish("network", [{"name": "gpu-0"}], allNodes=True)
    await client.create(CLAIMS, claim(namespace, "network", requests(request("gpu", gpu.name))))
    for node in SITE:
        assert await bound(client, await at(client, namespace, f"pod-{node}", "network", **{HOST: node})) == node
    got = await client.get(CLAIMS, ObjectKey(namespace, "network"))
    assert held(got) == [("network", "gpu-0")]
    assert "nodeSelector" not in got["status"]["allocation"]
    assert len(got["status"]["reservedFor"]) == len(SITE)
    assert await findings(client, namespace) == []


async def test_with_a_device_of_the_node_the_claim_is_for_that_node(
    client: Client, namespace: str, gpu: Driver, nic: Driver
) -> None:
    await gpu.publish("network", [{"name": "gpu-0"}], allNodes=True)
    await nic.publish("site-2", [{"name": "nic-0"}])
    spec = requests(request("gpu", gpu.name), request("nic", nic.name))
    await client.create(CLAIMS, claim(namespace, "both", spec))
    assert await bound(client, await at(client, namespace, "pod", "both")) == "site-2"
    got = await client.get(CLAIMS, ObjectKey(namespace, "both"))
    assert sorted(held(got)) == [("network", "gpu-0"), ("site-2", "nic-0")]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["site-2"]}]
    assert got["status"]["allocation"]["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": fields}]}
    assert await findings(client, namespace) == []


async def test_is_free_for_others_after_its_node_was_shut_down(client: Client, namespace: str, gpu: Driver) -> None:
    """KEP-3063 asks for it: once the pod is deleted by force, nobody waits for the node that is away."""
    await gpu.publish("network", [{"name": "gpu-0"}], allNodes=True)
    await client.create(TEMPLATES, template(namespace, "one", requests(request("gpu", gpu.name))))
    made = [by_template("one")]
    await client.create(PODS, pod(namespace, "lost", claims=made, nodeSelector={HOST: "site-0"}))
    assert await bound(client, ObjectKey(namespace, "lost")) == "site-0"
    await client.create(PODS, pod(namespace, "next", claims=made, nodeSelector={HOST: "site-1"}))
    assert "no free device" in await rejection(client, ObjectKey(namespace, "next"), about="request gpu")
    await client.delete(PODS, ObjectKey(namespace, "lost"))
    assert await bound(client, ObjectKey(namespace, "next")) == "site-1"
    assert await findings(client, namespace) == []
