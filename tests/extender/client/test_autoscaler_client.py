"""The client: every call and every answer, async over the service itself, sync over recorded answers."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import orjson
import pytest

from extender.autoscaler.verbs import AUTOSCALER_VERBS
from extender.client import (
    AddedNodes,
    AsyncAutoscalerClient,
    AutoscalerClient,
    AutoscalerError,
    Filtered,
    NodeGroup,
    Plan,
    ProtocolError,
    Readiness,
    UnknownSessionError,
    UnreachableError,
)
from extender.config.settings import Settings
from extender.faces.http.app import create_app
from tests.extender.autoscaler.scenes import autoscaler_over, machine, node_template, pod_of
from tests.kit.clusters import GPU, Cluster, claim_template, client_of, local_slice

OBJECTS = (GPU, claim_template(), machine("a"), local_slice("a"))


@pytest.fixture
async def client() -> AsyncIterator[AsyncAutoscalerClient]:
    cluster = Cluster.of(*OBJECTS)
    app = create_app(cluster.extender(), autoscaler_over(cluster.state, node_template("g", 2)), Settings())
    async with AsyncAutoscalerClient(client_of(app)) as found:
        yield found


# --- async, over the service --------------------------------------------------------------------------------


async def test_a_cycle_of_an_autoscaler(client: AsyncAutoscalerClient) -> None:
    session = await client.start()
    nodes = [machine("a"), machine("n", "g"), machine("m")]
    found = await session.filter(pod_of("p", "gpu"), nodes)
    assert found == Filtered(("a", "n"), {"m": "no device for request gpu"})
    scores = await session.prioritize(pod_of("p", "gpu"), nodes)
    assert (set(scores), scores["m"]) == ({"a", "n", "m"}, 0)
    await session.book(pod_of("p", "gpu"), nodes[0])
    assert (await session.filter(pod_of("q", "gpu"), nodes)).passed == ("n",)
    assert await session.node_ready("a") == Readiness(ready=True)
    assert await session.node_ready("new") == Readiness(ready=False, reason="node not yet known")
    pods = [*(pod_of(f"q{index}", "gpu") for index in range(3)), pod_of("x", "nothing")]
    plan = await session.estimate(pods, [NodeGroup("g", machine("t", "g"), 5), NodeGroup("h", machine("t"), 5)])
    assert plan == Plan(
        (AddedNodes("g", (("ns/q0", "ns/q1"), ("ns/q2",)), "template g"), AddedNodes("h")),
        {"ns/x": "claim template nothing does not exist"},
    )


async def test_single_calls_see_the_cluster_as_it_is(client: AsyncAutoscalerClient) -> None:
    await (await client.start()).book(pod_of("p", "gpu"), machine("a"))
    assert (await client.latest.filter(pod_of("q", "gpu"), [machine("a")])).passed == ("a",)
    with pytest.raises(AutoscalerError, match="NodeSelected books in a session"):
        await client.latest.book(pod_of("q", "gpu"), machine("a"))


async def test_a_refusal_is_an_error_with_the_services_own_words(client: AsyncAutoscalerClient) -> None:
    session = await client.start()
    with pytest.raises(AutoscalerError, match="pod ns/p can't be booked on node m: no device for request gpu"):
        await session.book(pod_of("p", "gpu"), machine("m"))
    with pytest.raises(AutoscalerError, match='unknown expander "most-waste", did you mean "least-waste"'):
        await session.estimate([], [], expander="most-waste")


async def test_a_session_that_is_gone_is_an_error_of_its_own(client: AsyncAutoscalerClient) -> None:
    first, *others = [await client.start() for _ in range(9)]
    with pytest.raises(UnknownSessionError, match="start another one"):
        await first.node_ready("a")
    assert (await others[-1].node_ready("a")).ready


async def test_a_service_that_is_not_there_is_an_error_of_its_own() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    http = httpx.AsyncClient(transport=httpx.MockTransport(refuse), base_url="http://nobody")
    async with AsyncAutoscalerClient(http) as client:
        with pytest.raises(UnreachableError, match="start: http://nobody: Connection refused"):
            await client.start()
    assert http.is_closed


# --- sync, over answers as the service gives them -----------------------------------------------------------


def over(answer: Callable[[httpx.Request], httpx.Response]) -> AutoscalerClient:
    return AutoscalerClient(httpx.Client(transport=httpx.MockTransport(answer), base_url="http://extender"))


def answering(**replies: object) -> tuple[AutoscalerClient, list[httpx.Request]]:
    """A client whose service answers each verb with the same."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=replies[request.url.path.removeprefix("/autoscaler/")])

    return over(answer), asked


