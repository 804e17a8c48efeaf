"""What an API server refuses in claims, templates, classes and taint rules: each rule with its path and message."""

from typing import Any

import pytest

from allocator.model.validation import validate

GROUP = "resource.k8s.io"
LABEL = "is not a DNS label: lower case letters, digits and -"
SUBDOMAIN = "is not a DNS subdomain: lower case letters, digits, - and ."
UNKNOWN = "is not a request of the claim, or a request / subrequest"
CONFIG = {"opaque": {"driver": "gpu.example.com", "parameters": {}}}
CEL = {"cel": {"expression": "true"}}


def told(kind: str, spec: object, version: str = "v1", **parts: object) -> list[str]:
    obj = {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": {"name": "x"}, "spec": spec, **parts}
    return [str(problem) for problem in validate(obj)]


def claim_problems(*requests: dict[str, Any], **devices: object) -> list[str]:
    return told("ResourceClaim", {"devices": {"requests": list(requests), **devices}})


def exactly(name: str = "r", **fields: object) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "gpu.example.com", **fields}}


def either(*names: str) -> dict[str, Any]:
    return {"name": "r", "firstAvailable": [{"name": name, "deviceClassName": "gpu"} for name in names]}


GOOD: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([], {}),
    ([exactly(f"r-{i}") for i in range(32)], {}),
    ([exactly(allocationMode="All"), exactly("s", count=5, selectors=[CEL] * 32)], {}),
    ([either(*"abcdefgh")], {"constraints": [{"requests": ["r/a", "r"], "matchAttribute": "x.y/a"}]}),
    ([exactly(tolerations=[{"operator": "Exists"}, {"key": "a/b", "value": "v", "effect": "None"}])], {}),
    ([exactly()], {"constraints": [{"distinctAttribute": "x.y/a"}] * 32, "config": [CONFIG] * 32}),
    (
        [exactly(derivedAttributes=[{"name": "derived/numa", "expression": "1"}])],
        {"constraints": [{"matchAttribute": "derived/numa"}]},
    ),
]


@pytest.mark.parametrize(("requests", "devices"), GOOD)
def test_good_claims_have_no_problems(requests: list[dict[str, Any]], devices: dict[str, Any]) -> None:
    assert claim_problems(*requests, **devices) == []


BAD_REQUESTS: list[tuple[list[dict[str, Any]], list[str]]] = [
    ([exactly(f"r-{i}") for i in range(33)], [": has 33 entries, more than 32"]),
    ([exactly(), exactly()], ['[1]: "r" is there twice']),
    ([exactly("R")], [f'[0].name: "R" {LABEL}']),
    ([{"name": "r"}], ["[0]: exactly one of exactly and firstAvailable is required"]),
    ([{"name": "r", "exactly": {}}], ["[0].exactly.deviceClassName: is required"]),
    ([exactly(deviceClassName="A_")], [f'[0].exactly.deviceClassName: "A_" {SUBDOMAIN}']),
    ([exactly(allocationMode="Some")], ['[0].exactly.allocationMode: "Some" is not one of ExactCount, All']),
    ([exactly(allocationMode="All", count=1)], ["[0].exactly.count: 1 is not allowed with allocationMode All"]),
    ([exactly(count=-1)], ["[0].exactly.count: -1 is not greater than zero"]),
    ([exactly(selectors=[CEL] * 33)], ["[0].exactly.selectors: has 33 entries, more than 32"]),
    ([exactly(selectors=[{}])], ["[0].exactly.selectors[0].cel.expression: is required"]),
    (
        [exactly(selectors=[{"cel": {"expression": "x" * 10241}}])],
        ["[0].exactly.selectors[0].cel.expression: is longer than 10240 bytes"],
    ),
    ([exactly(tolerations=[{}] * 17)], ["[0].exactly.tolerations: has 17 entries, more than 16"]),
    (
        [exactly(tolerations=[{"operator": "Exists", "value": "v"}, {"operator": "Is", "key": "-", "effect": "Hide"}])],
        [
            "[0].exactly.tolerations[0].value: must be left out for Exists",
            '[0].exactly.tolerations[1].key: "-" is not a label\'s name: letters, digits, -, _ and .',
            '[0].exactly.tolerations[1].operator: "Is" is not one of Exists, Equal',
            '[0].exactly.tolerations[1].effect: "Hide" is not one of NoSchedule, NoExecute, None',
        ],
    ),
    ([either(*"abcdefghi")], ["[0].firstAvailable: has 9 entries, more than 8"]),
    ([either("a", "a")], ['[0].firstAvailable[1]: "a" is there twice']),
    (
        [exactly(derivedAttributes=[{"name": "numa", "expression": ""}])],
        [
            '[0].exactly.derivedAttributes[0].name: "numa" is not a domain and a name with / between them',
            "[0].exactly.derivedAttributes[0].expression: is required",
            '[0].exactly.derivedAttributes[0].name: "numa" is not named by a constraint',
        ],
    ),
    (
        [exactly(derivedAttributes=[{"name": "a/b", "expression": "1"}] * 33)],
        ["[0].exactly.derivedAttributes: has 33 entries, more than 32"],
    ),
]


