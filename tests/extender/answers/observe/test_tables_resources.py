"""The table of compute resources: devices with equal properties are one row."""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from httpx import AsyncClient
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.plugins.resource_classes.device_class import driver_of, resource_of
from tests.extender.answers.observe.scenes import items
from tests.kit.clusters import DRIVER, Cluster, Object, claim, client_of, device_class, node, taint_rule
from tests.kit.objects.parts import api_object, slice_spec

EXAMPLES = int(os.environ.get("RESOURCE_EXAMPLES", "15"))


def attributes(**texts: str | int | bool) -> Object:
    kinds = {str: "string", int: "int", bool: "bool"}
    return {name: {kinds[type(value)]: value} for name, value in texts.items()}


def devices(pool: str, *bodies: Mapping[str, Any]) -> Object:
    """A slice with devices of a node."""
    named = [{"name": f"gpu-{number}", **body} for number, body in enumerate(bodies)]
    return api_object("ResourceSlice", f"slice-{pool}", spec=slice_spec(pool, named, driver=DRIVER, nodeName=pool))


def gpu(model: str, **more: str | int | bool) -> Object:
    return {"attributes": attributes(model=model, **more), "capacity": {"memory": {"value": "80Gi"}}}


H100 = device_class("h100", selectors=[f'device.attributes["{DRIVER}"].model == "h100"'], extended="example.com/h100")
ANY = device_class("gpu")
CLUSTER = (
    ANY,
    H100,
    node("a"),
    node("b"),
    devices("a", gpu("h100", index=0), gpu("h100", index=1), gpu("a100", index=2)),
    devices("b", gpu("h100", index=0), gpu("h100", index=1)),
    claim("held", allocated=["a/gpu-0"], at="a"),
    taint_rule("broken", driver=DRIVER, pool="b", device="gpu-1"),
)
OBJECTS = CLUSTER


async def test_equal_devices_of_a_node_are_one_row(client: AsyncClient) -> None:
    found = await items(client, "/resources")
    shown = [(each["node"], each["attributes"], each["devices"], each["free"], each["inUse"]) for each in found]
    assert sorted(shown, key=str) == [
        ("a", {"model": "a100"}, 1, 1, 0),
        ("a", {"model": "h100"}, 2, 1, 1),
        ("b", {"model": "h100"}, 2, 1, 0),
    ]
    assert {each["classes"].get("h100", 0) for each in found if each["attributes"]["model"] == "h100"} == {2}
    assert [each["classes"] for each in found if each["attributes"]["model"] == "a100"] == [{"gpu": 1}]


async def test_equal_devices_have_one_name_on_all_nodes(client: AsyncClient) -> None:
    names = {(each["attributes"]["model"], each["resource"]) for each in await items(client, "/resources")}
    assert len(names) == 2
    assert {name.rpartition("-")[0] for _, name in names} == {resource_of(DRIVER)}
    together = {each["resource"]: each for each in await items(client, "/resources?by=resource")}
    assert {(each["attributes"]["model"], name) for name, each in together.items()} == names
    assert sorted((each["nodes"], each["devices"], each["free"]) for each in together.values()) == [
        (1, 1, 1),
        (2, 4, 2),
    ]


async def test_how_many_are_free_of_a_class_is_one_row(client: AsyncClient) -> None:
    (found,) = await items(client, "/resources?by=class&class=h100")
    assert (found["class"], found["extendedResource"]) == ("h100", "example.com/h100")
    assert (found["nodes"], found["devices"], found["allocatable"], found["free"], found["inUse"]) == (2, 4, 4, 2, 1)
    text = (await client.get("/resources?by=class")).text.splitlines()
    assert [line.split() for line in text] == [
        ["CLASS", "EXTENDED", "RESOURCE", "NODES", "DEVICES", "ALLOCATABLE", "FREE", "IN", "USE"],
        ["gpu", "-", "2", "5", "5", "3", "1"],
        ["h100", "example.com/h100", "2", "4", "4", "2", "1"],
    ]


async def test_wide_rows_name_the_devices_and_their_states(client: AsyncClient) -> None:
    (found,) = await items(client, "/resources?node=b&wide=true")
    assert found["names"] == [f"{DRIVER}/b/gpu-0", f"{DRIVER}/b/gpu-1"]
    assert found["states"] == {"free": 1, "tainted": 1}


