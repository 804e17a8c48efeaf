"""What an API server refuses in a ResourceSlice: each rule with the path and message that it gives."""

from typing import Any

import pytest

from allocator.model.validation import validate

GROUP = "resource.k8s.io"
ATTRIBUTE = {"string": "x"}


def an_object(kind: str, spec: object, version: str = "v1", name: str = "x", **parts: object) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec, **parts}


def told(obj: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in validate(obj)]


def a_slice(*devices: dict[str, Any], **spec: object) -> dict[str, Any]:
    base = {
        "driver": "gpu.example.com",
        "pool": {"name": "node-1/gpu", "generation": 0, "resourceSliceCount": 1},
        "nodeName": "node-1",
        "devices": [{"name": f"d-{i}", **device} for i, device in enumerate(devices)],
    }
    return {key: value for key, value in {**base, **spec}.items() if value is not None}


def slice_problems(*devices: dict[str, Any], **spec: object) -> list[str]:
    return told(an_object("ResourceSlice", a_slice(*devices, **spec)))


def policy(capacity: str = "10", **fields: object) -> dict[str, Any]:
    return {"allowMultipleAllocations": True, "capacity": {"m": {"value": capacity, "requestPolicy": fields}}}


def counters(count: int, prefix: str = "c") -> dict[str, Any]:
    return {f"{prefix}{i}": {"value": "1"} for i in range(count)}