@pytest.mark.parametrize(("requests", "problems"), BAD_REQUESTS)
def test_bad_requests_have_problems(requests: list[dict[str, Any]], problems: list[str]) -> None:
    assert claim_problems(*requests) == [f"spec.devices.requests{problem}" for problem in problems]


def test_flat_requests_have_paths_of_their_own() -> None:
    requests = [{"name": "r", "deviceClassName": "A"}, {"name": "s"}]
    assert told("ResourceClaim", {"devices": {"requests": requests}}, "v1beta1") == [
        f'spec.devices.requests[0].deviceClassName: "A" {SUBDOMAIN}',
        "spec.devices.requests[1].deviceClassName: is required",
    ]


@pytest.mark.parametrize("part", ["constraints", "config"])
@pytest.mark.parametrize(
    ("names", "problems"),
    [
        (["other"], [f'requests[0]: "other" {UNKNOWN}']),
        (["r", "r"], ['requests[1]: "r" is there twice']),
        (["r/a", "r/c", "r/a/b"], [f'requests[1]: "r/c" {UNKNOWN}', f'requests[2]: "r/a/b" {UNKNOWN}']),
        (["r"] * 33, ["requests: has 33 entries, more than 32"]),
    ],
)
def test_names_of_requests_must_exist(part: str, names: list[str], problems: list[str]) -> None:
    entry = {"requests": names, **CONFIG} if part == "config" else {"requests": names, "matchAttribute": "x.y/a"}
    found = claim_problems(either("a", "b"), **{part: [entry]})
    assert found == [f"spec.devices.{part}[0].{problem}" for problem in problems]


@pytest.mark.parametrize(
    ("constraint", "problem"),
    [
        ({}, ": exactly one of matchAttribute and distinctAttribute is required"),
        (
            {"matchAttribute": "x.y/a", "distinctAttribute": "x.y/a"},
            ": exactly one of matchAttribute and distinctAttribute is required",
        ),
        ({"matchAttribute": "a"}, '.matchAttribute: "a" is not a domain and a name with / between them'),
        ({"distinctAttribute": "x.y/a-b"}, '.distinctAttribute: "x.y/a-b" has a name that is not a C identifier'),
    ],
)
def test_bad_constraints_have_problems(constraint: dict[str, Any], problem: str) -> None:
    assert claim_problems(constraints=[constraint]) == [f"spec.devices.constraints[0]{problem}"]
    assert claim_problems(constraints=[{"matchAttribute": "a/b"}] * 33) == [
        "spec.devices.constraints: has 33 entries, more than 32"
    ]


BAD_CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({}, "opaque: is required"),
    ({"opaque": {"parameters": {}}}, "opaque.driver: is required"),
    ({"opaque": {"driver": "d"}}, "opaque.parameters: is required"),
    ({"opaque": {"driver": "d", "parameters": [1]}}, "opaque.parameters: [1] is not an object"),
    ({"opaque": {"driver": "d", "parameters": {"a": "x" * 10241}}}, "opaque.parameters: is longer than 10240 bytes"),
]


@pytest.mark.parametrize(("config", "problem"), BAD_CONFIGS)
def test_bad_configuration_has_problems(config: dict[str, Any], problem: str) -> None:
    assert claim_problems(config=[config]) == [f"spec.devices.config[0].{problem}"]
    assert told("DeviceClass", {"config": [config]}) == [f"spec.config[0].{problem}"]


def test_names_are_not_looked_up_in_a_list_that_is_too_long() -> None:
    constraint = {"requests": [f"r-{i}" for i in range(33)], "matchAttribute": "x.y/a"}
    assert claim_problems(exactly(), constraints=[constraint]) == [
        "spec.devices.constraints[0].requests: has 33 entries, more than 32"
    ]