async def test_a_caller_says_which_properties_tell_devices_apart(client: AsyncClient) -> None:
    found = await items(client, "/resources?properties=memory&node=a")
    assert [(each["attributes"], each["capacity"], each["devices"]) for each in found] == [({}, {"memory": "80Gi"}, 3)]
    assert len(await items(client, "/resources?properties=model,index&node=a")) == 3


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("index", 0, 1),
        ("minor", 0, 1),
        ("cpuID", 0, 1),
        ("uuid", "x", "y"),
        ("parent", "GPU-18db0e85-99e9-c746-8531-ffeb86328b39", "GPU-18db0e85-99e9-c746-8531-ffeb86328b3a"),
        ("pciBusID", "0000:17:00.0", "0000:18:00.0"),
        ("pcieRoot", "pci0000:17", "pci0000:18"),
        ("hardware", "52:54:00:12:34:56", "52:54:00:12:34:57"),
        ("ifName", "eth0", "eth1"),
    ],
)
async def test_what_only_names_a_device_tells_no_devices_apart(name: str, first: Any, second: Any) -> None:
    cluster = Cluster.of(
        node("a"), devices("a", *({"attributes": attributes(**{name: each})} for each in (first, second)))
    )
    async with client_of(cluster.app()) as client:
        (found,) = await items(client, "/resources")
        assert (found["devices"], found["attributes"]) == (2, {})


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("productName", "H100", "A100"), ("numaNode", 0, 1), ("ecc", True, False), ("pciId", "0x56c0", "0x56c1")],
)
async def test_other_properties_tell_devices_apart(name: str, first: Any, second: Any) -> None:
    cluster = Cluster.of(
        node("a"), devices("a", *({"attributes": attributes(**{name: each})} for each in (first, second)))
    )
    async with client_of(cluster.app()) as client:
        assert sorted((each["attributes"] for each in await items(client, "/resources")), key=str) == sorted(
            [{name: first}, {name: second}], key=str
        )


async def test_a_class_whose_selector_fails_on_a_device_is_told_when_classes_are_counted() -> None:
    cluster = Cluster.of(node("a"), devices("a", {}), H100)
    async with client_of(cluster.app()) as client:
        assert "note" not in (await client.get("/resources?format=json")).json()
        found = (await client.get("/resources?by=class&format=json")).json()
        assert [each["devices"] for each in found["items"]] == [0]
        assert found["note"].startswith("1 device is left out, because a selector of class h100 fails")


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("class=h10", 400, 'class: there is no device class "h10"; did you mean h100?'),
        ("by=pool", 400, "by: expected 'node', 'resource' or 'class', not \"pool\""),
        ("node=A", 200, 'there are resources, but none with node="A"; did you mean node="a"?'),
    ],
)
async def test_what_can_not_be_found_is_told(client: AsyncClient, query: str, status: int, told: str) -> None:
    response = await client.get(f"/resources?{query}")
    assert (response.status_code, told in response.text.replace('\\"', '"')) == (status, True)


@pytest.mark.parametrize(("driver", "resource"), [("gpu.nvidia.com", "nvidia.com/gpu"), ("dra.cpu", "cpu/dra")])
def test_raw_resource_of_a_driver_means_the_driver(driver: str, resource: str) -> None:
    assert (resource_of(driver), driver_of(resource)) == (resource, driver)


# --- the law -------------------------------------------------------------------------------------------------

bodies = st.lists(st.builds(gpu, st.sampled_from(["h100", "a100"]), numaNode=st.integers(0, 1)), max_size=4)


@settings(max_examples=EXAMPLES)
@given(st.lists(bodies, min_size=1, max_size=3), st.data())
def test_numbers_of_all_rows_are_those_of_the_table_of_devices(
    pools: Sequence[list[Object]], data: st.DataObject
) -> None:
    names = [f"n{number}" for number in range(len(pools))]
    known = data.draw(st.sets(st.sampled_from(names)))
    slices = [devices(name, *found) for name, found in zip(names, pools, strict=True)]
    places = [f"{name}/gpu-{number}" for name, found in zip(names, pools, strict=True) for number in range(len(found))]
    held = data.draw(st.sets(st.sampled_from(places))) if places else set()
    claims = [
        claim(f"c{number}", allocated=[place], at=place.partition("/")[0]) for number, place in enumerate(sorted(held))
    ]
    rules = (
        [taint_rule("broken", driver=DRIVER, pool=data.draw(st.sampled_from(names)))]
        if data.draw(st.booleans())
        else []
    )
    cluster = Cluster.of(ANY, H100, *map(node, sorted(known)), *slices, *claims, *rules)
    asyncio.run(check_numbers(cluster))


async def check_numbers(cluster: Cluster) -> None:
    async with client_of(cluster.app()) as client:
        for query in ("", "&node=n0", "&class=h100"):
            rows = await items(client, f"/devices?limit=1000{query}")
            states = Counter(each["state"] for each in rows)
            for by in ("node", "resource"):
                found = await items(client, f"/resources?wide=true&by={by}{query}")
                assert sum((Counter(each["states"]) for each in found), Counter()) == states
                assert sum(each["free"] for each in found) == states["free"]
                named = sorted(name for each in found for name in each["names"])
                assert named == sorted(f"{each['driver']}/{each['pool']}/{each['device']}" for each in rows)
        for name in ("gpu", "h100"):
            (row,) = await items(client, f"/resources?by=class&class={name}")
            numbers: Counter[str] = Counter()
            for each in await items(client, f"/devices?count=true&class={name}"):
                numbers[each["state"]] += each["devices"] + each["partitions"]
            assert (row["devices"], row["free"]) == (numbers.total(), numbers["free"])