def selector(*expressions: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": list(expressions), "matchFields": list(fields)}]}


LABEL = "is not a DNS label: lower case letters, digits and -"
SUBDOMAIN = "is not a DNS subdomain: lower case letters, digits, - and ."
TAINT = {"key": "example.com/t", "value": "v", "effect": "NoSchedule"}
CHOICE = "exactly one of nodeName, nodeSelector, allNodes, perDeviceNodeSelection is required"

PARTITION: dict[str, Any] = {"consumesCounters": [{"counterSet": "a", "counters": counters(1)}]}

GOOD_SLICES = [
    ((), {}),
    (({"taints": [TAINT] * 16, "attributes": {"a": ATTRIBUTE, "x.y/b": {"ints": [1] * 47}}},), {}),
    (tuple({} for _ in range(128)), {}),
    (tuple({"taints": [TAINT]} for _ in range(64)), {}),
    ((), {"nodeName": None, "allNodes": True}),
    ((), {"nodeName": None, "nodeSelector": selector({"key": "zone", "operator": "Exists"})}),
    (({"nodeName": "a"}, {"allNodes": True}), {"nodeName": None, "perDeviceNodeSelection": True}),
    ((), {"devices": None, "sharedCounters": [{"name": f"s-{i}", "counters": counters(32)} for i in range(8)]}),
    (({"consumesCounters": [{"counterSet": "a", "counters": counters(1), "compatibilityGroups": ["g", "h"]}]},), {}),
    ((policy(default="2", validValues=["1", "2", "10"]),), {}),
    ((policy(default="3", validRange={"min": "1", "max": "9", "step": "2"}),), {}),
    ((policy(default="1.5", validRange={"min": "0.5", "step": "500m"}),), {}),
    ((policy(default="1"),), {}),
    (({"bindingConditions": ["example.com/a"], "bindingFailureConditions": ["b"]},), {"skipNodeOperations": ["*"]}),
    ((), {"skipNodeOperations": ["NodeUnprepareResources", "NodePrepareResources"]}),
    (({**PARTITION, "attributes": {"a.example/p": {"string": "x"}}}, {}), {"partitionTypeAttribute": "a.example/p"}),
    (({**PARTITION, "attributes": {"p": {"string": "x"}}},), {"partitionTypeAttribute": "gpu.example.com/p"}),
]


@pytest.mark.parametrize(("devices", "spec"), GOOD_SLICES)
def test_good_slices_have_no_problems(devices: tuple[dict[str, Any], ...], spec: dict[str, Any]) -> None:
    assert slice_problems(*devices, **spec) == []


BAD_SLICES: list[tuple[dict[str, Any], list[str]]] = [
    ({"driver": "-x"}, ['spec.driver: "-x" is not a driver\'s name: a DNS subdomain']),
    ({"driver": "x" * 64}, [f'spec.driver: "{"x" * 63}... is longer than 63']),
    ({"driver": None}, ["spec.driver: is required"]),
    (
        {"pool": {"name": "a//b", "generation": -1}},
        [
            'spec.pool.name: "a//b" has a part that is empty',
            "spec.pool.resourceSliceCount: must be greater than zero",
            "spec.pool.generation: must not be negative",
        ],
    ),
    (
        {"pool": {"name": "/".join(["abc"] * 64), "resourceSliceCount": 1}},
        [f'spec.pool.name: "{("abc/" * 16)[:63]}... is longer than 253'],
    ),
    ({"nodeName": None}, [f"spec: {CHOICE}"]),
    ({"allNodes": True}, [f"spec: {CHOICE}, not nodeName and allNodes"]),
    ({"nodeName": ""}, ["spec.nodeName: must not be empty", f"spec: {CHOICE}"]),
    ({"nodeName": "A"}, [f'spec.nodeName: "A" {SUBDOMAIN}']),
    ({"allNodes": False}, ["spec.allNodes: must be true or left out"]),
    ({"perDeviceNodeSelection": False}, ["spec.perDeviceNodeSelection: must be true or left out"]),
    (
        {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": []}},
        ["spec.nodeSelector.nodeSelectorTerms: is required"],
    ),
    (
        {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [{}, {}]}},
        ["spec.nodeSelector.nodeSelectorTerms: must have one entry"],
    ),
    ({"sharedCounters": []}, ["spec.sharedCounters: can't be in one slice with devices"]),
    (
        {"devices": None, "sharedCounters": [{"name": "S", "counters": {}}]},
        [f'spec.sharedCounters[0].name: "S" {LABEL}', "spec.sharedCounters[0].counters: is required"],
    ),
    (
        {"devices": None, "sharedCounters": [{"name": "s", "counters": counters(1)}] * 2},
        ['spec.sharedCounters[1]: "s" is there twice'],
    ),
    (
        {"devices": None, "sharedCounters": [{"name": f"s{i}", "counters": counters(1)} for i in range(9)]},
        ["spec.sharedCounters: has 9 entries, more than 8"],
    ),
    (
        {"devices": None, "sharedCounters": [{"name": "s", "counters": counters(33)}]},
        ["spec.sharedCounters[0].counters: has 33 entries, more than 32"],
    ),
    (
        {"devices": None, "sharedCounters": [{"name": "s", "counters": counters(1, "C")}]},
        [f'spec.sharedCounters[0].counters[C0]: "C0" {LABEL}'],
    ),
    (
        {"skipNodeOperations": ["Stop", "NodePrepareResources", "Stop"]},
        [
            'spec.skipNodeOperations[0]: "Stop" is not one of NodePrepareResources, NodeUnprepareResources, *',
            'spec.skipNodeOperations[2]: "Stop" is not one of NodePrepareResources, NodeUnprepareResources, *',
            'spec.skipNodeOperations[2]: "Stop" is there twice',
            "spec.skipNodeOperations: NodePrepareResources is only allowed with NodeUnprepareResources",
        ],
    ),
    (
        {"partitionTypeAttribute": "profile"},
        [
            'spec.partitionTypeAttribute: "profile" is not a domain and a name with / between them',
            "spec.partitionTypeAttribute: is only allowed in a slice with devices that consume counters",
        ],
    ),
    (
        {
            "partitionTypeAttribute": "a.example/p",
            "devices": [
                {"name": "d0", **PARTITION},
                {"name": "d1", **PARTITION, "attributes": {"a.example/p": {"int": 1}}},
                {"name": "d2"},
            ],
        },
        [
            f"spec.devices[{index}].attributes[a.example/p]: must be a string, because partitionTypeAttribute names it"
            for index in range(2)
        ],
    ),
    ({"devices": [{"name": "d"}] * 2}, ['spec.devices[1]: "d" is there twice']),
    ({"devices": [{"name": f"d{i}"} for i in range(129)]}, ["spec.devices: has 129 entries, more than 128"]),
]


@pytest.mark.parametrize(("spec", "problems"), BAD_SLICES)
def test_bad_slices_have_problems(spec: dict[str, Any], problems: list[str]) -> None:
    assert slice_problems(**spec) == problems


@pytest.mark.parametrize(
    "advanced",
    [
        {"taints": [TAINT]},
        {"consumesCounters": [{"counterSet": "a", "counters": counters(1)}]},
        {"attributes": {"a": {"strings": ["x"]}}},
    ],
)
def test_at_most_64_devices_may_have_taints_counters_or_lists(advanced: dict[str, Any]) -> None:
    assert slice_problems(advanced, *({} for _ in range(64))) == ["spec.devices: has 65 entries, more than 64"]


BAD_DEVICES: list[tuple[dict[str, Any], list[str]]] = [
    ({"name": "GPU"}, [f'name: "GPU" {LABEL}']),
    ({"nodeName": "n"}, ["nodeName: is only allowed with perDeviceNodeSelection in the slice"]),
    ({"taints": [TAINT] * 17}, ["taints: has 17 entries, more than 16"]),
    (
        {"taints": [{"key": "a/b/c", "value": "-", "effect": "Hide"}]},
        [
            f'taints[0].key: "a/b/c" has a domain that {SUBDOMAIN}',
            'taints[0].value: "-" is not a label\'s value: letters, digits, -, _ and .',
            'taints[0].effect: "Hide" is not one of NoSchedule, NoExecute, None',
        ],
    ),
    (
        {"attributes": {f"a{i}": ATTRIBUTE for i in range(20)}, "capacity": {f"c{i}": {"value": 1} for i in range(13)}},
        [": has 33 attributes and capacities, more than 32"],
    ),
    ({"attributes": {"a": {"ints": [1] * 49}}}, [": has 49 values of attributes, more than 48"]),
    ({"attributes": {"a-b": ATTRIBUTE}}, ['attributes[a-b]: "a-b" is not a C identifier']),
    ({"attributes": {"/a": ATTRIBUTE}}, ['attributes[/a]: "/a" has a domain that is empty']),
    ({"attributes": {"x.y/": ATTRIBUTE}}, ['attributes[x.y/]: "x.y/" has a name that is empty']),
    ({"attributes": {"a" * 33: ATTRIBUTE}}, [f'attributes[{"a" * 33}]: "{"a" * 33}" is longer than 32']),
    ({"attributes": {"a": {}}}, ["attributes[a]: must have exactly one value of a known type"]),
    ({"attributes": {"a": {"new": 1}}}, ["attributes[a]: must have exactly one value of a known type"]),
    ({"attributes": {"a": {"string": "ä" * 33}}}, [f'attributes[a].string: "{"ä" * 33}" is longer than 64 bytes']),
    ({"attributes": {"a": {"strings": []}}}, ["attributes[a].strings: must not be empty"]),
    (
        {"attributes": {"a": {"strings": ["b", "x" * 65]}}},
        [f'attributes[a].strings[1]: "{"x" * 63}... is longer than 64 bytes'],
    ),
    (
        {"capacity": {"m": {"value": "1", "requestPolicy": {"default": "1"}}}},
        ["capacity[m].requestPolicy: is only allowed with allowMultipleAllocations"],
    ),
    (
        {"consumesCounters": [{"counterSet": "s", "counters": {}}] * 2},
        [
            "consumesCounters[0].counters: is required",
            "consumesCounters[1].counters: is required",
            'consumesCounters[1]: "s" is there twice',
        ],
    ),
    (
        {"consumesCounters": [{"counterSet": f"s{i}", "counters": counters(1)} for i in range(3)]},
        ["consumesCounters: has 3 entries, more than 2"],
    ),
    (
        {"consumesCounters": [{"counterSet": "s", "counters": counters(1), "compatibilityGroups": ["a", "b", "c"]}]},
        ["consumesCounters[0].compatibilityGroups: has 3 entries, more than 2"],
    ),
    (
        {"bindingConditions": ["a", "a"], "bindingFailureConditions": ["a"]},
        [
            'bindingConditions[1]: "a" is there twice',
            'bindingFailureConditions[0]: "a" is a binding condition as well',
        ],
    ),
    ({"bindingConditions": ["a"]}, ["bindingFailureConditions: is required with bindingConditions"]),
    ({"bindingFailureConditions": ["a"]}, ["bindingConditions: is required with bindingFailureConditions"]),
    (
        {"bindingConditions": list("abcde"), "bindingFailureConditions": ["f"]},
        ["bindingConditions: has 5 entries, more than 4"],
    ),
]


@pytest.mark.parametrize(("device", "problems"), BAD_DEVICES)
def test_bad_devices_have_problems(device: dict[str, Any], problems: list[str]) -> None:
    paths = [f"spec.devices[0]{p}" if p.startswith(":") else f"spec.devices[0].{p}" for p in problems]
    assert slice_problems(device) == paths


def test_nested_devices_have_paths_of_their_own() -> None:
    device = {"name": "D", "basic": {"attributes": {"a-b": ATTRIBUTE}}}
    obj = an_object("ResourceSlice", a_slice(devices=[device], allNodes=False), version="v1beta1")
    assert told(obj) == [
        f'spec.devices[0].name: "D" {LABEL}',
        'spec.devices[0].basic.attributes[a-b]: "a-b" is not a C identifier',
    ]


def test_each_device_needs_a_placement() -> None:
    wanted = "exactly one of nodeName, nodeSelector, allNodes is required"
    problems = slice_problems({}, {"nodeName": "a", "allNodes": True}, nodeName=None, perDeviceNodeSelection=True)
    assert problems == [f"spec.devices[0]: {wanted}", f"spec.devices[1]: {wanted}, not nodeName and allNodes"]


BAD_POLICIES: list[tuple[dict[str, Any], list[str]]] = [
    ({"validValues": ["1"]}, [".default: is required with validValues or validRange"]),
    ({"validRange": {"min": "1"}}, [".default: is required with validValues or validRange"]),
    (
        {"default": "1", "validValues": ["1"], "validRange": {"min": "1"}},
        [": only one of validValues and validRange is allowed"],
    ),
    ({"default": "3", "validValues": ["1", "2"]}, [".default: 3 is not one of validValues"]),
    ({"default": "1", "validValues": ["1", "1"]}, [".validValues[1]: 1 is not greater than 1 before it"]),
    ({"default": "1", "validValues": ["1", "11"]}, [".validValues[1]: 11 is greater than the capacity, 10"]),
    (
        {"default": "1", "validValues": [str(i) for i in range(11)]},
        [".validValues: has 11 entries, more than 10"],
    ),
    ({"default": "1", "validRange": {"min": "2"}}, [".validRange.min: 2 is greater than the default, 1"]),
    ({"default": "1", "validRange": {"min": "-1"}}, [".validRange.min: -1 is negative"]),
    (
        {"default": "11", "validRange": {"min": "11"}},
        [".validRange.min: 11 is greater than the capacity, 10"],
    ),
    (
        {"default": "5", "validRange": {"min": "1", "max": "4"}},
        [".validRange.max: 4 is less than the default, 5"],
    ),
    (
        {"default": "5", "validRange": {"min": "1", "max": "11"}},
        [".validRange.max: 11 is greater than the capacity, 10"],
    ),
    (
        {"default": "5", "validRange": {"min": "5", "max": "4"}},
        [".validRange.max: 4 is less than min, 5", ".validRange.max: 4 is less than the default, 5"],
    ),
    (
        {"default": "2", "validRange": {"min": "1", "max": "4", "step": "2"}},
        [".validRange.step: 2 is not min and n times 2", ".validRange.step: 4 is not min and n times 2"],
    ),
    (
        {"default": "1", "validRange": {"min": "1", "step": "10"}},
        [".validRange.step: one 10 above min is greater than the capacity, 10"],
    ),
    (
        {"default": "1", "validRange": {"min": "1", "step": "0"}},
        [".validRange.step: 0 is not greater than zero"],
    ),
]


@pytest.mark.parametrize(("fields", "problems"), BAD_POLICIES)
def test_bad_request_policies_have_problems(fields: dict[str, Any], problems: list[str]) -> None:
    at = "spec.devices[0].capacity[m].requestPolicy"
    assert slice_problems(policy(**fields)) == [f"{at}{problem}" for problem in problems]


UNREADABLE = [
    ("10Gx", {"default": "1", "validRange": {"min": "2"}}, 'value: "10Gx"'),
    ("10Gx", {"default": "1", "validValues": ["2"]}, 'value: "10Gx"'),
    ("10", {"default": "1x", "validRange": {"min": "11"}}, 'requestPolicy.default: "1x"'),
    ("10", {"default": "1x", "validValues": ["11"]}, 'requestPolicy.default: "1x"'),
    ("10", {"default": "2", "validValues": ["1x", "11"]}, 'requestPolicy.validValues[0]: "1x"'),
    ("10", {"default": "2", "validRange": {"min": "1x", "max": "11"}}, 'requestPolicy.validRange.min: "1x"'),
    ("10", {"default": "2", "validRange": {"min": "3", "max": "1x"}}, 'requestPolicy.validRange.max: "1x"'),
]


@pytest.mark.parametrize(("capacity", "fields", "problem"), UNREADABLE)
def test_what_cannot_be_read_is_not_compared(capacity: str, fields: dict[str, Any], problem: str) -> None:
    at = "spec.devices[0].capacity[m]"
    assert slice_problems(policy(capacity, **fields)) == [f"{at}.{problem} is not a quantity"]


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ({"key": "zone", "operator": "In", "values": []}, "values: is required for In"),
        ({"key": "zone", "operator": "Exists", "values": ["a"]}, "values: must be left out for Exists"),
        ({"key": "zone", "operator": "Gt", "values": ["1", "2"]}, "values: must have one entry for Gt"),
        (
            {"key": "zone", "operator": "Like", "values": ["1"]},
            'operator: "Like" is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt',
        ),
        (
            {"key": "zone", "operator": "In", "values": ["a b"]},
            'values[0]: "a b" is not a label\'s value: letters, digits, -, _ and .',
        ),
    ],
)
def test_bad_node_selectors_have_problems(requirement: dict[str, Any], problem: str) -> None:
    at = "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0]"
    assert slice_problems(nodeName=None, nodeSelector=selector(requirement)) == [f"{at}.{problem}"]


def test_field_selectors_may_only_name_the_node() -> None:
    by_zone = {"key": "zone", "operator": "Exists", "values": ["a", "b"]}
    at = "spec.nodeSelector.nodeSelectorTerms[0].matchFields[0]"
    assert slice_problems(nodeName=None, nodeSelector=selector(fields=(by_zone,))) == [
        f'{at}.key: "zone" is not one of metadata.name',
        f'{at}.operator: "Exists" is not one of In, NotIn',
        f"{at}.values: must have one entry",
    ]
