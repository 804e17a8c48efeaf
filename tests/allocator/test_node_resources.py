"""What devices take of their nodes (KEP-5517), as slices publish it."""

from typing import Any

import pytest

from allocator import Inventory, NodeResource, Quantity, parse_slice
from allocator.model.validation import validate

PREFIX = "spec.devices[0].nodeAllocatableResources"


def a_slice(version: str = "v1", **device: Any) -> dict[str, Any]:
    inner = {"capacity": {"cores": {"value": "8"}}, **device}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "cpu.example.com",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n",
            "devices": [{"name": "d", "basic": inner} if version == "v1beta1" else {"name": "d", **inner}],
        },
    }


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_entries_are_read_by_name(version: str) -> None:
    entries = {
        "memory": {"overhead": {"perPod": "1Gi", "perContainer": 5}},
        "cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": "500m"}},
        "hugepages-2Mi": {"mapping": {"deviceMultiplier": "2Mi"}},
    }
    (device,) = parse_slice(a_slice(version, nodeAllocatableResources=entries)).devices
    assert device.node_resources == (
        NodeResource("cpu", capacity="cores", multiplier=Quantity.parse("500m")),
        NodeResource("hugepages-2Mi", multiplier=Quantity.parse("2Mi")),
        NodeResource("memory", per_pod=Quantity.parse("1Gi"), per_container=Quantity.parse("5")),
    )


def test_most_devices_take_nothing() -> None:
    assert parse_slice(a_slice()).devices[0].node_resources == ()


def test_an_inventory_knows_the_pools_whose_devices_take_something() -> None:
    plain = Inventory.of([parse_slice(a_slice())])
    taking = plain.with_slice(parse_slice(a_slice(nodeAllocatableResources={"cpu": {"overhead": {"perPod": "1"}}})))
    assert not plain.taking
    assert set(taking.taking) == set(taking.pools)
    assert not taking.without_slice("s").taking


BAD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "another resource": (
        {"example.com/gpu": {"mapping": {"deviceMultiplier": 1}}},
        ["[example.com/gpu]: must be cpu, memory or hugepages-<size>"],
    ),
    "nothing": ({"cpu": {}}, ["[cpu]: at least one of mapping and overhead is required"]),
    "an empty mapping": (
        {"cpu": {"mapping": {}}},
        ["[cpu].mapping: exactly one of capacityKey and deviceMultiplier is required"],
    ),
    "both ways": (
        {"cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": 1, "deviceMultiplier": 1}}},
        ["[cpu].mapping: exactly one of capacityKey and deviceMultiplier is required"],
    ),
    "no multiplier": (
        {"cpu": {"mapping": {"capacityKey": "cores"}}},
        ["[cpu].mapping.capacityMultiplier: is required: capacityKey and capacityMultiplier belong together"],
    ),
    "no capacity": (
        {"cpu": {"mapping": {"deviceMultiplier": 1, "capacityMultiplier": 1}}},
        ["[cpu].mapping.capacityKey: is required: capacityKey and capacityMultiplier belong together"],
    ),
    "an unknown capacity": (
        {"cpu": {"mapping": {"capacityKey": "threads", "capacityMultiplier": 1}}},
        ['[cpu].mapping.capacityKey: "threads" is not a capacity of the device'],
    ),
    "a multiplier of zero": (
        {"cpu": {"mapping": {"deviceMultiplier": 0}}},
        ["[cpu].mapping.deviceMultiplier: must be greater than zero"],
    ),
    "an empty overhead": (
        {"memory": {"overhead": {}}},
        ["[memory].overhead: at least one of perPod and perContainer is required"],
    ),
    "a negative overhead": (
        {"memory": {"overhead": {"perPod": -1, "perContainer": "x"}}},
        ["[memory].overhead.perPod: must not be negative", '[memory].overhead.perContainer: "x" is not a quantity'],
    ),
}


@pytest.mark.parametrize(("entries", "problems"), BAD.values(), ids=BAD)
def test_what_an_api_server_refuses_is_told_with_its_place(entries: dict[str, Any], problems: list[str]) -> None:
    told = [str(each) for each in validate(a_slice(nodeAllocatableResources=entries))]
    assert told == [f"{PREFIX}{each}" for each in problems]
