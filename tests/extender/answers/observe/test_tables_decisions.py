"""The table of decisions on HTTP."""

from httpx import AsyncClient

from extender.config.sources import load
from tests.extender.answers.observe.scenes import SHOWN, ask, items
from tests.kit.clusters import Cluster, asking, binding, client_of, pod

OBJECTS = SHOWN


async def test_decisions_come_latest_first_and_say_why(client: AsyncClient) -> None:
    args = asking(pod("p", "wanted"), "a", "b", "new")
    await ask(client, "filter", args)
    await ask(client, "bind", binding("p", "a"))
    await ask(client, "bind", binding("p", "b"))
    bound, failed, filtered = await items(client, "/decisions")
    assert [bound["verb"], bound["node"], bound["error"]] == ["bind", "b", ""]
    assert [failed["verb"], failed["node"], failed["passed"]] == ["bind", "a", 0]
    assert "no free device for request gpu" in failed["error"]
    assert (filtered["verb"], filtered["passed"]) == ("filter", 1)
    assert filtered["rejected"] == {"no free device for request gpu": 1, "node not yet known": 1}
    assert len({bound["id"], failed["id"], filtered["id"]}) == 3


async def test_decisions_can_be_asked_for_by_pod_and_verb(client: AsyncClient) -> None:
    for verb in ("filter", "prioritize"):
        await ask(client, verb, asking(pod("p", "wanted"), "b"))
    victims = {"b": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}
    args = {"Pod": pod("p", "wanted", priority=9), "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    await ask(client, "preempt", args)
    assert [each["verb"] for each in await items(client, "/decisions?pod=p")] == ["preempt", "filter"]
    assert [each["verb"] for each in await items(client, "/decisions?verb=filter&namespace=ns")] == ["filter"]
    assert await items(client, "/decisions?pod=other") == []


async def test_pods_without_devices_leave_no_decision(client: AsyncClient) -> None:
    await ask(client, "filter", asking(pod("plain"), "a"))
    await ask(client, "bind", binding("plain", "a"))
    assert await items(client, "/decisions") == []


async def test_only_so_many_decisions_are_kept(cluster: Cluster) -> None:
    async with client_of(cluster.app(load("server: {decisions: 2}"))) as client:
        for name in "abc":
            await ask(client, "filter", {"Pod": pod("p", "wanted"), "Nodes": None, "NodeNames": [name]})
        assert [each["passed"] for each in await items(client, "/decisions")] == [1, 1]
