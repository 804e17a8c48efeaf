"""ResourceSlices and nodes: what each version says, and what is wrong with it."""

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from allocator import (
    DeviceId,
    DeviceTaint,
    InvalidObjectError,
    Node,
    NodeSelector,
    Placement,
    PoolId,
    Quantity,
    Version,
    parse_node,
    parse_slice,
)
from allocator.model.devices import AttributeValue
from allocator.model.json import Interner
from allocator.model.nodes import NodeSelectorTerm, Requirement

VERSIONS = ("v1", "v1beta2", "v1beta1")
SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}


def a_slice(*devices: dict[str, Any], version: str = "v1", **spec: Any) -> dict[str, Any]:
    """A slice of one node; devices as v1 has them, which are nested for v1beta1."""
    if version == "v1beta1":
        devices = tuple({"name": d.pop("name"), "basic": d} for d in [dict(d) for d in devices])
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": "node-1-gpu"},
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "node-1", "generation": 3, "resourceSliceCount": 2},
            "nodeName": "node-1",
            "devices": list(devices),
            **spec,
        },
    }


def problems_of(obj: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidObjectError) as raised:
        parse_slice(obj)
    return [str(problem) for problem in raised.value.problems]


GPU: dict[str, Any] = {
    "name": "gpu-0",
    "attributes": {
        "model": {"string": "h100"},
        "index": {"int": 7},
        "ecc": {"bool": True},
        "driverVersion": {"version": "1.2.3"},
        "resource.kubernetes.io/pcieRoot": {"strings": ["pci0", "pci1"]},
        "numbers": {"ints": [1, 2]},
        "flags": {"bools": [True, False]},
        "versions": {"versions": ["1.0.0"]},
    },
    "capacity": {
        "memory": {
            "value": "80Gi",
            "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"}},
        },
        "example.org/cores": {"value": 132, "requestPolicy": {"default": "1", "validValues": ["1", 2]}},
    },
    "consumesCounters": [
        {"counterSet": "gpu", "counters": {"slices": {"value": "7"}}, "compatibilityGroups": ["mig"]},
    ],
    "taints": [{"key": "example.com/sick", "effect": "NoSchedule", "timeAdded": "2025-01-01T00:00:00Z"}],
    "allowMultipleAllocations": True,
    "bindsToNode": True,
    "bindingConditions": ["example.com/attached"],
    "bindingFailureConditions": [],
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_device_says_the_same_in_all_versions(version: str) -> None:
    parsed = parse_slice(a_slice(GPU, version=version))
    (device,) = parsed.devices
    assert (parsed.name, parsed.pool) == ("node-1-gpu", PoolId("gpu.example.com", "node-1"))
    assert (parsed.generation, parsed.slice_count) == (3, 2)
    assert parsed.placement == Placement(node_name="node-1")
    assert device.id == DeviceId("gpu.example.com", "node-1", "gpu-0")
    assert device.attributes == {
        "gpu.example.com/model": "h100",
        "gpu.example.com/index": 7,
        "gpu.example.com/ecc": True,
        "gpu.example.com/driverVersion": Version.parse("1.2.3"),
        "resource.kubernetes.io/pcieRoot": ("pci0", "pci1"),
        "gpu.example.com/numbers": (1, 2),
        "gpu.example.com/flags": (True, False),
        "gpu.example.com/versions": (Version.parse("1.0.0"),),
    }
    assert device.quantities == {
        "gpu.example.com/memory": Quantity.parse("80Gi"),
        "example.org/cores": Quantity.from_int(132),
    }
    assert device.taints == (DeviceTaint("example.com/sick", "NoSchedule", "", "2025-01-01T00:00:00Z"),)
    assert device.allow_multiple_allocations
    assert device.binds_to_node
    assert device.binding_conditions == ("example.com/attached",)
    assert device.binding_failure_conditions == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_policies_and_counters_are_read_in_all_versions(version: str) -> None:
    (device,) = parse_slice(a_slice(GPU, version=version)).devices
    memory, cores = device.capacity["memory"].policy, device.capacity["example.org/cores"].policy
    assert memory is not None
    assert memory.valid_range is not None
    assert [str(q) for q in (memory.valid_range.min, memory.valid_range.max, memory.valid_range.step)] == [
        "1Gi",
        "80Gi",
        "1Gi",
    ]
    assert cores is not None
    assert [str(q) for q in cores.valid_values] == ["1", "2"]
    (consumption,) = device.consumes_counters
    assert consumption.counter_set == "gpu"
    assert consumption.counters == {"slices": Quantity.from_int(7)}
    assert consumption.compatibility_groups == ("mig",)


