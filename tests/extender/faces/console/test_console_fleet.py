"""The fleet of the console: the states that the table of devices shows, in a short form."""

from typing import Any

import pytest
from httpx import AsyncClient

from allocator.tools import JSON
from tests.extender.answers.observe.scenes import SHOWN
from tests.kit.clusters import Cluster, Object, claim, client_of, device_class, local_slice, network_slice, node
from tests.kit.objects.mig import partition, partitioned


def client(*objects: Object) -> AsyncClient:
    return client_of(Cluster.of(*objects).app())


async def fleet(of: AsyncClient) -> Any:
    reply = await of.get("/console/fleet")
    assert reply.status_code == 200, reply.text
    return reply.json()


def states(document: Any) -> dict[tuple[str, str, str], str]:
    """The state of each device, by driver, pool and device."""
    return {
        (row["driver"], row["pool"], device): document["states"][int(digit)]
        for row in document["rows"]
        for device, digit in zip(document["shapes"][row["shape"]]["devices"], row["states"], strict=True)
    }


def with_uid(obj: Object) -> Object:
    return obj | {"metadata": {"uid": f"uid-{obj['metadata']['name']}", "resourceVersion": "1", **obj["metadata"]}}


MIG = (
    node("a"),
    *map(with_uid, partitioned("a", gpus=2)),
    claim("c", allocated=[f"a/{partition(0, '1g.5gb', 0)}"], at="a"),
)


@pytest.mark.parametrize(
    "objects", [SHOWN, MIG, (network_slice("far"), node("a")), ()], ids=["small", "mig", "net", "none"]
)
async def test_the_fleet_has_the_devices_and_states_of_the_table(objects: tuple[Object, ...]) -> None:
    async with client(*objects) as asked:
        table = (await asked.get("/devices?limit=10000&format=json")).json()["items"]
        assert states(await fleet(asked)) == {
            (row["driver"], row["pool"], row["device"]): row["state"] for row in table
        }


async def test_a_row_names_the_node_of_its_devices() -> None:
    async with client(node("a"), local_slice("a"), network_slice("far")) as asked:
        rows = (await fleet(asked))["rows"]
    assert {row["pool"]: row["node"] for row in rows} == {"a": "a", "far": "all nodes"}


async def test_pools_with_equal_names_of_devices_share_a_shape() -> None:
    async with client(*(each for name in "abc" for each in (node(name), local_slice(name, devices=2)))) as asked:
        found = await fleet(asked)
    assert (found["shapes"], len(found["rows"])) == ([{"devices": ["gpu-0", "gpu-1"], "hardware": [0, 1]}], 3)


async def test_partitions_of_one_device_have_one_number() -> None:
    async with client(*MIG) as asked:
        (shape,) = (await fleet(asked))["shapes"]
    numbers = {(device[:5], number) for device, number in zip(shape["devices"], shape["hardware"], strict=True)}
    assert sorted(number for _, number in numbers) == [0, 1]


async def test_a_shared_device_says_how_much_is_left() -> None:
    capacity: dict[str, JSON] = {"memory": {"value": "10Gi"}}
    shared = local_slice("a")
    shared["spec"]["devices"] = [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": capacity}]
    held = claim("c", allocated=["a/gpu-0"], at="a")
    held["status"]["allocation"]["devices"]["results"][0] |= {"shareID": "s", "consumedCapacity": {"memory": "7.5Gi"}}
    async with client(node("a"), shared, held) as asked:
        (row,) = (await fleet(asked))["rows"]
    assert row["left"] == {"0": 0.25}


FALCON = device_class("falcon", selectors=['device.attributes["gpu.example.com"].model == "falcon"'])


def modelled(name: str, **models: JSON) -> Object:
    found = local_slice(name)
    found["spec"]["devices"] = [
        {"name": device, "attributes": {"model": value, "example.org/even": {"bool": True}}}
        for device, value in models.items()
    ]
    return found


MODELS = (
    node("a"),
    node("b"),
    FALCON,
    modelled("a", one={"string": "falcon"}, two={"string": "sparrow"}),
    modelled("b", one={"string": "falcon"}, four={"int": 4}),
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("class=falcon", {"a": ["one"], "b": ["one"]}),
        ("attribute=model=falcon", {"a": ["one"], "b": ["one"]}),
        ("attribute=model", {"a": ["one", "two"], "b": ["four", "one"]}),
        ("attribute=model=4", {"b": ["four"]}),
        ("attribute=gpu.example.com/model%20=%20sparrow", {"a": ["two"]}),
        ("attribute=example.org/even=true&class=falcon", {"a": ["one"], "b": ["one"]}),
        ("attribute=color", {}),
        ("", {"a": ["one", "two"], "b": ["four", "one"]}),
    ],
)
async def test_devices_match_by_class_and_attribute(query: str, expected: dict[str, list[str]]) -> None:
    async with client(*MODELS) as asked:
        found = (await asked.get(f"/console/matches?{query}")).json()
    assert {each["pool"]: found["sets"][each["set"]] for each in found["pools"]} == expected


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("class=falcom", 'class: there is no device class "falcom"; did you mean falcon?'),
        ("attribute==x", "attribute: expected NAME or NAME=VALUE in at most 512 characters"),
        (f"attribute={'x' * 513}", "attribute: expected NAME or NAME=VALUE in at most 512 characters"),
        ("clas=falcon", 'unknown parameter "clas", did you mean "class"?'),
    ],
)
async def test_what_names_nothing_is_refused(query: str, problem: str) -> None:
    async with client(*MODELS) as asked:
        reply = await asked.get(f"/console/matches?{query}")
    assert (reply.status_code, reply.json()) == (400, {"error": problem})


async def test_a_class_whose_selector_fails_says_so() -> None:
    async with client(*MODELS, device_class("odd", selectors=["device.attributes['x'].y == 1"])) as asked:
        found = (await asked.get("/console/matches?class=odd")).json()
    assert (found["pools"], found["note"].startswith("4 devices are left out")) == ([], True)
