"""Questions over HTTP: who may ask, in which form, and what bounds the work."""

import asyncio
import threading
from collections.abc import MutableMapping
from dataclasses import replace
from typing import Final
from urllib.parse import quote

import orjson
import pytest
from fastapi import FastAPI
from httpx import AsyncClient

from extender.answers.asking import ANSWER_SECONDS
from extender.answers.whatif.answering import WhatIf
from extender.answers.whatif.question import Question, QuestionError, read_question
from extender.faces.http.app import Listener
from extender.faces.http.bodies import Bodies
from extender.faces.http.endpoints.what_if import LONGEST_QUESTION, add_what_if
from extender.kube.resources import PODS
from extender.planning.templates import Catalog
from extender.tools.fairness import MOST_WAITING, CrowdedError
from extender.tools.faults import RefusedError
from extender.tools.intake import Budget
from tests.extender.answers.explain.http_scenes import IN_USE
from tests.kit.clusters import Cluster, HeldClock, client_of

OBJECTS = IN_USE
JSON: Final = {"accept": "application/json"}
DRAIN: Final = quote(orjson.dumps({"drain": ["a"]}))


async def test_text_for_terminals_and_json_where_it_is_accepted(client: AsyncClient) -> None:
    text = await client.post("/what-if", content="drain: [a]")
    found = await client.post("/what-if", content='{"drain": ["a"]}', headers=JSON)
    assert (text.status_code, text.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert found.json()["text"] == text.text
    assert "drained pod ns/somebody would lose its place" in text.text


async def test_the_address_and_the_body_ask_the_same(client: AsyncClient) -> None:
    in_address = await client.get(f"/what-if?question={DRAIN}", headers=JSON)
    in_body = await client.post("/what-if", content='{"drain": ["a"]}', headers=JSON)
    assert in_address.json() == in_body.json()
    assert (await client.get("/what-if")).text == (await client.post("/what-if", content="")).text


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"sec-fetch-site": "same-origin"}, 200),
        ("POST", {}, 200),
        ("POST", {"sec-fetch-site": "same-origin", "origin": "http://localhost"}, 403),
        ("GET", {"sec-fetch-site": "cross-site"}, 403),
        ("POST", {"sec-fetch-site": "cross-site", "content-type": "application/json"}, 403),
        ("GET", {"origin": "http://evil.example"}, 403),
        ("POST", {"origin": "http://evil.example", "content-type": "text/plain"}, 403),
    ],
)
async def test_the_console_asks_by_its_address_and_other_sites_cannot_ask(
    client: AsyncClient, method: str, headers: dict[str, str], status: int
) -> None:
    path = f"/what-if?question={DRAIN}" if method == "GET" else "/what-if"
    reply = await client.request(method, path, headers=headers, content="{}" if method == "POST" else None)
    assert reply.status_code == status


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"[1]", 400, "expected an object, not [1]"),
        (b"{", 400, "the body is not JSON"),
        (b"a: [", 400, "the body is neither JSON nor YAML"),
        (b"\xff", 400, "not text in UTF-8"),
        (b"[" * 10_000, 400, "the body is not JSON: depth limit exceeded"),
        (b"[" * 100_000, 400, "the body is not JSON: depth limit exceeded"),
        (b'{"drain": ["' + b"a" * 300_000 + b'"]}', 413, "the body is longer than the limit of 262144 bytes"),
    ],
)
async def test_a_body_that_cannot_be_read_is_told(client: AsyncClient, body: bytes, status: int, error: str) -> None:
    reply = await client.post("/what-if", content=body)
    assert (reply.status_code, error in reply.json()["error"]) == (status, True), reply.json()


async def test_a_question_that_is_too_long_for_an_address_is_told(client: AsyncClient) -> None:
    reply = await client.get(f"/what-if?question={'x' * (LONGEST_QUESTION + 1)}")
    assert reply.status_code == 400
    assert "question" in reply.json()["error"]
    assert (await client.get("/what-if?q=1")).status_code == 400


async def test_a_cluster_that_is_not_known_is_told() -> None:
    cluster = Cluster.of()
    overview = cluster.extender().overview
    overview.state.doubt(PODS, "not synced")
    with pytest.raises(RefusedError, match="not ready"):
        await WhatIf(overview, Catalog(), preempts=True).ask(Question())


