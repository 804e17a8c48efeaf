"""What people see of sessions: plans with devices, bounded, and no ids."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI
from httpx import AsyncClient

from extender.autoscaler.autoscaler import Autoscaler, InSession
from extender.autoscaler.sessions import PassedCall, PeerReply, Peers
from extender.autoscaler.verbs import start_session
from extender.faces.http.endpoints.autoscaler import MOST_NODES, SessionViews, add_autoscaler_sessions
from extender.kube.api import ObjectKey
from tests.extender.autoscaler.http_scenes import NEW, app_of, book, post, start
from tests.extender.autoscaler.scenes import autoscaler_over, machine, pod_of
from tests.kit.clusters import GPU, Cluster, claim_template, client_of


class Nobody:
    """A connection that is not used: sessions of other replicas are not read."""

    async def send(self, address: str, call: PassedCall) -> PeerReply:
        raise AssertionError((address, call))


NOW = datetime(2026, 2, 1, 12, 0, 0, tzinfo=UTC)


def cluster() -> Cluster:
    return Cluster.of(GPU, claim_template())


def views_of(autoscaler: Autoscaler, process: str = "process") -> SessionViews:
    return SessionViews(autoscaler, lambda: NOW, process)


def document(autoscaler: Autoscaler) -> Any:
    views = views_of(autoscaler)
    return views.document(views.seen())


def node_counts(found: Any) -> list[int]:
    return [each["nodeCount"] for each in found["sessions"]]


async def read(client: AsyncClient, after: str = "") -> Any:
    return (await client.get("/console/sessions", params={"after": after})).json()


async def test_only_the_position_is_sent_if_nothing_has_changed() -> None:
    world = cluster()
    async with client_of(app_of(world, autoscaler_over(world.state, NEW))) as client:
        first = await read(client)
        assert first["sessions"] == []
        assert await read(client, first["position"]) == {"position": first["position"]}
        session = await start(client)
        second = await read(client, first["position"])
        assert [each["nodeCount"] for each in second["sessions"]] == [0]
        assert await book(client, pod_of("p", "gpu"), machine("made-up", "g"), session) == {}
        third = await read(client, second["position"])
        assert third["sessions"][0]["booked"] == ["ns/p"]
        assert third["sessions"][0]["nodes"][0]["pods"][0]["pod"] == "ns/p"
        assert session not in str(third)


async def test_a_page_of_another_process_reads_everything_again() -> None:
    autoscaler = autoscaler_over(cluster().state, NEW)
    assert views_of(autoscaler, "one").seen().position != views_of(autoscaler, "two").seen().position
    world = cluster()
    applications = [app_of(world, autoscaler_over(world.state, NEW)) for _ in range(2)]
    positions = []
    for app in applications:
        async with client_of(app) as client:
            positions.append((await read(client))["position"])
    assert positions[0] != positions[1]


async def test_sessions_are_told_as_they_were_when_they_were_looked_at() -> None:
    world = cluster()
    autoscaler = autoscaler_over(world.state, NEW)
    session = start_session(InSession(autoscaler, caller="me"))
    views = views_of(autoscaler)
    before = views.seen()
    async with client_of(app_of(world, autoscaler)) as client:
        assert await book(client, pod_of("p", "gpu"), machine("made-up", "g"), session) == {}
    assert node_counts(views.document(before)) == [0]
    assert node_counts(views.document(views.seen())) == [1]


async def test_pages_that_ask_at_once_are_answered_by_one_document() -> None:
    looked = []

    def now() -> datetime:
        """Is asked once for each session of a document."""
        looked.append(NOW)
        return NOW

    autoscaler = autoscaler_over(cluster().state, NEW)
    start_session(InSession(autoscaler, caller="me"))
    app = FastAPI()
    add_autoscaler_sessions(app, SessionViews(autoscaler, now, "process"))
    async with client_of(app) as client:
        answers = await asyncio.gather(*(read(client) for _ in range(20)))
    assert {each["sessions"][0]["caller"] for each in answers} == {"me"}
    assert 1 <= len(looked) <= 2


async def test_the_caller_is_the_program_and_at_most_a_hundred_characters() -> None:
    world = cluster()
    async with client_of(app_of(world, autoscaler_over(world.state, NEW))) as client:
        await client.post("/autoscaler/start", headers={"user-agent": "x" * 500})
        assert [each["caller"] for each in (await read(client))["sessions"]] == ["x" * 100]


async def test_a_plan_is_shown_with_devices_and_its_nodes_are_bounded() -> None:
    world = cluster()
    clock = [0.0]
    autoscaler = autoscaler_over(world.state, NEW, clock=clock)
    session = start_session(InSession(autoscaler, caller="me"))
    clock[0] = 90.0
    pods = [pod_of(f"p{number}", "gpu") for number in range(MOST_NODES + 5)]
    async with client_of(app_of(world, autoscaler)) as client:
        group = {"Name": "g", "Template": machine("template", "g"), "Limit": 1000}
        asked = {"Pods": {"items": pods}, "NodeGroups": [group]}
        plan = await post(client, "estimate", asked, session)
    assert plan["NodeGroups"][0]["Add"] == MOST_NODES + 5
    (found,) = document(autoscaler)["sessions"]
    assert (found["caller"], found["started"]) == ("me", "2026-02-01T11:58:30+00:00")
    (shown,) = found["plan"]["groups"]
    assert (shown["add"], len(shown["nodes"])) == (MOST_NODES + 5, MOST_NODES)
    assert all(len(each["pods"][0]["devices"]) == 1 for each in shown["nodes"])
    assert {each["stranded"] for each in shown["nodes"]} == {0}


async def test_other_replicas_are_told_to_be_there() -> None:
    world = cluster()
    alone = autoscaler_over(world.state, NEW)
    together = autoscaler_over(
        world.state, NEW, peers=Peers(world.api, ObjectKey("kube-system", "one"), Nobody(), lambda: 0.0)
    )
    assert (document(alone)["others"], document(together)["others"]) == (False, True)
