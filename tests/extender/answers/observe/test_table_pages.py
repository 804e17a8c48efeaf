"""The tables on HTTP, page by page, as text and as JSON, and what is said of wrong parameters."""

import pytest
from httpx import AsyncClient

from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import DEVICE_QUOTAS, SLICES
from tests.extender.answers.observe.scenes import ALL_DEVICES, SHOWN, ask, items
from tests.kit.clusters import DRIVER, Cluster, asking, local_slice, pod
from tests.kit.objects.parts import api_object

OBJECTS = SHOWN


@pytest.mark.parametrize("limit", [1, 2, 4, 5, 6, 7])
async def test_pages_together_are_the_whole(client: AsyncClient, limit: int) -> None:
    found: list[str] = []
    token = ""
    while True:
        query = f"/devices?format=json&limit={limit}" + (f"&continue={token}" if token else "")
        page = (await client.get(query)).json()
        assert len(page["items"]) <= limit
        found += [f"{each['pool']}/{each['device']} {each['state']}" for each in page["items"]]
        token = page.get("continue", "")
        if not token:
            break
    assert found == ALL_DEVICES


async def test_a_page_goes_on_behind_what_has_gone_meanwhile(client: AsyncClient, cluster: Cluster) -> None:
    token = (await client.get("/devices?format=json&limit=3")).json()["continue"]
    await cluster.api.delete(SLICES, ObjectKey("", "slice-b"))
    found = (await client.get(f"/devices?format=json&continue={token}")).json()["items"]
    assert [each["pool"] for each in found] == ["c", "c"]


async def test_terminals_get_text(client: AsyncClient) -> None:
    response = await client.get("/devices?pool=a&limit=1")
    assert response.headers["content-type"].startswith("text/plain")
    heading, row, more = response.text.splitlines()
    assert heading.split() == ["DRIVER", "POOL", "DEVICE", "NODE", "STATE", "CLAIMS", "TAINTS", "BLOCKED", "BY", "WHY"]
    assert row.split() == [DRIVER, "a", "gpu-0", "a", "allocated", "ns/held", "-", "-", "-"]
    token = more.partition("continue=")[2]
    rest = (await client.get(f"/devices?pool=a&continue={token}")).text.splitlines()
    assert [line.split()[2] for line in rest[1:]] == ["gpu-1"]


@pytest.mark.parametrize(
    ("accept", "query", "is_json"),
    [
        ("*/*", "", False),
        ("application/json", "", True),
        ("application/json", "?format=text", False),
        ("*/*", "?format=json", True),
        ("text/html,application/xhtml+xml", "", False),
        ("application/json;q=0", "", False),
        ("application/json;q=0, */*", "", False),
        ("text/plain;q=0, */*", "", True),
        ("application/*", "", True),
        ("application/json, */*", "", True),
        ("*/*;q=0.1, Application/JSON; charset=utf-8; Q=0.2", "", True),
        ("application/json;q=0.9, text/plain", "", False),
        ("text/plain;q=0.9, application/json", "", True),
        ("application/json, text/plain", "", True),
        ("application/json;q=x", "", True),
        ("text/plain;q=0", "?format=text", False),
    ],
)
async def test_who_accepts_json_gets_json(client: AsyncClient, accept: str, query: str, is_json: bool) -> None:
    response = await client.get(f"/pools{query}", headers={"accept": accept})
    assert (response.headers["content-type"] == "application/json") is is_json


@pytest.mark.parametrize("accept", ["text/plain;q=0", "*/*;q=0", "application/json;q=0, text/*;q=0, text/html"])
async def test_who_takes_neither_gets_neither(client: AsyncClient, accept: str) -> None:
    response = await client.get("/pools", headers={"accept": accept})
    assert response.status_code == 406
    assert response.json() == {"error": "there is text/plain and application/json"}


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/devices?fre=true", 'unknown parameter "fre", did you mean "free"?'),
        ("/devices?State=free", 'unknown parameter "State", did you mean "state"?'),
        ("/claims?pods=x", 'unknown parameter "pods", did you mean "pod"?'),
        (
            "/pools?x=1&nod=2",
            'unknown parameter "x" (known: continue, driver, format, limit, node); unknown parameter "nod"',
        ),
        ("/cluster?kind=Pod", 'unknown parameter "kind" (known: continue, format, limit)'),
        ("/decisions?ns=x", 'unknown parameter "ns"'),
        ("/problems?kinds=x", 'unknown parameter "kinds", did you mean "kind"?'),
        ("/problems?kind=resourceslices", 'kind: unknown kind "resourceslices" (known: Node, Pod, ResourceClaim,'),
        ("/devices?free=perhaps", 'free: expected true or false, not "perhaps"'),
        ("/devices?state=lost", "state: expected 'free', 'shared', 'blocked'"),
        ("/pools?limit=0", 'limit: expected 1 or more, not "0"'),
        ("/pools?limit=1000000", 'limit: expected 10000 or less, not "1000000"'),
        ("/claims?continue=x", 'continue: "x" is not a token of a page before this'),
        ("/claims?continue=bnVsbA", 'continue: "bnVsbA" is not a token of a page before this'),
        ("/claims?continue=%FF", "is not a token of a page before this"),
        ("/decisions?verb=prioritize", "verb: expected 'filter', 'preempt' or 'bind'"),
        ("/cluster?format=yaml", "format: expected 'text' or 'json'"),
    ],
)
async def test_what_can_not_be_asked_is_an_error_that_names_it(client: AsyncClient, path: str, error: str) -> None:
    response = await client.get(path)
    assert response.status_code == 400
    assert error in response.json()["error"]


async def test_the_documented_examples_run_and_look_like_the_answers(client: AsyncClient, cluster: Cluster) -> None:
    await ask(client, "filter", asking(pod("p", "wanted"), "b"))
    cluster.state.apply(Event(EventType.ADDED, SLICES, {**local_slice("d"), "spec": "x"}))
    limits = {"limits": [{"name": "gpu", "deviceClassName": "gpu", "devices": 1}]}
    cluster.state.apply(
        Event(EventType.ADDED, DEVICE_QUOTAS, api_object("DeviceQuota", "gold", namespace="ns", spec=limits))
    )
    paths = (await client.get("/openapi.json")).json()["paths"]
    tables = {path: each["get"] for path, each in paths.items() if "views" in each.get("get", {}).get("tags", ())}
    assert set(tables) == {
        "/cluster",
        "/pools",
        "/devices",
        "/resources",
        "/claims",
        "/pods",
        "/quotas",
        "/problems",
        "/decisions",
    }
    for path, operation in tables.items():
        example = operation["responses"]["200"]["content"]["application/json"]["example"]["items"][0]
        assert list((await items(client, path))[0]) == list(example)
        for parameter in operation["parameters"]:
            for value in parameter["schema"].get("examples", ()):
                assert (await client.get(path, params={parameter["name"]: value})).status_code == 200