def test_defaults_are_those_of_the_api() -> None:
    (device,) = parse_slice(a_slice({"name": "d"})).devices
    assert (device.attributes, device.capacity, device.quantities) == ({}, {}, {})
    assert (device.consumes_counters, device.taints, device.placement) == ((), (), None)
    assert not device.allow_multiple_allocations
    assert not device.binds_to_node
    assert device.binding_conditions is None


@pytest.mark.parametrize(
    ("fields", "placement"),
    [
        ({"nodeName": "n"}, Placement(node_name="n")),
        ({"nodeName": None, "allNodes": True}, Placement(all_nodes=True)),
        (
            {"nodeName": None, "nodeSelector": SELECTOR},
            Placement(node_selector=NodeSelector((NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),))),
        ),
        ({"nodeName": ""}, None),
    ],
)
def test_a_placement_is_read_from_slice_and_device(fields: dict[str, Any], placement: Placement | None) -> None:
    assert parse_slice(a_slice(**fields)).placement == placement
    spec: dict[str, Any] = {"nodeName": None, "perDeviceNodeSelection": True}
    parsed = parse_slice(a_slice({"name": "d", **fields}, **spec))
    assert (parsed.placement, parsed.per_device_placement) == (None, True)
    assert parsed.devices[0].placement == placement


def test_counter_sets_keep_their_order_and_repetitions() -> None:
    sets = [{"name": name, "counters": {"memory": {"value": "1Gi"}}} for name in ("b", "a", "b")]
    parsed = parse_slice(a_slice(devices=None, sharedCounters=sets, skipNodeOperations=["*"]))
    assert [name for name, _ in parsed.counter_sets] == ["b", "a", "b"]
    assert parsed.counter_sets[0][1] == {"memory": Quantity.parse("1Gi")}
    assert parsed.skip_node_operations == ("*",)


@pytest.mark.parametrize("names", [("model", "gpu.example.com/model"), ("gpu.example.com/model", "model")])
def test_a_qualified_name_wins_over_the_name_alone(names: tuple[str, str]) -> None:
    values = {"model": "plain", "gpu.example.com/model": "qualified"}
    amounts = {"model": "1", "gpu.example.com/model": "2"}
    attributes = {name: {"string": values[name]} for name in names}
    capacity = {name: {"value": amounts[name]} for name in names}
    (device,) = parse_slice(a_slice({"name": "d", "attributes": attributes, "capacity": capacity})).devices
    assert device.attributes == {"gpu.example.com/model": "qualified"}
    assert device.quantities == {"gpu.example.com/model": Quantity.from_int(2)}
    assert set(device.capacity) == {"model", "gpu.example.com/model"}


def test_fields_that_we_do_not_know_are_left_alone_and_values_match_nothing() -> None:
    device = {"name": "d", "new": 1, "attributes": {"a": {"float": 1.5}, "b": {"int": 1, "unit": "x"}, "c": {}}}
    (parsed,) = parse_slice(a_slice(device, newField={"x": 1})).devices
    assert parsed.attributes == {"gpu.example.com/a": (), "gpu.example.com/b": 1, "gpu.example.com/c": ()}


def test_equal_values_are_shared() -> None:
    interner = Interner()
    plain = {"attributes": {"model": {"string": "h100"}}, "capacity": {"memory": {"value": "80Gi"}}}
    slices = [parse_slice(a_slice({"name": "a", **plain}, {"name": "b", **plain}), interner) for _ in range(2)]
    first, *others = [device for each in slices for device in each.devices]
    for other in others:
        assert other.attributes is first.attributes
        assert other.capacity is first.capacity
        assert other.quantities is first.quantities


