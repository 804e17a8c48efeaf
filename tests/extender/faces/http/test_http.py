"""The service on HTTP: every answer is one that its reader can use, whatever was asked."""

import asyncio
from dataclasses import replace

import orjson
import pytest
import structlog
from httpx import AsyncClient
from prometheus_client import CollectorRegistry

from allocator import AllocationResult
from extender.answers.observe.pool_sizes import MOST_OF_POOL
from extender.assembly import make_extender
from extender.cluster.cluster_state import ClusterState
from extender.config.settings import Settings
from extender.config.sources import load
from extender.framework.metrics import Metrics
from extender.kube.api import Event, EventType
from extender.kube.resources import NODES, SLICES
from tests.extender.faces.http.scenes import TWO_NODES, VERBS, post
from tests.kit.clusters import (
    DRIVER,
    Cluster,
    HeldClock,
    Object,
    app_over,
    asking,
    binding,
    claim,
    client_of,
    node,
    pod,
    solver,
)
from tests.kit.objects.parts import api_object, slice_spec

OBJECTS = TWO_NODES


# --- the four verbs, in both modes -------------------------------------------------------------------------


async def test_filter_by_names(client: AsyncClient) -> None:
    assert await post(client, "filter", asking(pod("p", "c"), "b", "new", "a")) == {
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"b": "no free device for request gpu", "new": "node not yet known"},
        "NodeNames": ["a"],
    }


async def test_filter_of_whole_nodes_returns_the_nodes_that_were_sent(client: AsyncClient) -> None:
    sent = [{**node("a"), "spec": {"unknown": [1.5, None]}}, node("b")]
    body = {"Pod": pod("p", "c"), "Nodes": {"metadata": {}, "items": sent}, "NodeNames": None}
    assert await post(client, "filter", body) == {
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"b": "no free device for request gpu"},
        "Nodes": {"items": sent[:1]},
    }


async def test_prioritize_scores_every_node_that_was_asked(client: AsyncClient) -> None:
    await post(client, "filter", asking(pod("p", "c"), "a", "b"))
    scores = await post(client, "prioritize", asking(pod("p", "c"), "b", "a"))
    assert [each["Host"] for each in scores] == ["b", "a"]
    assert scores[0]["Score"] == 0
    assert scores[1]["Score"] in range(1, 11)
    assert scores == await post(client, "prioritize", asking(pod("p", "c"), "b", "a"))


async def test_prioritize_without_a_filter_before_it_says_the_same(client: AsyncClient, cluster: Cluster) -> None:
    first = await post(client, "prioritize", asking(pod("p", "c"), "a", "b"))
    async with client_of(cluster.app()) as other:
        await post(other, "filter", asking(pod("p", "c"), "a", "b"))
        assert await post(other, "prioritize", asking(pod("p", "c"), "a", "b")) == first


async def test_prioritize_has_no_opinion_on_pods_without_devices(client: AsyncClient) -> None:
    scores = await post(client, "prioritize", asking(pod("plain"), "a", "x"))
    assert scores == [{"Host": "a", "Score": 0}, {"Host": "x", "Score": 0}]


@pytest.mark.parametrize("asked", [pod("plain", priority=9), pod("p", "c", priority=9)], ids=["plain", "devices"])
async def test_preempt_answers_with_uids(client: AsyncClient, asked: Object) -> None:
    victims = {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}
    body = {"Pod": asked, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    assert await post(client, "preempt", body) == {"NodeNameToMetaVictims": victims}
    whole = {"a": {"Pods": [pod("v")], "NumPDBViolations": 0}}
    body = {"Pod": asked, "NodeNameToVictims": whole, "NodeNameToMetaVictims": None}
    assert await post(client, "preempt", body) == {
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "uid-v"}], "NumPDBViolations": 0}}
    }


async def test_bind_allocates_and_binds_and_the_next_filter_knows(client: AsyncClient, cluster: Cluster) -> None:
    assert await post(client, "bind", binding("p", "a")) == {}
    assert await cluster.node_of("p") == "a"
    assert [str(each.device) for each in _allocation(cluster, "c").results] == [f"{DRIVER}/a/gpu-0"]
    cluster.load(claim("d"))
    reply = await post(client, "filter", asking(pod("q", "d"), "a", "b"))
    assert reply["NodeNames"] == []


