"""The tables on HTTP: what they show, and what an empty one says."""

from typing import Any

import pytest
from httpx import AsyncClient

from extender.cluster.cluster_state import ClusterState
from extender.config.sources import load
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, NODES, SLICES
from tests.extender.answers.observe.scenes import ALL_DEVICES, SHOWN, ask, device_list, items
from tests.extender.plugins.gangs.scenes import member
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Cluster,
    Object,
    asking,
    binding,
    claim,
    client_of,
    local_slice,
    node,
    pod,
    taint_rule,
)
from tests.kit.objects.quotas import limited, quota

OBJECTS = SHOWN


# --- what they show ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("", ALL_DEVICES),
        ("free=true", ["b/gpu-0 free", "b/gpu-1 free", "c/gpu-0 free"]),
        ("free=false", ["a/gpu-0 allocated", "a/gpu-1 allocated", "c/gpu-1 tainted"]),
        ("state=tainted", ["c/gpu-1 tainted"]),
        ("pool=c&device=gpu-1", ["c/gpu-1 tainted"]),
        ("device=gpu-9", []),
        ("state=shared", []),
        ("node=b", ["b/gpu-0 free", "b/gpu-1 free"]),
        ("pool=b&free=true", ["b/gpu-0 free", "b/gpu-1 free"]),
        (f"driver={DRIVER}&pool=a", ["a/gpu-0 allocated", "a/gpu-1 allocated"]),
        ("driver=other.example.com", []),
    ],
)
async def test_devices(client: AsyncClient, query: str, rows: list[str]) -> None:
    assert await device_list(client, query) == rows


async def test_a_device_names_its_holders_and_taints(client: AsyncClient) -> None:
    found = {f"{each['pool']}/{each['device']}": each for each in await items(client, "/devices")}
    assert found["a/gpu-0"]["claims"] == ["ns/held"]
    assert found["b/gpu-0"]["claims"] == []
    assert found["c/gpu-1"]["taints"] == ["broken:NoSchedule"]


async def test_tainted_devices_in_use_are_found_by_their_taint() -> None:
    world = Cluster.of(*SHOWN, taint_rule("worn", driver=DRIVER, pool="a", device="gpu-0"))
    async with client_of(world.app()) as client:
        assert await device_list(client, "state=tainted") == ["a/gpu-0 allocated", "c/gpu-1 tainted"]
        assert await device_list(client, "state=tainted&free=true") == []
        assert [each["why"] for each in await items(client, "/devices?pool=a")] == [
            "tainted broken:NoSchedule by DeviceTaintRule worn",
            "",
        ]
        assert await items(client, "/devices?state=tainted&count=true") == [
            {"driver": DRIVER, "state": "tainted", "devices": 1, "partitions": 0},
            {"driver": DRIVER, "state": "allocated", "devices": 1, "partitions": 0},
        ]


async def test_what_is_in_flight_is_held(client: AsyncClient, cluster: Cluster) -> None:
    wanted = cluster.state.snapshot.claims
    uid = next(each.claim.uid for key, each in wanted.items() if key.name == "wanted")
    held = next(each.claim.allocation for key, each in wanted.items() if key.name == "held")
    assert held is not None
    cluster.state.assume(uid, held, "uid-p")
    assert (await items(client, "/devices?pool=a"))[0]["claims"] == ["ns/held", "ns/wanted"]
    assert [each["claim"] for each in await items(client, "/claims?state=in flight")] == ["wanted"]


async def test_pools(client: AsyncClient) -> None:
    rows = await items(client, "/pools")
    assert [(each["pool"], each["node"], each["slices"], each["devices"], each["free"]) for each in rows] == [
        ("a", "a", "1/1", 2, 0),
        ("b", "b", "1/1", 2, 2),
        ("c", "c", "1/1", 2, 1),
    ]
    assert [each["pool"] for each in await items(client, "/pools?node=b")] == ["b"]


