"""The service on HTTP: every answer is one that its reader can use, whatever was asked."""

import asyncio
import gc
import threading
import weakref
from dataclasses import replace
from functools import partial

import orjson
import pytest
import structlog
from httpx import ASGITransport, AsyncClient
from prometheus_client import CollectorRegistry

from allocator import AllocationResult
from extender.answers.observe.pool_sizes import MOST_OF_POOL
from extender.cluster.cluster_state import ClusterState
from extender.config.settings import Settings
from extender.config.sources import load
from extender.faces.assembly import make_extender
from extender.faces.http.bodies import FREE_BYTES, LOOKED_BYTES, MOST_OBJECTS, UNCOUNTED_BYTES, Bodies
from extender.faces.http.verb_endpoints import Application, Endpoints
from extender.faces.tracing import UNTRACED
from extender.framework.metrics import Metrics
from extender.framework.verb import Doc, Verb
from extender.framework.wire import WireError
from extender.kube.api import Event, EventType
from extender.kube.resources import NODES, SLICES
from extender.tools.fairness import CREDIT_SECONDS, MOST_WAITING, CrowdedError
from extender.tools.intake import Budget, Source, json_weight
from extender.tools.offload import at_once
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
from tests.kit.virtualtime import in_virtual_time

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
    readings = [0.0]  # enough for the start

    def clock() -> float:
        if not readings:
            raise ZeroDivisionError("the clock is broken")
        return readings[0]

    extender = make_extender(cluster.api, cluster.state, replace(solver(), clock=clock), Settings())
    readings.clear()
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
    assert turns > 20, "on the loop it would take a few turns"


async def test_health_is_answered_while_a_pod_is_being_solved(cluster: Cluster) -> None:
    clock = HeldClock()
    settings = load("scheduling: {deadlineSeconds: 60}")
    waiting = replace(solver(), clock=clock)
    extender = make_extender(cluster.api, cluster.state, waiting, settings)
    async with client_of(app_over(extender, settings)) as client:
        filtering = asyncio.create_task(post(client, "filter", asking(pod("p", "c"), "a")))
        await asyncio.to_thread(clock.reached.wait)
        assert (await client.get("/livez")).text == "ok\n"
        clock.go.set()
        assert (await filtering)["NodeNames"] == ["a"]


# Requests over HTTP with mistakes: each answer names the mistake, in the form that its reader takes.