def test_values_that_only_look_equal_are_not_shared() -> None:
    def attribute(value: dict[str, Any]) -> dict[str, Any]:
        return {"name": "d", "attributes": {"a": value}}

    values = (
        {"bool": True},
        {"int": 1},
        {"bools": [True]},
        {"ints": [1]},
        {"version": "1.0.0+a"},
        {"version": "1.0.0+b"},
    )
    devices = parse_slice(a_slice(*(attribute(value) for value in values))).devices
    assert [repr(d.attributes["gpu.example.com/a"]) for d in devices[:4]] == ["True", "1", "(True,)", "(1,)"]
    assert [str(d.attributes["gpu.example.com/a"]) for d in devices[4:]] == ["1.0.0+a", "1.0.0+b"]


def test_drivers_do_not_share_what_is_named_alike() -> None:
    interner = Interner()
    device: dict[str, Any] = {
        "name": "d",
        "attributes": {"a": {"new": 1}, "b": {"int": 1}},
        "capacity": {"c": {"value": "1"}},
    }
    first = parse_slice(a_slice(device), interner).devices[0]
    second = parse_slice(a_slice(device, driver="other.example.com"), interner).devices[0]
    assert set(first.attributes) == {"gpu.example.com/a", "gpu.example.com/b"}
    assert set(second.attributes) == {"other.example.com/a", "other.example.com/b"}
    assert set(second.quantities) == {"other.example.com/c"}


def test_attributes_of_one_driver_have_their_names_in_common() -> None:
    names = [f"attribute-{number}" for number in range(11)]
    interner = Interner()

    def read(number: int) -> Mapping[str, AttributeValue]:
        attributes = {name: {"string": f"{name} of {number}"} for name in names}
        return parse_slice(a_slice({"name": "gpu-0", "attributes": attributes}), interner).devices[0].attributes

    last = [read(number) for number in range(40)][-1]  # the first ones keep room for more names
    assert last["gpu.example.com/attribute-7"] == "attribute-7 of 39"
    assert sys.getsizeof(last) < sys.getsizeof(dict(last)) / 2


def test_an_interner_is_bounded() -> None:
    interner = Interner(limit=10)
    for i in range(100):
        parse_slice(a_slice({"name": f"d-{i}", "attributes": {"uuid": {"string": f"u-{i}"}}}), interner)
    assert len(interner.attributes) <= 11
    assert len(interner.texts) < 20


WRONG = [
    ({"capacity": {"memory": {"value": "80Gx"}}}, 'capacity[memory].value: "80Gx" is not a quantity'),
    ({"capacity": {"memory": {"value": True}}}, "capacity[memory].value: true is not a quantity"),
    ({"capacity": {"memory": {}}}, "capacity[memory].value: is required"),
    ({"capacity": {"memory": "80Gi"}}, 'capacity[memory]: "80Gi" is not an object; write {value: "80Gi"}'),
    ({"capacity": ["memory"]}, 'capacity: ["memory"] is not an object'),
    (
        {"capacity": {"m": {"value": "1", "requestPolicy": {"validValues": ["1", "x"]}}}},
        'capacity[m].requestPolicy.validValues[1]: "x" is not a quantity',
    ),
    (
        {"capacity": {"m": {"value": "1", "requestPolicy": {"validRange": {}}}}},
        "capacity[m].requestPolicy.validRange.min: is required",
    ),
    ({"attributes": {"a": {"int": "7"}}}, 'attributes[a].int: "7" is not a whole number of 64 bits'),
    ({"attributes": {"a": {"int": True}}}, "attributes[a].int: true is not a whole number of 64 bits"),
    ({"attributes": {"a": {"int": 2**63}}}, f"attributes[a].int: {2**63} is not a whole number of 64 bits"),
    ({"attributes": {"a": {"string": 8.5}}}, "attributes[a].string: 8.5 is not a string"),
    ({"attributes": {"a": {"bool": "yes"}}}, 'attributes[a].bool: "yes" is not true or false'),
    ({"attributes": {"a": {"version": "1.2"}}}, 'attributes[a].version: "1.2" is not a semantic version'),
    ({"attributes": {"a": {"strings": "x"}}}, 'attributes[a].strings: "x" is not a list'),
    ({"attributes": {"a": {"ints": [1, "2"]}}}, 'attributes[a].ints: "2" is not a whole number of 64 bits'),
    (
        {"attributes": {"a": {"int": 1, "bool": True}}},
        'attributes[a]: {"int": 1, "bool": true} is not exactly one value',
    ),
    ({"attributes": {"a": "x"}}, 'attributes[a]: "x" is not exactly one value; write {string: "x"}'),
    ({"attributes": {"a": None}}, "attributes[a]: null is not exactly one value"),
    ({"attributes": {"a": 5}}, "attributes[a]: 5 is not exactly one value; write {int: 5}"),
    ({"attributes": {"a": True}}, "attributes[a]: true is not exactly one value; write {bool: true}"),
    ({"consumesCounters": [{"counters": {}}]}, "consumesCounters[0].counterSet: is required"),
    ({"taints": [{"key": "k"}]}, "taints[0].effect: is required"),
    ({"taints": "k"}, 'taints: "k" is not a list'),
    ({"taints": [{}] * 5001}, "taints: has 5001 entries; at most 5000 are read"),
    ({"allowMultipleAllocations": 1}, "allowMultipleAllocations: 1 is not true or false"),
    ({"bindingConditions": ["a", 1]}, "bindingConditions[1]: 1 is not a string"),
    (
        {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"operator": "In"}]}]}},
        "nodeSelector.nodeSelectorTerms[0].matchFields[0].key: is required",
    ),
]