async def test_a_pool_is_as_old_as_the_oldest_slice_of_its_newest_generation() -> None:
    slices = []
    for name, generation, created in (("old", 1, 1), ("first", 2, 3), ("second", 2, 2)):
        each = local_slice("a")
        each["metadata"] |= {"name": name, "creationTimestamp": f"2026-01-0{created}T00:00:00Z"}
        each["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": 2}
        slices.append(each)
    async with client_of(Cluster.of(node("a"), *slices).app()) as client:
        (pool,) = await items(client, "/pools")
    assert (pool["generation"], pool["created"]) == (2, "2026-01-02T00:00:00Z")


async def test_a_pool_of_which_slices_are_missing_says_so_and_its_devices_are_unusable() -> None:
    incomplete = local_slice("a")
    incomplete["spec"]["pool"]["resourceSliceCount"] = 2
    async with client_of(Cluster.of(node("a"), incomplete).app()) as client:
        (pool,) = await items(client, "/pools")
        assert (pool["slices"], pool["free"], pool["problem"]) == ("1/2", 0, "1 of 2 slices are there")
        assert {each["state"] for each in await items(client, "/devices")} == {"unusable"}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["held", "kept", "wanted"]),
        ("namespace=ns", ["held", "kept", "wanted"]),
        ("namespace=other", []),
        ("claim=held", ["held"]),
        ("claim=held&state=pending", []),
        ("state=pending", ["wanted"]),
        ("state=allocated", ["kept"]),
        ("state=reserved", ["held"]),
        ("pod=somebody", ["held"]),
    ],
)
async def test_claims(client: AsyncClient, query: str, names: list[str]) -> None:
    assert [each["claim"] for each in await items(client, f"/claims?{query}")] == names