@pytest.mark.parametrize(
    ("listener", "status"), [(Listener.SERVER, 200), (Listener.API, 200), (Listener.OPERATIONS, 404)]
)
async def test_it_is_where_explanations_are(listener: Listener, status: int) -> None:
    async with client_of(Cluster.of(*IN_USE).app(listener=listener)) as client:
        assert (await client.get("/what-if")).status_code == status


def what_if_with(clock: HeldClock) -> WhatIf:
    """Over a service whose searches stop at a clock."""
    overview = Cluster.of(*IN_USE).extender().overview
    overview.decider.solver = replace(overview.decider.solver, clock=clock)
    return WhatIf(overview, Catalog(), preempts=True)


async def test_the_work_ends_when_nobody_waits_for_it_any_more() -> None:
    clock = HeldClock()
    what_if = what_if_with(clock)
    asking = asyncio.create_task(what_if.ask(Question()))
    await asyncio.to_thread(clock.reached.wait)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    clock.go.set()
    assert (await what_if.ask(Question())).pods


class CountingClock(HeldClock):
    """Knows the threads that have come to it."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def __call__(self) -> float:
        self.threads.add(threading.get_ident())
        return super().__call__()


async def test_work_whose_caller_has_left_keeps_its_turn_until_it_ends() -> None:
    """Else callers that ask and leave at once would have any number of answers worked out at the same time."""
    clock = CountingClock()
    what_if = what_if_with(clock)
    leaving = [asyncio.create_task(what_if.ask(Question())) for _ in range(3)]
    await asyncio.to_thread(clock.reached.wait)
    for each in leaving:
        each.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    asking = asyncio.create_task(what_if.ask(Question()))
    await asyncio.wait([asking], timeout=0.05)
    assert len(clock.threads - {threading.get_ident()}) == 1
    clock.go.set()
    assert (await asking).pods


async def test_very_many_entries_are_refused_before_they_are_read() -> None:
    question = {"drain": [f"node-{number}" for number in range(30_000)], "pods": [{}] * 101}
    with pytest.raises(QuestionError) as refused:
        read_question(question)
    expected = ["drain: at most 100 are possible, not 30000", "pods: at most 100 are possible, not 101"]
    assert [str(each) for each in refused.value.problems] == expected


async def test_questions_wait_for_each_other_and_too_many_are_refused() -> None:
    clock = HeldClock()
    what_if = what_if_with(clock)
    asking = [asyncio.create_task(what_if.ask(Question())) for _ in range(MOST_WAITING + 1)]
    await asyncio.to_thread(clock.reached.wait)
    with pytest.raises(CrowdedError, match=f"{MOST_WAITING} other requests of yours wait"):
        await what_if.ask(Question())
    clock.go.set()
    assert len(await asyncio.gather(*asking)) == MOST_WAITING + 1


async def test_an_answer_that_takes_too_long_is_refused() -> None:
    overview, times = Cluster.of(*IN_USE).extender().overview, iter(range(0, 10_000, int(ANSWER_SECONDS) // 2))
    overview.decider.solver = replace(overview.decider.solver, clock=lambda: float(next(times)))
    with pytest.raises(RefusedError, match=f"takes longer than {ANSWER_SECONDS:g} s"):
        await WhatIf(overview, Catalog(), preempts=True).ask(Question())


async def test_the_work_ends_when_the_client_leaves() -> None:
    """The answer would never come: the clock stands still until it is let go."""
    clock = HeldClock()
    what_if = what_if_with(clock)
    app = FastAPI()
    add_what_if(app, what_if, Bodies(1 << 20, Budget()))
    sent: list[str] = []

    async def receive() -> dict[str, object]:
        await asyncio.to_thread(clock.reached.wait)
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, object]) -> None:
        sent.append(str(message["type"]))

    scope = {"type": "http", "method": "GET", "path": "/what-if", "query_string": b"", "headers": []}
    await asyncio.wait_for(app(scope, receive, send), timeout=30)
    clock.go.set()
    assert sent == ["http.response.start", "http.response.body"]
    assert (await what_if.ask(Question())).pods
