"""The autoscaler's verbs on HTTP: sessions that don't see each other, a cluster that is never changed, clear errors."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import orjson
import pytest
from httpx import AsyncClient

from extender.autoscaler.autoscaler import InSession
from extender.autoscaler.sessions import SessionLimits
from extender.autoscaler.verbs import AUTOSCALER_VERBS, start_session
from extender.cluster.cluster_state import ClusterState
from extender.config.sources import load
from extender.framework.decisions.evaluate import Decider
from tests.extender.autoscaler.http_scenes import (
    NEW,
    NO_ROOM,
    app_of,
    book,
    for_groups,
    for_pods,
    nodes,
    passing,
    post,
    start,
)
from tests.extender.autoscaler.scenes import autoscaler_over, machine, pod_of
from tests.kit.clusters import (
    GPU,
    Cluster,
    HeldClock,
    Object,
    asking,
    claim,
    claim_template,
    client_of,
    local_slice,
    network_slice,
    pod,
    solver,
)

OBJECTS = (GPU, claim_template(), machine("a"), local_slice("a"), pod_of("pending", "gpu"))


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncClient]:
    async with client_of(app_of(cluster)) as found:
        yield found


# --- the verbs ----------------------------------------------------------------------------------------------


async def test_filter_answers_with_the_nodes_that_were_sent(client: AsyncClient) -> None:
    sent = [{**machine("n", "g"), "spec": {"unknown": [1.5, None]}}, machine("m"), machine("a")]
    assert await post(client, "filter", nodes(pod_of("p", "gpu"), *sent), await start(client)) == {
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"m": "no device for request gpu"},
        "Nodes": {"items": [sent[0], sent[2]]},
    }


async def test_filter_of_names_knows_real_nodes_and_those_made_up_before(client: AsyncClient) -> None:
    session = await start(client)
    body = asking(pod_of("p", "gpu"), "a", "n")
    assert (await post(client, "filter", body, session))["NodeNames"] == ["a"]
    await passing(client, pod_of("p", "gpu"), machine("n", "g"), session=session)
    assert (await post(client, "filter", body, session))["NodeNames"] == ["a", "n"]


async def test_prioritize_scores_every_node(client: AsyncClient) -> None:
    asked = nodes(pod_of("p", "gpu"), machine("m"), machine("n", "g"))
    for session in (None, await start(client)):
        scores = await post(client, "prioritize", asked, session)
        assert [each["Host"] for each in scores] == ["m", "n"]
        assert scores[0]["Score"] == 0
        assert scores[1]["Score"] in range(1, 11)


async def test_node_selected_books(client: AsyncClient) -> None:
    session = await start(client)
    assert await book(client, pod_of("p", "gpu"), machine("n", "g"), session) == {}
    assert await passing(client, pod_of("q", "gpu"), machine("n", "g"), session=session) == []
    reply = await book(client, pod_of("q", "gpu"), machine("n", "g"), session)
    assert reply == {"Error": f"pod ns/q can't be booked on node n: {NO_ROOM}"}


async def test_node_ready_says_why_not(client: AsyncClient, cluster: Cluster) -> None:
    assert await post(client, "NodeReady", {"NodeName": "a"}) == {"Ready": True}
    cluster.load(machine("new", "g"))
    reply = await post(client, "NodeReady", {"NodeName": "new"})
    assert reply["Ready"] is False
    assert "has published nothing for the node yet" in reply["Reason"]
    cluster.load(local_slice("new"))
    assert await post(client, "NodeReady", {"NodeName": "new"}) == {"Ready": True}


async def test_a_node_that_a_session_has_made_up_is_ready_once_it_exists(client: AsyncClient, cluster: Cluster) -> None:
    """The autoscaler makes the node under the name that it has made up; the session began before that."""
    session = await start(client)
    assert await passing(client, pod_of("p", "gpu"), machine("new", "g"), session=session) == ["new"]
    ask = {"NodeName": "new"}
    made_up = "the node does not exist: it was made up in this session"
    assert await post(client, "NodeReady", ask, session) == {"Ready": False, "Reason": made_up}
    cluster.load(machine("new", "g"))
    reason = "driver gpu.example.com has published nothing for the node yet (template g)"
    assert await post(client, "NodeReady", ask, session) == {"Ready": False, "Reason": reason}
    cluster.load(local_slice("new"))
    assert await post(client, "NodeReady", ask, session) == {"Ready": True}
    assert await passing(client, pod_of("q", "gpu"), machine("new", "g"), session=session) == ["new"]


async def test_estimate_answers_a_plan(client: AsyncClient) -> None:
    body = {
        "Pods": {"items": [pod_of("p", "gpu"), pod_of("q", "gpu"), pod_of("r", "nothing")]},
        "NodeGroups": [
            {"Name": "none", "Template": {"metadata": {}}, "Limit": 5},
            {"Name": "g", "Template": machine("t", "g"), "Limit": 5, "Priority": 1},
        ],
        "Expander": "priority",
    }
    assert await post(client, "estimate", body, await start(client)) == {
        "NodeGroups": [
            {"Name": "none", "Add": 0, "Nodes": [], "Devices": ""},
            {"Name": "g", "Add": 2, "Nodes": [{"Pods": ["ns/p"]}, {"Pods": ["ns/q"]}], "Devices": "template g"},
        ],
        "FailedPods": {"ns/r": "claim template nothing does not exist"},
    }


# --- without a session --------------------------------------------------------------------------------------


async def test_single_calls_see_the_latest_cluster_and_leave_nothing_behind(
    client: AsyncClient, cluster: Cluster
) -> None:
    before = cluster.state.snapshot
    assert await passing(client, pod_of("p", "gpu"), machine("a"), machine("n", "g")) == ["a", "n"]
    assert await passing(client, pod_of("p", "gpu"), machine("a"), machine("n", "g")) == ["a", "n"]
    assert cluster.state.snapshot is before
    cluster.load(claim("c", allocated=["a/gpu-0"], at="a"))
    assert await passing(client, pod_of("p", "gpu"), machine("a"), machine("n", "g")) == ["n"]


async def test_booking_needs_a_session(client: AsyncClient) -> None:
    reply = await book(client, pod_of("p", "gpu"), machine("a"), None)
    assert reply == {"Error": "NodeSelected books in a session: send the header session, with the id that start gave"}


# --- isolation ----------------------------------------------------------------------------------------------


async def test_two_autoscalers_at_once_do_not_see_each_other(client: AsyncClient) -> None:
    one, other = await start(client), await start(client)
    asked = pod_of("p", "gpu")
    replies = await asyncio.gather(*(book(client, asked, machine("a"), each) for each in (one, other)))
    assert replies == [{}, {}]
    third = await start(client)
    for session, expected in ((one, []), (other, []), (third, ["a"]), (None, ["a"])):
        assert await passing(client, pod_of("q", "gpu"), machine("a"), session=session) == expected


async def test_the_cluster_is_never_changed(client: AsyncClient, cluster: Cluster) -> None:
    before = cluster.state.snapshot
    session = await start(client)
    await book(client, pod_of("pending", "gpu"), machine("a"), session)
    await book(client, pod_of("p", "gpu"), machine("n", "g"), session)
    assert cluster.state.snapshot is before
    assert cluster.state.since(before.version).changed == {}
    body = asking(pod_of("pending", "gpu"), "a")
    await cluster.settle()
    assert (await client.post("/filter", content=orjson.dumps(body))).json()["NodeNames"] == ["a"]


async def test_a_session_answers_from_its_snapshot_while_the_cluster_moves(
    client: AsyncClient, cluster: Cluster
) -> None:
    session = await start(client)
    cluster.load(claim("c", allocated=["a/gpu-0"], at="a"))
    cluster.load(machine("b"))
    cluster.load(local_slice("b"))
    assert await passing(client, pod_of("p", "gpu"), machine("a"), machine("b"), session=session) == ["a"]
    assert await passing(client, pod_of("p", "gpu"), machine("a"), machine("b")) == ["b"]


async def test_calls_of_one_session_follow_each_other(client: AsyncClient) -> None:
    session = await start(client)
    pods = [pod_of(f"p{index}", "gpu") for index in range(10)]
    replies = await asyncio.gather(*(book(client, each, machine("a"), session) for each in pods))
    assert replies.count({}) == 1
    assert len({orjson.dumps(each) for each in replies}) == 10


async def test_devices_of_the_network_are_the_clusters(cluster: Cluster) -> None:
    cluster.load(network_slice("net", 1))
    cluster.load(claim("c", allocated=["net/gpu-0"]))
    async with client_of(app_of(cluster)) as client:
        sent = [machine(f"new-{index}") for index in range(3)]
        reply = await post(client, "filter", nodes(pod_of("p", "gpu"), *sent), await start(client))
    assert reply["FailedAndUnresolvableNodes"] == {f"new-{index}": NO_ROOM for index in range(3)}


# --- sessions that are gone ---------------------------------------------------------------------------------


GONE: Final = 5 * [("UnknownSession", "it has expired or made room for others")]


async def refusals(client: AsyncClient, session: str) -> list[tuple[str, str]]:
    """Code and reason of each refusal, one for each verb; without the last part of the reason."""
    bodies = {
        "filter": nodes(pod("plain"), machine("a")),
        "prioritize": nodes(pod("plain"), machine("a")),
        "NodeSelected": {"Pod": pod("plain"), "Node": machine("a")},
        "NodeReady": {"NodeName": "a"},
        "estimate": for_pods(),
    }
    replies = [await post(client, verb, body, session) for verb, body in bodies.items()]
    return [
        (reply["Code"], reply["Error"].removeprefix(f"no session {session!r}: ").split(", ")[0]) for reply in replies
    ]


@pytest.mark.parametrize("session", ["", "never-there"])
async def test_an_unknown_session_is_an_error(client: AsyncClient, session: str) -> None:
    assert await refusals(client, session) == GONE


async def test_an_expired_session_is_an_error(cluster: Cluster) -> None:
    clock = [0.0]
    autoscaler = autoscaler_over(cluster.state, NEW, clock=clock, limits=SessionLimits(seconds=60.0))
    async with client_of(app_of(cluster, autoscaler)) as client:
        session = await start(client)
        clock[0] = 60.5
        assert await refusals(client, session) == GONE


async def test_after_a_restart_the_session_is_gone_and_another_one_can_be_started(cluster: Cluster) -> None:
    async with client_of(app_of(cluster)) as client:
        await book(client, pod_of("p", "gpu"), machine("a"), session := await start(client))
    restarted = autoscaler_over(cluster.state, NEW, first=100)
    async with client_of(app_of(cluster, restarted)) as client:
        assert await refusals(client, session) == GONE
        assert await passing(client, pod_of("p", "gpu"), machine("a"), session=await start(client)) == ["a"]


async def test_a_session_that_grows_too_large_is_dropped(cluster: Cluster) -> None:
    autoscaler = autoscaler_over(cluster.state, NEW, limits=SessionLimits(size=10_000))
    async with client_of(app_of(cluster, autoscaler)) as client:
        session = await start(client)
        sent = [machine(f"n{index}", "g") for index in range(10)]
        reply = await post(client, "filter", nodes(pod_of("p", "gpu"), *sent), session)
        assert reply["Code"] == "SessionTooLarge"
        assert "the limit of 10000 bytes" in reply["Error"]
        assert await refusals(client, session) == GONE


async def test_ids_of_sessions_can_not_be_guessed(cluster: Cluster) -> None:
    async with client_of(cluster.app()) as client:
        ids = [await start(client) for _ in range(8)]
    assert len(set(ids)) == 8
    assert all(len(each) == 43 for each in ids)


# --- what is not a request ----------------------------------------------------------------------------------

GROUP: Object = {"Name": "g", "Template": {}, "Limit": 1}


BROKEN: list[tuple[str, object, str]] = [
    ("start", b"[1]", "expected an object, not [1]"),
    ("start", b"{", "the body is not JSON"),
    ("start", {"Drivers": "gpu.example.com"}, 'Drivers: expected a list, not "gpu.example.com"'),
    ("start", {"Drivers": []}, "Drivers: expected 1 to 64 drivers, not 0; without it, all count"),
    ("start", {"Drivers": [f"d{index}.example.com" for index in range(65)]}, "expected 1 to 64 drivers, not 65"),
    ("start", {"Drivers": ["a.example.com", 7]}, "Drivers[1]: expected a string, not 7"),
    ("start", {"Drivers": ["a driver"]}, 'Drivers[0]: "a driver" is not a driver\'s name'),
    ("filter", b"", "the body is empty"),
    ("filter", {"Pod": pod("p")}, "NodeNames: missing, and so is Nodes"),
    ("filter", nodes(pod("p"), {}), "Nodes.items[0].metadata.name: missing"),
    ("filter", nodes(pod("p"), machine("n") | {"status": 7}), "Nodes.items[0]: status: 7 is not an object"),
    ("prioritize", {"NodeNames": []}, "Pod: missing"),
    ("NodeSelected", {"Pod": pod("p")}, "Node: missing"),
    ("NodeSelected", {"Pod": pod("p"), "Node": {"metadata": {}}}, "Node.metadata.name: missing"),
    ("NodeSelected", {"Pod": None, "Node": machine("n")}, "Pod: null"),
    ("NodeReady", {"Node": "a"}, "NodeName: missing"),
    ("NodeReady", {"NodeName": 7}, "NodeName: expected a string, not 7"),
    ("estimate", {"NodeGroups": []}, "Pods: missing"),
    ("estimate", {"Pods": [], "NodeGroups": []}, "Pods: expected an object, not []"),
    ("estimate", for_pods(7), "Pods.items[0]: expected an object, not 7"),
    (
        "estimate",
        for_pods(pod("p", resources={"cpu": "x"})),
        'Pods.items[0]: spec.containers[0].resources.requests[cpu]: "x" is not a quantity',
    ),
    ("estimate", for_pods(pod("p"), pod("p")), "Pods.items[1]: pod ns/p is there twice"),
    (
        "estimate",
        for_pods(pod("p"), pod("q") | {"metadata": {"name": "q", "uid": "uid-p"}}),
        "Pods.items[1]: uid uid-p is there twice",
    ),
    ("estimate", for_groups({}), "NodeGroups[0].Name: missing"),
    ("estimate", for_groups({"Name": "g", "Limit": 1}), "NodeGroups[0].Template: missing"),
    ("estimate", for_groups({**GROUP, "Limit": -1}), "NodeGroups[0].Limit: must not be negative"),
    ("estimate", for_groups({**GROUP, "Limit": "9"}), "NodeGroups[0].Limit: expected an integer"),
    ("estimate", for_groups(GROUP, GROUP), "NodeGroups[1]: node group g is there twice"),
    (
        "estimate",
        for_groups({**GROUP, "Template": {"spec": {"taints": [{}]}}}),
        "NodeGroups[0].Template: spec.taints[0].key: is required",
    ),
    (
        "estimate",
        for_groups(Expander="least-wast"),
        'Expander: unknown expander "least-wast", did you mean "least-waste"?',
    ),
]


@pytest.mark.parametrize(("verb", "body", "message"), BROKEN)
async def test_a_broken_request_is_an_error_that_names_the_field(
    client: AsyncClient, verb: str, body: object, message: str
) -> None:
    for session in (None, await start(client)):
        reply = await post(client, verb, body, session)
        assert list(reply) == ["Error"]
        assert message in reply["Error"]


async def test_a_pod_without_a_uid_is_known_by_its_name(client: AsyncClient) -> None:
    session = await start(client)
    for name in ("p", "q"):
        raw = pod_of(name, "gpu")
        del raw["metadata"]["uid"]
        assert await book(client, raw, machine(f"n-{name}", "g"), session) == {}


async def test_a_cluster_that_is_not_synced_is_an_error(cluster: Cluster) -> None:
    unsynced = Cluster(ClusterState(), cluster.api)
    async with client_of(app_of(unsynced)) as client:
        for verb, body in (("start", b""), ("filter", nodes(pod("p"), machine("a")))):
            assert "not synced yet" in (await post(client, verb, body))["Error"]


# --- time ---------------------------------------------------------------------------------------------------


async def test_time_that_is_up_is_an_error_and_nothing_is_booked(cluster: Cluster) -> None:
    clock = HeldClock()
    decider = Decider(replace(solver(), clock=clock), cluster.state)
    autoscaler = replace(autoscaler_over(cluster.state, NEW), decider=decider)
    session = start_session(InSession(autoscaler))
    settings = load("autoscaler: {deadlineSeconds: 0.05}")
    async with client_of(app_of(cluster, autoscaler, settings)) as client:
        reply = await book(client, pod_of("p", "gpu"), machine("a"), session)
        clock.go.set()
        assert reply == {"Error": "autoscaler/NodeSelected was not done within its deadline of 0.05 s"}
        assert autoscaler.sessions.find(session).world.snapshot is cluster.state.snapshot


async def test_health_is_answered_while_a_plan_is_made(cluster: Cluster) -> None:
    clock = HeldClock()
    decider = Decider(replace(solver(), clock=clock), cluster.state)
    autoscaler = replace(autoscaler_over(cluster.state, NEW), decider=decider)
    body = {
        "Pods": {"items": [pod_of("p", "gpu")]},
        "NodeGroups": [{"Name": "g", "Template": machine("t", "g"), "Limit": 1}],
    }
    async with client_of(app_of(cluster, autoscaler)) as client:
        planning = asyncio.create_task(post(client, "estimate", body))
        await asyncio.to_thread(clock.reached.wait)
        assert (await client.get("/livez")).text == "ok\n"
        clock.go.set()
        assert (await planning)["NodeGroups"][0]["Add"] == 1


# --- documentation ------------------------------------------------------------------------------------------


async def test_the_documented_examples_run(client: AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    session = await start(client)
    for verb in [each.name for each in AUTOSCALER_VERBS]:
        operation = paths[f"/autoscaler/{verb}"]["post"]
        request = operation["requestBody"]["content"]["application/json"]["example"]
        reply = operation["responses"]["200"]["content"]["application/json"]["example"]
        found = await post(client, verb, request, session)
        assert found == reply if verb != "start" else set(found) == set(reply)
        assert [each["name"] for each in operation["parameters"]] == ([] if verb == "start" else ["session"])


async def test_calls_are_counted(client: AsyncClient) -> None:
    await post(client, "NodeReady", {"NodeName": "a"})
    await post(client, "NodeReady", {})
    text = (await client.get("/metrics")).text
    assert 'dra_extender_verb_duration_seconds_count{code="ok",verb="autoscaler/NodeReady"} 1.0' in text
    assert 'dra_extender_verb_duration_seconds_count{code="error",verb="autoscaler/NodeReady"} 1.0' in text