OF_P: Object = {"ownerReferences": [{"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}]}


@pytest.mark.parametrize(
    ("pod_name", "names"),
    [
        ("p", ["p-gpu-x7k2p", "wanted"]),
        ("q", ["wanted"]),
        ("nobody", []),
        ("experiment", []),
    ],
)
async def test_claims_of_a_pod_are_those_that_it_names_and_those_that_it_owns(
    cluster: Cluster, pod_name: str, names: list[str]
) -> None:
    cluster.load(pod("q", "wanted"))
    cluster.load(claim("p-gpu-x7k2p", metadata=OF_P))
    other = claim("other", allocated=["b/gpu-0"], at="b")
    other["status"]["reservedFor"] = [{"resource": "experiments", "name": "experiment", "uid": "u"}]
    cluster.load(other)
    async with client_of(cluster.app()) as client:
        assert [each["claim"] for each in await items(client, f"/claims?pod={pod_name}")] == names


async def test_the_cluster_is_shown_kind_by_kind(client: AsyncClient, cluster: Cluster) -> None:
    found = {each["kind"]: each for each in await items(client, "/cluster")}
    assert (found["nodes"]["objects"], found["resourceslices"]["objects"], found["pods"]["objects"]) == (3, 3, 1)
    assert {each["ready"] for each in found.values()} == {True}
    cluster.state.doubt(NODES, "nothing heard for more than 90 s")
    found = {each["kind"]: each for each in await items(client, "/cluster")}
    assert (found["nodes"]["ready"], found["nodes"]["problem"]) == (False, "nothing heard for more than 90 s")


async def test_quotas_show_what_is_used_of_each_amount(client: AsyncClient, cluster: Cluster) -> None:
    limits = [
        {"name": "gpus", "deviceClassName": "gpu", "devices": 1},
        {"name": "all", "selectors": [{"cel": {"expression": "true"}}], "devices": 4, "capacity": {"memory": "80Gi"}},
    ]
    made = quota(*limits, name="gpus", cohort="research")
    cluster.state.apply(Event(EventType.ADDED, DEVICE_QUOTAS, made))
    found = await items(client, "/quotas")
    shown = [
        (each["limit"], each["of"], each["counts"], each["hard"], each["used"], each["borrowed"]) for each in found
    ]
    assert shown == [
        ("gpus", "class gpu", "devices", "1", "2", "1"),
        ("all", "true", "memory", "80Gi", "0", ""),
        ("all", "true", "devices", "4", "2", ""),
    ]
    assert {each["cohort"] for each in found} == {"research"}
    assert await items(client, "/quotas?namespace=other") == []


async def test_objects_that_can_not_be_read_are_problems(client: AsyncClient, cluster: Cluster) -> None:
    cluster.state.apply(Event(EventType.ADDED, SLICES, {**local_slice("d"), "spec": "x"}))
    (problem,) = await items(client, "/problems")
    assert (problem["kind"], problem["object"]) == ("ResourceSlice", "slice-d")
    assert "spec" in problem["problem"]
    assert await items(client, "/problems?kind=Pod") == []


# --- empty tables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "note"),
    [
        ("/claims?state=deleting", 'there are claims, but none with state="deleting"'),
        ("/claims?namespace=x&pod=p", 'there are claims, but none with namespace="x", pod="p"'),
        ("/devices?node=x&free=true", 'there are devices, but none with node="x", free=true'),
        ("/pods?node=a", 'there are pods, but none with node="a"'),
        ("/devices?node=A&free=true", 'there are devices, but none with node="A", free=true; did you mean node="a"?'),
        ("/problems", "no problem is known"),
        ("/problems?kind=Pod", "no problem is known"),
        (
            "/decisions",
            (
                "no scheduler has asked this replica about a pod with devices "
                "(only the replica whose scheduler leads is asked)"
            ),
        ),
    ],
)
async def test_empty_table_says_whether_there_is_nothing_or_the_filter_leaves_nothing(
    client: AsyncClient, path: str, note: str
) -> None:
    assert (await client.get(path, headers={"accept": "application/json"})).json() == {"items": [], "note": note}
    assert (await client.get(path)).text.splitlines()[-1] == f"# {note}"


@pytest.mark.parametrize(
    ("path", "note"),
    [
        ("/pools", "there are no pools"),
        ("/devices?free=true", "there are no devices"),
        ("/claims", "there are no claims"),
        ("/pods?state=pending", "no pod asks for devices"),
    ],
)
async def test_table_of_an_empty_cluster_says_that_there_is_nothing(path: str, note: str) -> None:
    async with client_of(Cluster.of().app()) as client:
        assert (await client.get(path)).text.splitlines()[-1] == f"# {note}"


@pytest.mark.parametrize("path", ["/pools", "/devices", "/claims", "/pods", "/problems"])
async def test_table_of_a_cluster_that_is_not_synced_says_so(cluster: Cluster, path: str) -> None:
    async with client_of(Cluster(ClusterState(), cluster.api).app()) as client:
        note = (await client.get(path)).text.splitlines()[-1]
        assert note.startswith("# rows may be missing or old: ")
        assert ": not synced yet" in note


async def test_table_says_that_its_rows_may_be_old(client: AsyncClient, cluster: Cluster) -> None:
    cluster.state.doubt(SLICES, "nothing heard for more than 90 s")
    found = (await client.get("/pools", headers={"accept": "application/json"})).json()
    assert len(found["items"]) == 3
    assert found["note"] == "rows may be missing or old: resourceslices: nothing heard for more than 90 s"


async def test_page_after_the_last_row_says_so(client: AsyncClient, cluster: Cluster) -> None:
    token = (await client.get("/claims?format=json&limit=2")).json()["continue"]
    await cluster.api.delete(CLAIMS, ObjectKey("ns", "wanted"))
    found = (await client.get(f"/claims?format=json&continue={token}")).json()
    assert found == {"items": [], "note": "there are no rows after the page before"}


async def test_note_has_no_escapes_and_is_short(client: AsyncClient) -> None:
    note = (await client.get("/claims", params={"pod": "\x1b[31m" + "x" * 9000})).text.splitlines()[-1]
    assert "\x1b" not in note
    assert len(note) < 200


# What constraints say about the devices of an allocated claim.


NUMA = f"{DRIVER}/numa"


def slice_with(**values: Any) -> Object:
    """Devices with values of the attribute numa, by their names."""
    found = local_slice("a")
    found["spec"]["devices"] = [{"name": name, "attributes": {"numa": value}} for name, value in values.items()]
    return found


def allocated(*devices: str, **constraint: Any) -> Object:
    found = claim("c", allocated=[f"a/{each}" for each in devices], at="a")
    found["spec"]["devices"]["constraints"] = [constraint]
    return found


async def constraints_of(*objects: Object) -> Any:
    async with client_of(Cluster.of(GPU, node("a"), *objects).app()) as client:
        (row,) = await items(client, "/claims?wide=true")
    return row["constraints"]


@pytest.mark.parametrize(
    ("values", "shared"),
    [
        ({"one": {"int": 0}, "two": {"int": 0}}, [0]),
        ({"one": {"string": "x"}, "two": {"string": "x"}}, ["x"]),
        ({"one": {"int": 0}, "two": {"int": 1}}, []),
        ({"one": {"int": 1}, "two": {"bool": True}}, []),
    ],
)
async def test_devices_that_match_share_a_value(values: Any, shared: list[Any]) -> None:
    (found,) = await constraints_of(slice_with(**values), allocated("one", "two", matchAttribute=NUMA))
    assert (found["kind"], found["attribute"], found["shared"]) == ("matchAttribute", NUMA, shared)
    assert [each["device"] for each in found["devices"]] == [f"{DRIVER}/a/one", f"{DRIVER}/a/two"]


async def test_distinct_devices_have_each_its_value() -> None:
    values = {"one": {"int": 0}, "two": {"int": 1}}
    (found,) = await constraints_of(slice_with(**values), allocated("one", "two", distinctAttribute=NUMA))
    assert (found["shared"], [each["values"] for each in found["devices"]]) == ([], [[0], [1]])


async def test_a_constraint_ties_the_devices_of_its_requests_alone() -> None:
    (found,) = await constraints_of(
        slice_with(one={"int": 0}), allocated("one", matchAttribute=NUMA, requests=["another"])
    )
    assert found["devices"] == []


async def test_an_attribute_that_is_not_published_has_no_value() -> None:
    (found,) = await constraints_of(
        slice_with(one={"int": 0}, two={"int": 0}), allocated("one", "two", matchAttribute=f"{DRIVER}/rack")
    )
    assert (found["shared"], [each["values"] for each in found["devices"]]) == ([], [[], []])


async def test_a_claim_that_waits_has_no_constraints_yet() -> None:
    assert await constraints_of(slice_with(one={"int": 0}), allocated(matchAttribute=NUMA)) == []


async def test_the_text_says_what_is_shared() -> None:
    values = {"one": {"int": 0}, "two": {"int": 0}}
    cluster = Cluster.of(GPU, node("a"), slice_with(**values), allocated("one", "two", matchAttribute=NUMA))
    async with client_of(cluster.app()) as client:
        text = (await client.get("/claims?wide=true")).text
    assert f"matchAttribute {NUMA} (0)" in text


# The table of decisions on HTTP.


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


# The tables on HTTP, page by page, as text and as JSON, and what is said of wrong parameters.


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
        ("/cluster?format=yaml", "format: expected 'text', 'json' or 'csv'"),
    ],
)
async def test_what_can_not_be_asked_is_an_error_that_names_it(client: AsyncClient, path: str, error: str) -> None:
    response = await client.get(path)
    assert response.status_code == 400
    assert error in response.json()["error"]


async def test_the_documented_examples_run_and_look_like_the_answers(client: AsyncClient, cluster: Cluster) -> None:
    await ask(client, "filter", asking(pod("p", "wanted"), "b"))
    cluster.state.apply(Event(EventType.ADDED, SLICES, {**local_slice("d"), "spec": "x"}))
    cluster.state.apply(Event(EventType.ADDED, DEVICE_QUOTAS, quota(limited(devices=1))))
    nominated = pod("nominated", "held")
    nominated["status"]["nominatedNodeName"] = "a"
    for each in (nominated, *member("x0", "x", 2)):
        cluster.load(each)
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
        "/gangs",
        "/preemptions",
        "/problems",
        "/decisions",
        "/usage",
    }
    del tables["/usage"]  # it has rows once some time has passed: tests/extender/answers/usage
    for path, operation in tables.items():
        example = operation["responses"]["200"]["content"]["application/json"]["example"]["items"][0]
        assert list((await items(client, path))[0]) == list(example)
        for parameter in operation["parameters"]:
            for value in parameter["schema"].get("examples", ()):
                assert (await client.get(path, params={parameter["name"]: value})).status_code == 200
