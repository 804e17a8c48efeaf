"""Moves that a running service is asked for: over HTTP, in which form, and what bounds the search."""

import asyncio
from dataclasses import replace
from typing import Final

import pytest
from httpx import AsyncClient

from extender.answers.asking import ANSWER_SECONDS
from extender.answers.defragmentation.defragment import AskedMoves
from extender.faces.http.app import Listener
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from extender.tools.faults import RefusedError
from tests.extender.answers.defragmentation.scenes import moves, runs, waits
from tests.kit.clusters import GPU, Cluster, HeldClock, client_of, local_slice, node

OBJECTS = [
    GPU,
    *(each for name in "ab" for each in (node(name), local_slice(name, 2))),
    *moves("web", "a/gpu-0", on="a"),
    *runs("lonely", "b/gpu-0", on="b"),
    *waits("training", 2),
]
"""Two nodes with a free device each, a pod that wants two of them, and a pod that may move."""

JSON: Final = {"accept": "application/json"}


async def test_each_proposal_has_the_commands_that_carry_it_out(client: AsyncClient) -> None:
    found = (await client.get("/defragment", headers=JSON)).json()
    (shape,) = found["shapes"]
    assert shape["pods"] == ["ns/training"]
    assert shape["proposal"]["placed"] == ["ns/training"]
    assert [(each["pod"], each["from"], each["to"]) for each in shape["proposal"]["moves"]] == [("ns/web", "a", "b")]
    assert shape["proposal"]["commands"] == [
        "kubectl cordon a",
        "kubectl delete pod --namespace ns web",
        "kubectl uncordon a",
    ]
    assert found["protected"] == [{"reason": "no controller makes it again", "names": ["pod ns/lonely"]}]


async def test_text_for_terminals(client: AsyncClient) -> None:
    reply = await client.get("/defragment")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert "move ns/web from a to b" in reply.text
    assert reply.text.endswith("not moved: pod ns/lonely: no controller makes it again\n")


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ("pod=ns/training", 200, ""),
        ("pod=ns/nobody", 400, "pod ns/nobody does not exist"),
        ("pod=ns/web", 400, "pod ns/web is not pending: its node is a"),
        ("moves=0", 400, "moves"),
        ("moves=17", 400, "moves"),
        ("pods=ns/training", 400, "pods"),
    ],
)
async def test_what_names_nothing_is_told(client: AsyncClient, query: str, status: int, error: str) -> None:
    reply = await client.get(f"/defragment?{query}", headers=JSON)
    assert (reply.status_code, error in reply.text) == (status, True), reply.text


@pytest.mark.parametrize(
    ("listener", "status"), [(Listener.SERVER, 200), (Listener.API, 200), (Listener.OPERATIONS, 404)]
)
async def test_it_is_where_explanations_are(listener: Listener, status: int) -> None:
    async with client_of(Cluster.of(*OBJECTS).app(listener=listener)) as client:
        assert (await client.get("/defragment")).status_code == status


def asked_with(clock: HeldClock) -> AskedMoves:
    """Over a service whose searches stop at a clock."""
    overview = Cluster.of(*OBJECTS).extender().overview
    overview.decider.solver = replace(overview.decider.solver, clock=clock)
    return AskedMoves(overview)


async def test_the_search_ends_when_nobody_waits_for_it_any_more() -> None:
    clock = HeldClock()
    asked = asked_with(clock)
    asking = asyncio.create_task(asked.ask(None, 3))
    await asyncio.to_thread(clock.reached.wait)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    clock.go.set()
    assert (await asked.ask(ObjectKey("ns", "training"), 3)).proposals


async def test_a_search_that_takes_too_long_is_refused() -> None:
    overview, times = Cluster.of(*OBJECTS).extender().overview, iter(range(0, 1_000_000, int(ANSWER_SECONDS) * 2))
    overview.decider.solver = replace(overview.decider.solver, clock=lambda: float(next(times)))
    with pytest.raises(RefusedError, match=f"{ANSWER_SECONDS:g} s are not enough"):
        await AskedMoves(overview).ask(None, 3)


async def test_a_cluster_that_is_not_known_is_told() -> None:
    overview = Cluster.of().extender().overview
    overview.state.doubt(PODS, "not synced")
    with pytest.raises(RefusedError, match="not ready"):
        await AskedMoves(overview).ask(None, 3)