@pytest.mark.parametrize(("device", "problem"), WRONG)
def test_a_problem_names_path_and_value(device: dict[str, Any], problem: str) -> None:
    assert problems_of(a_slice({"name": "ok"}, {"name": "d", **device})) == [f"spec.devices[1].{problem}"]
    nested = a_slice({"name": "ok"}, {"name": "d", **device}, version="v1beta1")
    assert problems_of(nested) == [f"spec.devices[1].basic.{problem}"]


def test_all_problems_are_named_with_the_object() -> None:
    bad = {"name": "", "capacity": {"memory": {"value": "80Gx"}}}
    obj = a_slice({"name": "ok"}, 5, bad, driver=7, pool={"generation": "1"})  # type: ignore[arg-type]
    with pytest.raises(InvalidObjectError) as raised:
        parse_slice(obj)
    assert str(raised.value) == "; ".join(
        f"ResourceSlice node-1-gpu: {problem}"
        for problem in [
            "spec.driver: 7 is not a string",
            "spec.pool.name: is required",
            'spec.pool.generation: "1" is not a whole number of 64 bits',
            "spec.devices[1]: 5 is not an object",
            'spec.devices[2].capacity[memory].value: "80Gx" is not a quantity',
            "spec.devices[2].name: is required",
        ]
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"apiVersion": "resource.k8s.io/v1alpha3"}, 'apiVersion: "resource.k8s.io/v1alpha3" is not one of'),
        ({"apiVersion": None}, "apiVersion: null is not one of"),
        ({"kind": "Slice"}, 'kind: "Slice" is not ResourceSlice'),
        ({"metadata": {}}, "metadata.name: is required"),
        ({"spec": []}, "spec: [] is not an object"),
    ],
)
def test_version_kind_and_metadata_are_checked(change: dict[str, Any], problem: str) -> None:
    assert problems_of({**a_slice(), **change})[0].startswith(problem)


def test_items_of_lists_may_lack_their_kind() -> None:
    obj = a_slice({"name": "d"})
    del obj["kind"]
    assert parse_slice(obj).name == "node-1-gpu"


def test_a_node_is_read_with_labels_and_features() -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"zone": "a"}},
        "status": {"declaredFeatures": ["X"]},
    }
    assert parse_node(obj) == Node("n", {"zone": "a"}, frozenset({"X"}))
    with pytest.raises(InvalidObjectError, match=r"^Node n: metadata.labels\[zone\]: 1 is not a string$"):
        parse_node({**obj, "metadata": {"name": "n", "labels": {"zone": 1, "b": "c"}}})