BROKEN: dict[str, tuple[bytes, str]] = {
    "no body": (b"", "the body is empty"),
    "broken JSON": (b'{"Pod": {', "the body is not JSON"),
    "not text": (b"\xff\xfe\x00", "the body is not JSON"),
    "deep nesting": (b"[" * 60_000, "the body is not JSON"),
    "another type": (b"[1, 2]", "expected an object, not [1,2]"),
    "nothing in it": (b"{}", "missing"),
    "fields in the wrong case": (b'{"pod": {}, "nodeNames": [], "podName": "x"}', "unknown field; did you mean "),
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
        ("POST", "/xyzzy", 404, "no such path: /xyzzy; GET / lists what there is"),
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
    """Each path that takes GET, with a pod of the cluster; without the stream of changes, which has no end."""
    paths = (await client.get("/openapi.json")).json()["paths"]
    found = [path for path, operations in paths.items() if "get" in operations and path != "/console/changes"]
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


# A verb on HTTP: where its bodies are decoded and encoded.


ENOUGH = 10.0
"""Seconds after which a test that waits for a thread has failed."""


def on_loop() -> bool:
    return threading.current_thread() is threading.main_thread()


async def echo(_: None, asked: bool) -> bool:
    return asked


@pytest.mark.parametrize(
    ("sent", "has_whole_objects", "decoded_on_loop", "encoded_on_loop"),
    [
        (b"x", False, True, True),
        (b"x", True, False, True),
        (b"x" * (FREE_BYTES + 1), False, False, False),
        (b'"node-0",' * 5_000, False, True, True),
        (b'{"a":1},' * MOST_OBJECTS, False, True, True),
        (b'{"a":1},' * (LOOKED_BYTES // 8 + 1), False, False, True),
    ],
    ids=["a short body", "whole objects", "a long body", "names", "some objects", "many objects"],
)
async def test_what_may_take_long_leaves_the_event_loop(
    sent: bytes,
    has_whole_objects: bool,
    decoded_on_loop: bool,
    encoded_on_loop: bool,
) -> None:
    verb: Verb[None, bool, bool] = Verb(
        "where",
        lambda _: on_loop(),
        echo,
        lambda asked, _: b"%d %d" % (asked, on_loop()),
        Doc("Where is a body decoded and encoded?", {}, {}),
        has_whole_objects=has_whole_objects,
    )
    app = Application()
    endpoints = Endpoints(Metrics(CollectorRegistry()), UNTRACED, lambda: 0.0, Bodies(2 * FREE_BYTES, Budget()), 5.0)
    app.add_verb(endpoints.route("/where", "where", verb, lambda _: None, "verbs"), is_prompt=True)
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        found = await client.post("/where", content=sent)
    assert found.content == b"%d %d" % (decoded_on_loop, encoded_on_loop)


async def test_of_other_requests_than_a_schedulers_one_begins_in_each_cycle_of_the_loop() -> None:
    order: list[str] = []
    app, endpoints = (
        Application(),
        Endpoints(Metrics(CollectorRegistry()), UNTRACED, lambda: 0.0, Bodies(2 * FREE_BYTES, Budget()), 5.0),
    )
    for name in ("first", "in-turn"):
        verb: Verb[None, bool, bool] = Verb(
            name, partial(_noted, order, name), echo, lambda _, __: b"", Doc("?", {}, {})
        )
        app.add_verb(endpoints.route(f"/{name}", name, verb, lambda _: None, "verbs"), is_prompt=name == "first")
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        calls = [asyncio.create_task(client.post("/in-turn")) for _ in range(50)]
        calls.append(asyncio.create_task(client.post("/first")))
        replies = await asyncio.gather(*calls)
    assert {each.status_code for each in replies} == {200}
    assert len(order) == 51
    assert order.index("first") < 10, "it waits for none of those that came before"


async def test_requests_of_one_caller_delay_one_of_another_caller_by_one() -> None:
    order: list[str] = []
    endpoints = Endpoints(Metrics(CollectorRegistry()), UNTRACED, lambda: 0.0, Bodies(2 * FREE_BYTES, Budget()), 5.0)
    app = Application()
    for name in ("many", "other"):
        verb: Verb[None, bool, bool] = Verb(
            name, partial(_noted, order, name), echo, lambda _, __: b"", Doc("?", {}, {})
        )
        app.add_verb(endpoints.route(f"/{name}", name, verb, lambda _: None, "verbs"), is_prompt=False)
    async with (
        AsyncClient(transport=ASGITransport(app, client=("192.0.2.1", 1)), base_url="http://test") as many,
        AsyncClient(transport=ASGITransport(app, client=("192.0.2.2", 1)), base_url="http://test") as other,
    ):
        calls = [asyncio.create_task(many.post("/many")) for _ in range(50)]
        await asyncio.gather(*calls, other.post("/other"))
    assert len(order) == 51
    assert order.index("other") < 10


def _noted(order: list[str], name: str, _body: bytes) -> bool:
    order.append(name)
    return True


async def test_a_body_takes_its_room_until_it_is_decoded_although_its_call_is_over() -> None:
    begun, go = threading.Event(), threading.Event()

    def decode(_body: bytes) -> bool:
        begun.set()
        return go.wait(ENOUGH)

    verb: Verb[None, bool, bool] = Verb(
        "wait", decode, echo, lambda _, __: b"", Doc("?", {}, {}), has_whole_objects=True
    )
    bodies, body = Bodies(2 * FREE_BYTES, Budget()), b"x" * (FREE_BYTES + 1)
    app, endpoints = Application(), Endpoints(Metrics(CollectorRegistry()), UNTRACED, lambda: 0.0, bodies, 5.0)
    app.add_verb(endpoints.route("/wait", "wait", verb, lambda _: None, "verbs"), is_prompt=True)
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        calling = asyncio.create_task(client.post("/wait", content=body))
        assert await asyncio.to_thread(begun.wait, ENOUGH)
        calling.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (bodies.taken, bodies.budget.taken[Source.REQUESTS]) == (len(body) - UNCOUNTED_BYTES, json_weight(body))
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert (bodies.taken, bodies.budget.taken[Source.REQUESTS]) == (0, 0)


async def test_bodies_are_decoded_one_at_a_time_in_turns_of_their_callers() -> None:
    times, order = iter(range(1000)), list[bytes]()
    budget = Budget(clock=lambda: 0.0)  # no pauses
    bodies = Bodies(1, budget, clock=lambda: 2 * next(times) * CREDIT_SECONDS)
    begun, go = threading.Event(), threading.Event()

    def decode(name: bytes) -> None:
        order.append(name)
        begun.set()
        assert go.wait(ENOUGH)

    first = asyncio.create_task(bodies.decoded("greedy", decode, b"first"))
    assert await asyncio.to_thread(begun.wait, ENOUGH)
    waiting = [
        asyncio.create_task(bodies.decoded("greedy", decode, b"greedy %d" % each)) for each in range(MOST_WAITING)
    ]
    await asyncio.sleep(0)
    with pytest.raises(CrowdedError):
        await bodies.decoded("greedy", decode, b"one too many")
    waiting.append(asyncio.create_task(bodies.decoded("other", decode, b"other")))
    await asyncio.sleep(0)
    assert order == [b"first"]
    go.set()
    await asyncio.gather(first, *waiting)
    assert order[:2] == [b"first", b"other"]
    assert len(order) == MOST_WAITING + 2


@pytest.mark.parametrize(
    ("source", "size", "are_together", "began"),
    [
        (Source.REQUESTS, FREE_BYTES + 1, True, [0.0, 2.0, 4.0]),
        (Source.REQUESTS, FREE_BYTES + 1, False, [0.0, 2.0, 4.0]),
        (Source.REQUESTS, FREE_BYTES, True, [0.0, 6.0, 12.0]),
        (Source.SCHEDULERS, FREE_BYTES + 1, True, [0.0, 2.0, 4.0]),
        (Source.SCHEDULERS, FREE_BYTES + 1, False, [0.0, 0.0, 0.0]),
        (Source.SCHEDULERS, FREE_BYTES, True, [0.0, 6.0, 12.0]),
    ],
    ids=[
        "requests together",
        "requests one by one",
        "short requests",
        "schedulers together",
        "a scheduler one by one",
        "schedulers with short bodies",
    ],
)
@in_virtual_time
async def test_bodies_that_wait_for_each_other_leave_most_of_the_time_to_other_work(
    source: Source, size: int, are_together: bool, began: list[float]
) -> None:
    """A parser in C keeps the interpreter. The next body of a scheduler comes after the answer to the one before."""
    now, found = [0.0], list[float]()

    def decode(_body: bytes) -> None:
        found.append(asyncio.get_running_loop().time())
        now[0] += 2.0

    bodies = Bodies(1, Budget(clock=lambda: now[0]), source, off_loop=at_once)
    if are_together:
        await asyncio.gather(*[bodies.decoded("caller", decode, b" " * size) for _ in began])
    else:
        for _ in began:
            await bodies.decoded("caller", decode, b" " * size)
    assert found == began


async def test_what_a_refused_body_was_decoded_to_is_freed_at_once() -> None:
    """Nothing waits for Python to look for cycles."""

    class Decoded:
        """Stands for the value of a long body."""

    alive: list[weakref.ref[Decoded]] = []
    bodies = Bodies(1, Budget())

    def decode(_body: bytes) -> None:
        value = Decoded()
        alive.append(weakref.ref(value))
        raise WireError("Pod", "is a list")

    gc.disable()
    try:
        for _ in range(3):
            with pytest.raises(WireError, match="Pod: is a list"):
                await bodies.decoded("caller", decode, b"{}")
        assert [each() for each in alive] == [None] * 3
    finally:
        gc.enable()