def test_at_most_32_configurations() -> None:
    assert claim_problems(config=[CONFIG] * 33) == ["spec.devices.config: has 33 entries, more than 32"]
    assert told("DeviceClass", {"config": [CONFIG] * 33}) == ["spec.config: has 33 entries, more than 32"]


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("example.com/gpu", True),
        ("", False),
        ("gpu", False),
        ("kubernetes.io/gpu", False),
        ("requests.example.com/gpu", False),
        ("example.com/-", False),
        (f"example.com/{'x' * 64}", False),
    ],
)
def test_an_extended_resource_needs_a_qualified_name(name: str, good: bool) -> None:
    found = told("DeviceClass", {"extendedResourceName": name, "selectors": [CEL]})
    assert [problem.split(":")[0] for problem in found] == ([] if good else ["spec.extendedResourceName"])


def test_bad_taint_rules_have_problems() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    assert told("DeviceTaintRule", {"deviceSelector": {"pool": "a/b"}, "taint": taint}) == []
    assert told("DeviceTaintRule", {"taint": taint}, "v1alpha3") == []
    assert told("DeviceTaintRule", {"deviceSelector": {"driver": "", "device": "D"}, "taint": {}}) == [
        "spec.deviceSelector.driver: is required",
        f'spec.deviceSelector.device: "D" {LABEL}',
        "spec.taint.key: is required",
        "spec.taint.effect: is required",
    ]


def test_templates_are_checked_as_claims() -> None:
    spec = {"spec": {"devices": {"requests": [exactly("R")]}}}
    assert told("ResourceClaimTemplate", spec) == [f'spec.spec.devices.requests[0].name: "R" {LABEL}']


RESULT = {"request": "r", "driver": "d", "pool": "p", "device": "x", "shareID": "6b1c0a54-5f7b-4d52-b0a5-0f0f0f0f0f0f"}
POD = {"resource": "pods", "name": "p", "uid": "u"}
BAD_STATUS: list[tuple[dict[str, Any], list[str]]] = [
    ({"reservedFor": [POD]}, ["reservedFor: is only allowed with an allocation"]),
    (
        {"allocation": {}, "reservedFor": [{**POD, "uid": str(i)} for i in range(257)]},
        ["reservedFor: has 257 entries, more than 256"],
    ),
    ({"allocation": {}, "reservedFor": [POD, POD]}, ['reservedFor[1]: "u" is there twice']),
    ({"allocation": {}, "reservedFor": [{"name": "p", "uid": "u"}]}, ["reservedFor[0].resource: is required"]),
    (
        {"allocation": {"devices": {"results": [RESULT] * 33}}},
        ["allocation.devices.results: has 33 entries, more than 32"],
    ),
    (
        {"allocation": {"devices": {"results": [{**RESULT, "request": "other", "device": "X", "shareID": "1"}]}}},
        [
            f'allocation.devices.results[0].request: "other" {UNKNOWN}',
            f'allocation.devices.results[0].device: "X" {LABEL}',
            'allocation.devices.results[0].shareID: "1" is not a UUID in lower case',
        ],
    ),
    (
        {"allocation": {"devices": {"config": [{**CONFIG, "source": "Here"}]}, "nodeSelector": {}}},
        [
            'allocation.devices.config[0].source: "Here" is not one of FromClass, FromClaim',
            "allocation.nodeSelector.nodeSelectorTerms: is required",
        ],
    ),
]


@pytest.mark.parametrize(("status", "problems"), BAD_STATUS)
def test_a_bad_status_has_problems(status: dict[str, Any], problems: list[str]) -> None:
    found = told("ResourceClaim", {"devices": {"requests": [exactly()]}}, status=status)
    assert found == [f"status.{problem}" for problem in problems]


def test_a_good_status_has_no_problems() -> None:
    status = {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": [POD]}
    assert told("ResourceClaim", {"devices": {"requests": [exactly()]}}, status=status) == []


def test_names_of_objects_are_checked() -> None:
    assert told("DeviceClass", {}, metadata={}) == ["metadata.name: is required"]
    assert told("DeviceClass", {}, metadata={"name": "A", "namespace": "b.c"}) == [
        f'metadata.name: "A" {SUBDOMAIN}',
        f'metadata.namespace: "b.c" {LABEL}',
    ]


def test_expressions_are_checked_by_what_is_handed_in() -> None:
    obj = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "x"},
        "spec": {"selectors": [CEL, {"cel": {"expression": "nonsense"}}]},
    }
    found = validate(obj, lambda source: None if source == "true" else f"{source} does not compile")
    assert [str(problem) for problem in found] == ["spec.selectors[1].cel.expression: nonsense does not compile"]


def test_other_groups_and_kinds_have_no_rules() -> None:
    assert validate({"apiVersion": "apps/v1", "kind": "Deployment"}) == ()
    assert told("ResourcePoolStatusRequest", {}) == []
