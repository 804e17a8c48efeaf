"""Every request that a real kube-scheduler was recorded to send is answered in the form that it accepted."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.kit.clusters import Cluster, Object, client_of, device_class, network_slice, node, request

RECORDED = Path(__file__).parents[5] / "shared" / "wire" / "kube-scheduler-1.36.json"
EXCHANGES: list[Object] = orjson.loads(RECORDED.read_bytes()) if RECORDED.exists() else []

PLUGIN_RESOURCES = ("example.com/gpu", "example.com/plugin-gpu", "deviceclass.resource.kubernetes.io/gpu.example.com")
SPEC = {"devices": {"requests": [request(device_class="gpu.example.com")]}}


def answer_to(verb: str) -> list[Any]:
    chosen = [(index, each) for index, each in enumerate(EXCHANGES) if each["path"] == f"/{verb}"]
    return [pytest.param(each, id=f"{index}-{each['mode']}") for index, each in chosen]


def pod_of(exchange: Object) -> Object:
    """The pod that an exchange is about, unbound; in full if any request has it."""
    sent = exchange["request"]
    if "Pod" in sent:
        return {"apiVersion": "v1", "kind": "Pod", **sent["Pod"]}
    seen = (each["request"]["Pod"] for each in EXCHANGES if "Pod" in each["request"])
    metadata = {"name": sent["PodName"], "namespace": sent["PodNamespace"], "uid": sent["PodUID"]}
    bare: Object = {"metadata": metadata, "spec": {"containers": []}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        **next((p for p in seen if p["metadata"]["uid"] == sent["PodUID"]), bare),
    }


def cluster_for(exchange: Object) -> Cluster:
    """Devices for everybody on every node, and claims not made from templates yet; names as recorded."""
    template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return Cluster.of(
        *(node(f"node-{index}", allocatable=dict.fromkeys(PLUGIN_RESOURCES, "8")) for index in range(4)),
        device_class("gpu.example.com", extended="example.com/gpu"),
        network_slice("net", 8),
        {**template, "metadata": {"name": "one", "namespace": "default"}, "spec": {"spec": SPEC}},
        {**claim, "metadata": {"name": "named", "namespace": "default"}, "spec": SPEC},
        pod_of(exchange),
    )


async def exchanged(exchange: Object, *, settled: bool = True) -> Any:
    world = cluster_for(exchange)
    if settled:
        await world.settle()
    async with client_of(world.app()) as client:
        body = orjson.dumps(exchange["request"])
        response = await client.post(exchange["path"], content=body, headers=exchange["headers"])
    assert response.status_code == 200
    return response.json()


pytestmark = pytest.mark.skipif(not EXCHANGES, reason="the recorded exchanges are not here")


@pytest.mark.parametrize("settled", [True, False], ids=["claims made", "claims not made yet"])
@pytest.mark.parametrize("exchange", answer_to("filter"))
async def test_filter(exchange: Object, settled: bool) -> None:
    reply = await exchanged(exchange, settled=settled)
    assert set(reply) == set(exchange["acceptedReply"])
    sent, rejected = exchange["request"], {**reply["FailedNodes"], **reply["FailedAndUnresolvableNodes"]}
    assert all(rejected.values())
    if exchange["mode"] == "names":
        asked, passed = sent["NodeNames"], reply["NodeNames"]
    else:
        nodes = {each["metadata"]["name"]: each for each in sent["Nodes"]["items"]}
        assert set(reply["Nodes"]) == set(exchange["acceptedReply"]["Nodes"])
        asked, passed = list(nodes), [each["metadata"]["name"] for each in reply["Nodes"]["items"]]
        assert [nodes[name] for name in passed] == reply["Nodes"]["items"]
    assert sorted([*passed, *rejected]) == sorted(asked)
    assert passed


@pytest.mark.parametrize("exchange", answer_to("prioritize"))
async def test_prioritize(exchange: Object) -> None:
    reply = await exchanged(exchange)
    sent = exchange["request"]
    names = sent["NodeNames"] or [each["metadata"]["name"] for each in sent["Nodes"]["items"]]
    assert [each["Host"] for each in reply] == names
    assert all(set(each) == {"Host", "Score"} for each in reply)
    assert all(type(each["Score"]) is int and 0 <= each["Score"] <= 10 for each in reply)


@pytest.mark.parametrize("exchange", answer_to("preempt"))
async def test_preempt(exchange: Object) -> None:
    assert await exchanged(exchange) == exchange["acceptedReply"]


@pytest.mark.parametrize("exchange", answer_to("bind"))
async def test_bind(exchange: Object) -> None:
    assert await exchanged(exchange) == exchange["acceptedReply"]


def test_the_recording_has_42_exchanges_in_both_modes() -> None:
    assert len(EXCHANGES) == 42
    assert {each["mode"] for each in EXCHANGES} == {"names", "nodes"}