async def test_bind_may_be_repeated_but_not_elsewhere(client: AsyncClient) -> None:
    assert await post(client, "bind", binding("p", "a")) == {}
    assert await post(client, "bind", binding("p", "a")) == {}
    assert "a" in (await post(client, "bind", binding("p", "b")))["Error"]


async def test_bind_of_a_pod_without_devices(client: AsyncClient, cluster: Cluster) -> None:
    assert await post(client, "bind", binding("plain", "b")) == {}
    assert await cluster.node_of("plain") == "b"


async def test_bind_says_why_not(client: AsyncClient, cluster: Cluster) -> None:
    reply = await post(client, "bind", binding("p", "b"))
    assert "no free device for request gpu" in reply["Error"]
    assert await cluster.node_of("p") == ""
    assert not cluster.state.snapshot.assumed


def _allocation(cluster: Cluster, name: str) -> AllocationResult:
    found = next(each for key, each in cluster.state.snapshot.claims.items() if key.name == name)
    assert found.claim.allocation is not None
    return found.claim.allocation


# --- when things go wrong inside -----------------------------------------------------------------------------


async def test_a_cluster_that_is_not_synced_is_an_error_for_pods_with_devices_only(cluster: Cluster) -> None:
    settings = Settings.model_validate({"scheduling": {"deadlineSeconds": 0.1}})
    app = Cluster(ClusterState(), cluster.api).app(settings)
    async with client_of(app) as client:
        reply = await post(client, "filter", asking(pod("p", "c"), "a"))
        assert list(reply) == ["Error"]
        assert reply["Error"] == "not ready: not synced yet"
        assert (await post(client, "filter", asking(pod("plain"), "a")))["NodeNames"] == ["a"]
        assert await post(client, "prioritize", asking(pod("plain"), "a")) == [{"Host": "a", "Score": 0}]
        assert await post(client, "bind", binding("plain", "a")) == {}
        ready = await client.get("/readyz")
        assert ready.status_code == 503
        assert "not synced yet" in ready.text


async def test_a_solve_past_its_deadline_is_an_error(cluster: Cluster) -> None:
    settings = load("scheduling: {deadlineSeconds: 0.000001}")
    async with client_of(cluster.app(settings)) as client:
        reply = await post(client, "filter", asking(pod("p", "c"), "a"))
    assert reply == {"Error": "filter was not done within its deadline of 1e-06 s"}


async def test_a_fault_of_ours_is_told_without_its_traceback_which_is_logged(cluster: Cluster) -> None:
    def broken_clock() -> float:
        raise ZeroDivisionError("the clock is broken")

    broken = replace(solver(), clock=broken_clock)
    extender = make_extender(cluster.api, cluster.state, broken, Settings(), Metrics(CollectorRegistry()))
    with structlog.testing.capture_logs() as logs:
        async with client_of(app_over(extender)) as client:
            reply = await post(client, "filter", asking(pod("p", "c"), "a"))
    failed = [each for each in logs if each["event"] == "verb failed"]
    assert [(each["verb"], str(each["exc_info"])) for each in failed] == [("filter", "the clock is broken")]
    assert reply == {"Error": "internal error in filter; the service's log has the details"}


# --- operations ----------------------------------------------------------------------------------------------


async def test_health(client: AsyncClient) -> None:
    for path in ("/livez", "/healthz", "/readyz"):
        response = await client.get(path)
        assert (response.status_code, response.text) == (200, "ok\n")


async def test_readiness_can_be_asked_for_kind_by_kind(client: AsyncClient, cluster: Cluster) -> None:
    ready = (await client.get("/readyz?verbose")).text.splitlines()
    assert "[+]nodes ok (2 objects)" in ready
    assert ready[-1] == "ok"
    cluster.state.doubt(NODES, "nothing heard for more than 90 s")
    response = await client.get("/readyz?verbose")
    assert response.status_code == 503
    assert "[-]nodes: nothing heard for more than 90 s (2 objects)" in response.text.splitlines()