ITEMS = {"items": [machine("a")]}
CALLS: dict[str, tuple[Callable[[Any], object], object, object, object]] = {
    "filter": (
        lambda session: session.filter(pod_of("p"), [machine("a")]),
        {"Nodes": ITEMS, "FailedNodes": {"b": "waits"}, "FailedAndUnresolvableNodes": {"c": "no"}},
        {"Pod": pod_of("p"), "Nodes": ITEMS, "NodeNames": None},
        Filtered(("a",), {"b": "waits", "c": "no"}),
    ),
    "prioritize": (
        lambda session: session.prioritize(pod_of("p"), [machine("a")]),
        [{"Host": "a", "Score": 7}],
        {"Pod": pod_of("p"), "Nodes": ITEMS, "NodeNames": None},
        {"a": 7},
    ),
    "NodeSelected": (
        lambda session: session.book(pod_of("p"), machine("a")),
        {},
        {"Pod": pod_of("p"), "Node": machine("a")},
        None,
    ),
    "NodeReady": (
        lambda session: session.node_ready("a"),
        {"Ready": False, "Reason": "later"},
        {"NodeName": "a"},
        Readiness(ready=False, reason="later"),
    ),
    "estimate": (
        lambda session: session.estimate([pod_of("p")], [NodeGroup("g", machine("t"), 3, 1)], expander="priority"),
        {"NodeGroups": [{"Name": "g", "Add": 1, "Nodes": [{"Pods": ["ns/p"]}], "Devices": ""}], "FailedPods": {}},
        {
            "Pods": {"items": [pod_of("p")]},
            "NodeGroups": [{"Name": "g", "Template": machine("t"), "Limit": 3, "Priority": 1}],
            "Expander": "priority",
        },
        Plan((AddedNodes("g", (("ns/p",),)),)),
    ),
}


def test_the_client_has_a_call_for_each_verb() -> None:
    assert {"start", *CALLS} == {verb.name for verb in AUTOSCALER_VERBS}


@pytest.mark.parametrize("verb", CALLS)
def test_what_is_sent_and_what_the_answer_means(verb: str) -> None:
    call, reply, body, expected = CALLS[verb]
    client, asked = answering(start={"Session": "s1"}, **{verb: reply})
    with client:
        assert call(client.start()) == expected
        assert call(client.latest) == expected
    started, within, single = asked
    assert (started.url.path, "session" in started.headers) == ("/autoscaler/start", False)
    assert (within.url.path, within.headers["session"]) == (f"/autoscaler/{verb}", "s1")
    assert "session" not in single.headers
    assert orjson.loads(within.content) == orjson.loads(single.content) == body


STRANGE: dict[str, tuple[httpx.Response, str]] = {
    "another status": (httpx.Response(404, json={"error": "no such path"}), 'start: status 404: {"error"'),
    "no JSON": (httpx.Response(200, text="<html>"), "start: status 200, not an answer of the service: <html>"),
    "nothing": (httpx.Response(502), "start: status 502, not an answer of the service: an empty body"),
    "another answer": (httpx.Response(200, json={"id": 7}), "start: status 200, not an answer of the service"),
    "another type": (httpx.Response(200, json={"Session": 7}), "start: status 200, not an answer of the service"),
    "a list": (httpx.Response(200, json=[1]), "start: status 200, not an answer of the service"),
}


@pytest.mark.parametrize(("response", "message"), STRANGE.values(), ids=STRANGE)
def test_what_is_no_answer_of_the_service_is_told_apart(response: httpx.Response, message: str) -> None:
    with over(lambda _: response) as client, pytest.raises(ProtocolError) as caught:
        client.start()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("code", ["UnknownSession", "SessionTooLarge"])
def test_errors_that_ask_for_another_session(code: str) -> None:
    with over(lambda _: httpx.Response(200, json={"Error": "gone", "Code": code})) as client:
        with pytest.raises(UnknownSessionError, match="gone") as caught:
            client.latest.node_ready("a")
        assert caught.value.code == code


def test_a_timeout_is_told_even_where_it_has_no_text() -> None:
    def late(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("")

    with over(late) as client, pytest.raises(UnreachableError, match="ReadTimeout"):
        client.start()


def test_a_status_object_before_the_service_is_its_own_words() -> None:
    """The port for callers off the node refuses as an API server does."""
    status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": 'user "ann" may not post path "/x"'}
    with over(lambda _: httpx.Response(403, json=status)) as client, pytest.raises(AutoscalerError) as caught:
        client.start()
    assert (str(caught.value), caught.value.code) == ('start: user "ann" may not post path "/x"', "Forbidden")
