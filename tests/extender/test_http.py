"""The service on HTTP: every answer is one that its reader can use, whatever was asked."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest
import structlog
from httpx import AsyncClient
from prometheus_client import CollectorRegistry

from allocator import AllocationResult
from extender.assembly import make_service
from extender.config.settings import Settings
from extender.config.sources import load
from extender.http.scheduler_verbs import VERBS as REGISTERED
from extender.kube.api import NODES
from extender.observe.metrics import Metrics
from extender.state.state import ClusterState
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Cluster,
    HeldClock,
    Object,
    app_over,
    asking,
    binding,
    claim,
    client_of,
    local_slice,
    node,
    pod,
    solver,
)

VERBS = [each.name for each in REGISTERED]
OBJECTS = (
    GPU,
    *(each for name in ("a", "b") for each in (node(name), local_slice(name))),
    claim("c"),
    claim("taken", allocated=["b/gpu-0"], at="b", users=["somebody"]),
    pod("p", "c"),
    pod("plain"),
)


async def post(client: AsyncClient, verb: str, body: object) -> Any:
    response = await client.post(f"/{verb}", content=body if isinstance(body, bytes) else orjson.dumps(body))
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    return response.json()


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


# --- what is not a request ---------------------------------------------------------------------------------

BROKEN: dict[str, tuple[bytes, str]] = {
    "no body": (b"", "the body is empty"),
    "broken JSON": (b'{"Pod": {', "the body is not JSON"),
    "not text": (b"\xff\xfe\x00", "the body is not JSON"),
    "deep nesting": (b"[" * 60_000, "the body is not JSON"),
    "another type": (b"[1, 2]", "expected an object, not [1,2]"),
    "nothing in it": (b"{}", "missing"),
    "fields in the wrong case": (b'{"pod": {}, "nodeNames": [], "podName": "x"}', "missing"),
    "a string for the pod": (b'{"Pod": "p", "NodeNames": [], "PodName": 7}', "expected"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("body", "message"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_request_is_an_error_that_names_the_field(
    client: AsyncClient, verb: str, body: bytes, message: str
) -> None:
    reply = await post(client, verb, body)
    assert list(reply) == ["Error"]
    assert message in reply["Error"]
    assert "Traceback" not in reply["Error"]


async def test_a_pod_whose_fields_have_wrong_types_is_named_by_field(client: AsyncClient) -> None:
    wrong = pod("p", "c")
    wrong["spec"]["resourceClaims"] = [{"name": 5}]
    reply = await post(client, "filter", asking(wrong, "a"))
    assert "Pod: spec.resourceClaims[0].name" in reply["Error"]


async def test_a_node_whose_fields_have_wrong_types_is_named_by_field(client: AsyncClient) -> None:
    wrong = node("a", labels={"x": 5})  # type: ignore[dict-item]  # on purpose
    reply = await post(client, "filter", {"Pod": pod("p", "c"), "Nodes": {"items": [wrong]}, "NodeNames": None})
    assert "Node a: metadata.labels" in reply["Error"]


@pytest.mark.parametrize("asked", [pod("plain"), pod("p", "c")], ids=["plain", "devices"])
@pytest.mark.parametrize("names", [None, []], ids=["null", "empty"])
async def test_no_nodes_in_no_nodes_out(client: AsyncClient, asked: Object, names: list[str] | None) -> None:
    body = {"Pod": asked, "Nodes": None, "NodeNames": names}
    assert await post(client, "filter", body) == {
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "NodeNames": [],
    }
    assert await post(client, "prioritize", body) == []


@pytest.mark.parametrize("verb", VERBS)
async def test_a_body_over_the_limit_is_an_error(cluster: Cluster, verb: str) -> None:
    settings = load("server: {bodyLimitBytes: 1024}")
    async with client_of(cluster.app(settings)) as client:
        assert await post(client, verb, b" " * 1025) == {"Error": "the body is longer than the limit of 1024 bytes"}
        assert "not JSON" in (await post(client, verb, b" " * 1024))["Error"]


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/explain/ns", 404, "no such path: /explain/ns; did you mean /explain/{namespace}/{pod}?"),
        ("POST", "/explian", 404, "no such path: /explian; did you mean /explain?"),
        ("POST", "/nonsense", 404, "no such path: /nonsense; GET / lists what there is"),
        ("POST", "/filter/", 404, "no such path: /filter/; did you mean /filter?"),
        ("GET", "/filter/", 404, "no such path: /filter/; did you mean /filter?"),
        ("GET", "/pod", 404, "no such path: /pod; did you mean /pods?"),
        ("GET", "/claim?pod=x", 404, "no such path: /claim; did you mean /claims?"),
        ("GET", "/filter", 405, "/filter does not take GET; use POST"),
        ("PUT", "/bind", 405, "/bind does not take PUT; use POST"),
        ("POST", "/livez", 405, "/livez does not take POST; use GET or HEAD"),
    ],
)
async def test_what_is_not_there_is_a_json_error(
    client: AsyncClient, method: str, path: str, status: int, message: str
) -> None:
    response = await client.request(method, path)
    assert (response.status_code, response.json()) == (status, {"error": message})


async def gettable(client: AsyncClient) -> list[str]:
    """Each path that takes GET, with a pod of the cluster."""
    paths = (await client.get("/openapi.json")).json()["paths"]
    found = [path for path, operations in paths.items() if "get" in operations]
    return ["/openapi.json", *(path.replace("{namespace}", "ns").replace("{pod}", "p") for path in found)]


async def test_head_is_answered_as_get_on_every_path(client: AsyncClient) -> None:
    for path in await gettable(client):
        head, got = await client.head(path), await client.get(path)
        assert (head.status_code, head.headers["content-type"]) == (got.status_code, got.headers["content-type"]), path
        assert (head.content, head.headers["content-length"].isdigit()) == (b"", True), path


@pytest.mark.parametrize(("path", "status"), [("/nonsense", 404), ("/claims?limit=x", 400), ("/explain/ns/x", 404)])
async def test_head_has_the_status_of_errors(client: AsyncClient, path: str, status: int) -> None:
    assert (await client.head(path)).status_code == status


@pytest.mark.parametrize(("method", "path", "allow"), [("HEAD", "/filter", "POST"), ("DELETE", "/pods", "GET, HEAD")])
async def test_methods_that_a_path_takes_are_named(client: AsyncClient, method: str, path: str, allow: str) -> None:
    response = await client.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allow)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/claims?limit=1&limit=2", "limit: given 2 times; give it once"),
        ("/claims?limit=1&limit=1&limit=", "limit: given 3 times; give it once"),
        (
            "/devices?state=free&node=a&state=shared&node=b",
            "state: given 2 times; give it once; node: given 2 times; give it once",
        ),
        ("/pods?continue=a&continue=b", "continue: given 2 times; give it once"),
        ("/readyz?verbose&verbose", "verbose: given 2 times; give it once"),
        ("/claims?x=1&x=2", 'unknown parameter "x"'),
    ],
)
async def test_parameter_that_is_given_twice_is_refused_by_its_name(client: AsyncClient, path: str, error: str) -> None:
    response = await client.get(path)
    assert response.status_code == 400
    assert response.json()["error"].startswith(error)


async def test_parameter_that_takes_several_values_may_be_given_twice(client: AsyncClient) -> None:
    assert (await client.get("/explain/ns/p?node=a&node=b")).status_code == 200


# --- when things go wrong inside -----------------------------------------------------------------------------


async def test_a_cluster_that_is_not_synced_is_an_error_for_pods_with_devices_only(cluster: Cluster) -> None:
    app = Cluster(ClusterState(), cluster.api).app()
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
    service = make_service(cluster.api, cluster.state, broken, Settings(), Metrics(CollectorRegistry()))
    with structlog.testing.capture_logs() as logs:
        async with client_of(app_over(service, cluster.state)) as client:
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


async def test_a_service_that_stops_is_alive_but_not_ready(cluster: Cluster) -> None:
    service = cluster.service()
    async with client_of(app_over(service, cluster.state)) as client:
        service.stop()
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
    service = make_service(cluster.api, cluster.state, waiting, settings, Metrics(CollectorRegistry()))
    async with client_of(app_over(service, cluster.state, settings)) as client:
        filtering = asyncio.create_task(post(client, "filter", asking(pod("p", "c"), "a")))
        await asyncio.to_thread(clock.reached.wait)
        assert (await client.get("/livez")).text == "ok\n"
        clock.go.set()
        assert (await filtering)["NodeNames"] == ["a"]
