"""Sessions that judge whole pods: what kube-scheduler's default filters check counts, of listed and of booked pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from httpx import AsyncClient

from extender.client import AsyncAutoscalerClient
from extender.cluster.whole_pods import ListedPods
from tests.extender.autoscaler.http_scenes import app_of, book, nodes, passing, post
from tests.extender.autoscaler.scenes import autoscaler_over, machine, node_template
from tests.extender.cluster.test_whole_pods import fake_of, lister, plain
from tests.kit.clusters import GPU, Cluster, Object, claim_template, client_of
from tests.kit.servers.transport import FakeApi

PORT = [{"containerPort": 80, "hostPort": 80}]
SPREAD: Object = {
    "topologyKey": "kubernetes.io/hostname",
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
APART: Object = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}


def asks(name: str, *, cpu: str = "1", ports: Any = (), **spec: Any) -> Object:
    """A pod with a claim from the template; its label app is web."""
    raw = plain(name, cpu=cpu, **spec)
    raw["metadata"]["labels"] = {"app": "web"}
    raw["spec"]["containers"][0]["ports"] = list(ports)
    raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return raw


def host(name: str, cpu: str = "4") -> Object:
    found = machine(name, "g", cpu=cpu, memory="8Gi", pods="10")
    found["metadata"]["labels"]["kubernetes.io/hostname"] = name
    return found


@asynccontextmanager
async def live(fake: FakeApi, most: int = 100) -> AsyncIterator[AsyncClient]:
    """A service over a cluster with the node a; each node of group g brings two devices."""
    cluster = Cluster.of(GPU, claim_template(), host("a"))
    autoscaler = replace(
        autoscaler_over(cluster.state, node_template("g", 2)), listed_pods=lambda: lister(fake, most).listed(_no_pause)
    )
    async with client_of(app_of(cluster, autoscaler)) as client:
        yield client


def _no_pause() -> None:
    """No verb waits."""


async def whole(client: AsyncClient) -> str:
    return str((await post(client, "start", {"WholePods": True}))["Session"])


async def test_only_a_session_of_whole_pods_asks_for_other_pods() -> None:
    fake = fake_of(plain("web", "a", cpu="3"))
    async with live(fake) as client:
        devices = str((await post(client, "start", {}))["Session"])
        assert fake.requests == []
        assert await passing(client, asks("p", cpu="2"), host("a-1"), host("b", "1"), session=devices) == ["a-1", "b"]
        found = await post(
            client, "filter", nodes(asks("p", cpu="2"), host("a-1"), host("b", "1")), await whole(client)
        )
    assert [each["metadata"]["name"] for each in found["Nodes"]["items"]] == ["a-1"]
    assert found["FailedAndUnresolvableNodes"] == {"b": "Insufficient cpu"}


async def test_pods_of_the_cluster_and_booked_pods_take_room() -> None:
    async with live(fake_of(plain("web", "a", cpu="3"))) as client:
        session = await whole(client)
        assert await passing(client, asks("p", cpu="2"), host("a"), session=session) == []
        assert await book(client, plain("big", cpu="3"), host("n"), session) == {}
        assert await passing(client, asks("p", cpu="2"), host("n"), host("m"), session=session) == ["m"]
        assert await book(client, asks("p", cpu="2"), host("m"), session) == {}
        refused = await book(client, asks("q", cpu="3"), host("m"), session)
        assert refused["Error"] == "pod ns/q can't be booked on node m: Insufficient cpu"


@pytest.mark.parametrize("asked", [{"ports": PORT}, {"affinity": APART}, {"topologySpreadConstraints": [SPREAD]}])
async def test_ports_affinity_and_spread_count(asked: Object) -> None:
    async with live(fake_of()) as client:
        session = await whole(client)
        await passing(client, asks("p"), host("m"), host("n"), session=session)
        assert await book(client, asks("p", **asked), host("m"), session) == {}
        assert await passing(client, asks("q", **asked), host("m"), host("n"), session=session) == ["n"]


@pytest.mark.parametrize("asked", [{"ports": PORT}, {"affinity": APART}])
async def test_estimate_puts_no_two_pods_on_a_node_that_exclude_each_other(asked: Object) -> None:
    body = {
        "Pods": {"items": [asks(name, **asked) for name in ("p", "q", "r")]},
        "NodeGroups": [{"Name": "g", "Template": host("template"), "Limit": 10}],
    }
    async with live(fake_of()) as client:
        devices = await post(client, "estimate", body)
        found = await post(client, "estimate", body, await whole(client))
    assert [each["Add"] for each in devices["NodeGroups"]] == [2]
    (what,) = devices["NotModeled"]
    assert what == f"{'host ports' if 'ports' in asked else 'affinity between pods'} (ns/p, ns/q, ns/r)"
    assert ([each["Add"] for each in found["NodeGroups"]], "NotModeled" in found) == ([3], False)


async def test_estimate_says_why_a_group_never_takes_a_pod() -> None:
    beside = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
            ]
        }
    }
    body = {
        "Pods": {"items": [asks("p", affinity=beside)]},
        "NodeGroups": [{"Name": "g", "Template": host("template"), "Limit": 10}],
    }
    async with live(fake_of()) as client:
        found = await post(client, "estimate", body, await whole(client))
    assert found["FailedPods"] == {"ns/p": "1 node(s) didn't match pod affinity rules"}


async def test_pods_that_can_not_be_listed_refuse_such_a_session() -> None:
    async with live(fake_of(plain("a", "a"), plain("b", "a")), most=1) as client:
        reply = await post(client, "start", {"WholePods": True})
    why = "the cluster has more than 1 (cluster.podsForAnswers)"
    assert reply["Error"] == f"WholePods: pods without devices can't be read: {why}"


async def test_the_client_can_ask_for_whole_pods() -> None:
    cluster = Cluster.of(GPU, claim_template(), host("a"))
    autoscaler = autoscaler_over(cluster.state, node_template("g", 2))
    async with client_of(app_of(cluster, autoscaler)) as client:
        refused = await post(client, "start", {"WholePods": True})
        assert refused["Error"] == "WholePods: no pods are listed: cluster.podsForAnswers is 0"

    async def listed() -> ListedPods:
        return await lister(fake_of(plain("web", "a", cpu="3"))).listed(_no_pause)

    async with client_of(app_of(cluster, replace(autoscaler, listed_pods=listed))) as client:
        session = await AsyncAutoscalerClient(client).start(whole_pods=True)
        assert (await session.filter(asks("p", cpu="2"), [host("a"), host("b")])).passed == ("b",)


async def test_what_is_no_boolean_is_refused() -> None:
    async with live(fake_of()) as client:
        reply = await post(client, "start", {"WholePods": "yes"})
    assert reply["Error"] == 'WholePods: expected true or false, not "yes"'
