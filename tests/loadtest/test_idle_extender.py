"""The extender that decides nothing: it says yes, and writes what we write."""

from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient

from extender.kube.api import ObjectKey
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, PODS
from loadtest.idle_extender import IdleExtender
from tests.kit.clusters import NOW, Cluster, claim, node, pod, request


def idle(cluster: Cluster, *known: Any) -> AsyncClient:
    app: Any = IdleExtender(cluster.api, known, lambda: NOW)
    return AsyncClient(transport=ASGITransport(app=app), base_url="http://idle")


async def call(http: AsyncClient, verb: str, **args: Any) -> Any:
    return (await http.post(f"/{verb}", json=args)).raise_for_status().json()


async def test_every_node_will_do_and_all_the_same() -> None:
    async with idle(Cluster.of()) as http:
        asked = {"Pod": pod("p", "c"), "NodeNames": ["a", "b"]}
        assert await call(http, "filter", **asked) == {"NodeNames": ["a", "b"]}
        assert await call(http, "prioritize", **asked) == [{"Host": "a", "Score": 0}, {"Host": "b", "Score": 0}]
        victims = {"a": {"Pods": [{"UID": "u"}]}}
        assert await call(http, "preempt", NodeNameToMetaVictims=victims) == {"NodeNameToMetaVictims": victims}
        assert (await http.get("/readyz")).status_code == 200


async def test_a_pod_whose_claim_has_no_name_yet_waits() -> None:
    raw = pod("p")
    raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    async with idle(Cluster.of()) as http:
        reply = await call(http, "filter", Pod=raw, NodeNames=["a"])
        assert reply["NodeNames"] == []
        assert list(reply["FailedAndUnresolvableNodes"]) == ["a"]


@pytest.mark.parametrize("is_known", [True, False])
async def test_it_writes_what_we_write(*, is_known: bool) -> None:
    cluster = Cluster.of(node("a"), claim("c", request("x", count=2), request("y")), pod("p", "c"))
    key = ObjectKey("ns", "c")
    known = [await cluster.api.get(CLAIMS, key)] if is_known else []
    async with idle(cluster, *known) as http:
        await call(http, "filter", Pod=await cluster.api.get(PODS, ObjectKey("ns", "p")), NodeNames=["a"])
        assert await call(http, "bind", PodName="p", PodNamespace="ns", PodUID="uid-p", Node="a") == {}
    written = await cluster.api.get(CLAIMS, key)
    assert written["metadata"]["finalizers"] == [FINALIZER]
    results = written["status"]["allocation"]["devices"]["results"]
    assert [each["request"] for each in results] == ["x", "x", "y"]
    assert len({each["device"] for each in results}) == 3
    assert [each["uid"] for each in written["status"]["reservedFor"]] == ["uid-p"]
    assert await cluster.node_of("p") == "a"


async def test_a_write_that_is_refused_is_told() -> None:
    async with idle(Cluster.of(node("a"))) as http:
        reply = await call(http, "bind", PodName="p", PodNamespace="ns", PodUID="uid-p", Node="a")
        assert "not found" in reply["Error"].lower() or "404" in reply["Error"]