async def test_readiness_tells_of_pools_that_are_too_large(client: AsyncClient, cluster: Cluster) -> None:
    devices = [{"name": f"gpu-{number}"} for number in range(MOST_OF_POOL // 8)]
    for number in range(9):
        spec = slice_spec("net", devices, slices=9, allNodes=True)
        metadata = {"uid": f"uid-{number}", "resourceVersion": str(1_000_000 + number)}
        part = api_object("ResourceSlice", f"net-{number}", metadata=metadata, spec=spec)
        cluster.state.apply(Event(EventType.ADDED, SLICES, part))
    response = await client.get("/readyz?verbose")
    assert response.status_code == 200
    told = f"[!]pool {DRIVER}/net has {MOST_OF_POOL * 9 // 8} devices, more than {MOST_OF_POOL}"
    assert response.text.splitlines()[-2:] == [told, "ok"]


async def test_a_service_that_stops_is_alive_but_not_ready(cluster: Cluster) -> None:
    extender = cluster.extender()
    async with client_of(app_over(extender)) as client:
        extender.service.stop()
        assert (await client.get("/livez")).status_code == 200
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.text) == (503, "not ready: stopping\n")
        assert (await post(client, "filter", asking(pod("p", "c"), "a")))["NodeNames"] == ["a"]


async def test_metrics_count_what_was_asked(client: AsyncClient) -> None:
    await post(client, "filter", asking(pod("p", "c"), "a", "b"))
    await post(client, "filter", b"{")
    text = (await client.get("/metrics")).text
    assert 'dra_extender_verb_duration_seconds_count{code="ok",verb="filter"} 1.0' in text
    assert 'dra_extender_verb_duration_seconds_count{code="error",verb="filter"} 1.0' in text
    assert 'dra_extender_filtered_nodes_total{outcome="passed"} 1.0' in text
    assert 'dra_extender_filtered_nodes_total{outcome="unresolvable"} 1.0' in text


async def test_the_index_lists_what_there_is(client: AsyncClient) -> None:
    index = (await client.get("/")).json()
    assert index["ready"] is True
    assert index["cluster"]["nodes"] == 2
    assert index["seen"]["nodes"] > 0
    assert {f"POST /{verb}" for verb in VERBS} <= set(index["endpoints"])
    assert "GET /openapi.json" in index["endpoints"]


async def test_no_page_loads_scripts_from_elsewhere(client: AsyncClient) -> None:
    assert [(await client.get(path)).status_code for path in ("/docs", "/redoc")] == [404, 404]


@pytest.mark.parametrize("body", [asking(pod("p", "c"), "a"), {"NodeNames": 7}])
async def test_replies_end_their_line(client: AsyncClient, body: Object) -> None:
    for verb in VERBS:
        assert (await client.post(f"/{verb}", content=orjson.dumps(body))).content.endswith(b"\n")
    for path in ("/nowhere", "/"):
        assert (await client.get(path)).content.endswith(b"}\n")


async def test_verbs_live_under_the_prefix_and_the_rest_does_not(cluster: Cluster) -> None:
    async with client_of(cluster.app(load("server: {prefix: /dra/v1}"))) as client:
        assert (await post(client, "dra/v1/filter", asking(pod("plain"), "a")))["NodeNames"] == ["a"]
        assert (await client.post("/filter")).status_code == 404
        assert (await client.get("/livez")).status_code == 200


async def test_the_documented_examples_run(client: AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    for verb in ("filter", "prioritize", "preempt"):
        operation = paths[f"/{verb}"]["post"]
        request = operation["requestBody"]["content"]["application/json"]["example"]
        reply = operation["responses"]["200"]["content"]["application/json"]["example"]
        assert await post(client, verb, request) == reply
    assert {"/livez", "/readyz", "/healthz", "/metrics", "/"} <= set(paths)


async def test_others_are_answered_while_a_long_body_is_decoded(client: AsyncClient) -> None:
    victims = {f"node-{n}": {"Pods": [{"UID": f"{u:036}"} for u in range(1000)]} for n in range(20)}
    asking = asyncio.create_task(post(client, "preempt", {"Pod": pod("plain"), "NodeNameToMetaVictims": victims}))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    assert set((await asking)["NodeNameToMetaVictims"]) == set(victims)
    assert turns > 100, "on the loop it would take a few turns"


async def test_health_is_answered_while_a_pod_is_being_solved(cluster: Cluster) -> None:
    clock = HeldClock()
    settings = load("scheduling: {deadlineSeconds: 60}")
    waiting = replace(solver(), clock=clock)
    extender = make_extender(cluster.api, cluster.state, waiting, settings, Metrics(CollectorRegistry()))
    async with client_of(app_over(extender, settings)) as client:
        filtering = asyncio.create_task(post(client, "filter", asking(pod("p", "c"), "a")))
        await asyncio.to_thread(clock.reached.wait)
        assert (await client.get("/livez")).text == "ok\n"
        clock.go.set()
        assert (await filtering)["NodeNames"] == ["a"]
