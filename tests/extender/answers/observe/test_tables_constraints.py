"""What constraints say about the devices of an allocated claim."""

from typing import Any

import pytest

from tests.extender.answers.observe.scenes import items
from tests.kit.clusters import DRIVER, GPU, Cluster, Object, claim, client_of, local_slice, node

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
