"""Whole pods on a real control plane: explain and sessions name the nodes that a real kube-scheduler takes, and why."""

from typing import Any

import httpx
import pytest

from extender.client import AsyncAutoscalerClient
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, NODES, PODS
from tests.kit.controlplane.client import WAIT_SECONDS, Client
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import GPUS, SITE, bound, by_name, rejection
from tests.kit.controlplane.service import Extender
from tests.kit.objects.manifests import claim, claim_spec, pod

WEB = {"app": "web"}
ZONE = "topology.kubernetes.io/zone"


def beside(key: str) -> RawObject:
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": {"matchLabels": WEB}}]
    }


def container(cpu: str = "1", port: int = 0) -> list[RawObject]:
    """One container; it uses the claim ``gpu`` if the pod has it."""
    ports = [{"containerPort": 80, "hostPort": port}] if port else []
    return [{"name": "main", "image": "none", "ports": ports, "resources": {"requests": {"cpu": cpu}}}]


SPREAD = {
    "topologyKey": ZONE,
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": WEB},
}
CASES: dict[str, tuple[dict[str, Any], set[str], str]] = {
    "cpu": ({"containers": container("4")}, {"site-1", "site-2"}, "Insufficient cpu"),
    "host port": ({"containers": container(port=8080)}, {"site-0", "site-2"}, "didn't have free ports"),
    "affinity": ({"affinity": {"podAffinity": beside(ZONE)}}, {"site-2"}, "didn't match pod affinity rules"),
    "anti-affinity": (
        {"affinity": {"podAntiAffinity": beside("kubernetes.io/hostname")}},
        {"site-0", "site-1"},
        "didn't match pod anti-affinity rules",
    ),
    "spread": ({"topologySpreadConstraints": [SPREAD]}, {"site-0", "site-1"}, "didn't match pod topology spread"),
}


async def settled(client: Client, namespace: str, gpu: Driver) -> None:
    """Devices on each node, and a pod without devices on each: one takes CPU, one a port, one has a label."""
    for name in SITE:
        await gpu.publish(name, GPUS)
    running = (("hog", "site-0", container("30")), ("server", "site-1", container(port=8080)))
    for name, node, containers in (*running, ("web", "site-2", container())):
        raw = pod(namespace, name, nodeName=node, containers=containers)
        await client.create(PODS, raw | {"metadata": {**raw["metadata"], "labels": WEB if name == "web" else {}}})


def asking(namespace: str, spec: dict[str, Any]) -> RawObject:
    raw = pod(namespace, "asking", claims=[by_name("mine")], **spec)
    return raw | {"metadata": {**raw["metadata"], "labels": WEB}}


@pytest.mark.parametrize("case", CASES)
async def test_the_nodes_of_a_whole_pod(case: str, client: Client, site: Extender, namespace: str, gpu: Driver) -> None:
    spec, expected, why = CASES[case]
    await settled(client, namespace, gpu)
    await client.create(CLAIMS, claim(namespace, "mine", claim_spec(device_class=gpu.name)))
    asked = asking(namespace, spec)
    async with httpx.AsyncClient(base_url=site.url, timeout=WAIT_SECONDS) as http:
        reply = await http.post("/explain", json=asked, headers={"accept": "application/json"})
        found = reply.raise_for_status().json()
        session = await AsyncAutoscalerClient(http).start(whole_pods=True)
        nodes = [await client.get(NODES, ObjectKey("", name)) for name in SITE]
        filtered = await session.filter(asked, nodes)
    assert {each["node"] for each in found["places"]} == expected
    assert "not looked at" not in found["text"]
    assert why in found["text"]
    assert set(filtered.passed) == expected
    assert all(why in reason for reason in filtered.failed.values())
    await client.create(PODS, asked)
    assert await bound(client, ObjectKey(namespace, "asking")) in expected


async def test_a_pod_that_no_node_has_room_for(client: Client, site: Extender, namespace: str, gpu: Driver) -> None:
    await settled(client, namespace, gpu)
    await client.create(CLAIMS, claim(namespace, "mine", claim_spec(device_class=gpu.name)))
    await client.create(PODS, asking(namespace, {"containers": container("32")}))
    assert "Insufficient cpu" in await rejection(client, ObjectKey(namespace, "asking"), about="cpu")
    async with httpx.AsyncClient(base_url=site.url, timeout=WAIT_SECONDS) as http:
        reply = await http.get(f"/explain/{namespace}/asking", headers={"accept": "application/json"})
        answer = await http.post("/what-if", json={}, headers={"accept": "application/json"})
    told = "3 nodes have devices for the pod, but kube-scheduler rejects them: Insufficient cpu"
    assert reply.raise_for_status().json()["headline"] == told
    (waiting,) = [each for each in answer.raise_for_status().json()["pods"] if each["pod"] == f"{namespace}/asking"]
    assert waiting["then"]["reasons"] == [{"reason": "Insufficient cpu", "nodes": 3}]
