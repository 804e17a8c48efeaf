"""The tables on HTTP: what they show, and what an empty one says."""

import pytest
from httpx import AsyncClient

from extender.cluster.cluster_state import ClusterState
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, NODES, SLICES
from tests.extender.answers.observe.scenes import ALL_DEVICES, SHOWN, device_list, items
from tests.kit.clusters import DRIVER, Cluster, Object, claim, client_of, local_slice, node, pod
from tests.kit.objects.parts import api_object

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
    spec = {"limits": limits, "cohort": "research"}
    cluster.state.apply(
        Event(EventType.ADDED, DEVICE_QUOTAS, api_object("DeviceQuota", "gpus", namespace="ns", spec=spec))
    )
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
        ("/problems", "every object can be read"),
        ("/problems?kind=Pod", "every object can be read"),
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
