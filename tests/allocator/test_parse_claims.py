"""Claims, templates, classes, taint rules and allocations: what each version says, and back to JSON."""

from dataclasses import fields
from typing import Any

import pytest

from allocator import (
    AllocationMode,
    AllocationResult,
    ClaimSpec,
    ConstraintKind,
    ConstraintSpec,
    Consumer,
    DeviceId,
    DeviceRequest,
    DeviceTaint,
    InvalidObjectError,
    Quantity,
    Request,
    Toleration,
    allocation_to_json,
    parse_claim,
    parse_claim_template,
    parse_device_class,
    parse_taint_rule,
)
from allocator.model.allocations import AllocatedConfig, ClaimConfig, OpaqueConfig
from allocator.model.claims import DerivedAttribute

GROUP = "resource.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta2", f"{GROUP}/v1beta1")

EXACTLY: dict[str, Any] = {
    "deviceClassName": "gpu",
    "selectors": [{"cel": {"expression": "device.driver == 'x'"}}],
    "allocationMode": "ExactCount",
    "count": 2,
    "adminAccess": True,
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}],
    "capacity": {"requests": {"memory": "1Gi", "cores": "2"}},
    "derivedAttributes": [{"name": "derived/numa", "expression": "1"}],
}
SPEC: dict[str, Any] = {
    "devices": {
        "requests": [
            {"name": "one", "exactly": EXACTLY},
            {
                "name": "two",
                "firstAvailable": [
                    {"name": "big", "deviceClassName": "gpu", "allocationMode": "All"},
                    {"name": "small", "deviceClassName": "mig", "allocationMode": "ExactCount", "count": 1},
                ],
            },
        ],
        "constraints": [
            {"requests": ["one", "two/big"], "matchAttribute": "example.com/root"},
            {"distinctAttribute": "example.com/slot"},
        ],
        "config": [{"requests": ["one"], "opaque": {"driver": "gpu.example.com", "parameters": {"b": [1], "a": None}}}],
    },
}


def spec_for(version: str) -> dict[str, Any]:
    """The spec as a version writes it: v1beta1 has no ``exactly``."""
    if not version.endswith("v1beta1"):
        return SPEC
    one, two = SPEC["devices"]["requests"]
    return {"devices": {**SPEC["devices"], "requests": [{"name": one["name"], **one["exactly"]}, two]}}


def a_claim(version: str = VERSIONS[0], spec: object = SPEC, **parts: Any) -> dict[str, Any]:
    metadata = {"name": "c", "namespace": "ns", "uid": "u-1"}
    return {"apiVersion": version, "kind": "ResourceClaim", "metadata": metadata, "spec": spec, **parts}


def parse_spec(spec: object, version: str = VERSIONS[0]) -> ClaimSpec:
    return parse_claim(a_claim(version, spec)).spec


def parse_allocation(allocation: object, version: str = VERSIONS[0]) -> AllocationResult:
    parsed = parse_claim(a_claim(version, status={"allocation": allocation})).allocation
    assert parsed is not None
    return parsed


def problems_of(requests: object) -> list[str]:
    with pytest.raises(InvalidObjectError) as raised:
        parse_claim(a_claim(spec={"devices": {"requests": requests}}))
    return [str(problem) for problem in raised.value.problems]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_spec_says_the_same_in_all_versions(version: str) -> None:
    spec = parse_claim(a_claim(version, spec_for(version))).spec
    assert spec.requests == (
        Request(
            "one",
            (
                DeviceRequest(
                    device_class="gpu",
                    selectors=("device.driver == 'x'",),
                    count=2,
                    admin_access=True,
                    tolerations=(Toleration("k", "Exists", "", "NoExecute", 30),),
                    capacity=(("cores", Quantity.from_int(2)), ("memory", Quantity.parse("1Gi"))),
                    derived_attributes=(DerivedAttribute("derived/numa", "1"),),
                ),
            ),
        ),
        Request(
            "two",
            (DeviceRequest("gpu", "big", mode=AllocationMode.ALL), DeviceRequest("mig", "small")),
            prioritized=True,
        ),
    )
    assert spec.constraints == (
        ConstraintSpec(ConstraintKind.MATCH, "example.com/root", ("one", "two/big")),
        ConstraintSpec(ConstraintKind.DISTINCT, "example.com/slot"),
    )
    assert spec.configs == (ClaimConfig(OpaqueConfig("gpu.example.com", '{"b":[1],"a":null}'), ("one",)),)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"exactly": {"deviceClassName": "c"}}, DeviceRequest("c", count=1)),
        ({"exactly": {"deviceClassName": "c", "allocationMode": ""}}, DeviceRequest("c", count=1)),
        ({"exactly": {"deviceClassName": "c", "count": 0}}, DeviceRequest("c", count=1)),
        ({"exactly": {"deviceClassName": "c", "count": -1}}, DeviceRequest("c", count=-1)),
        ({"exactly": {"deviceClassName": "c", "allocationMode": "Some"}}, DeviceRequest("c", mode=None)),
        ({"exactly": {"deviceClassName": "c", "capacity": {}}}, DeviceRequest("c", capacity=())),
        ({"exactly": {"deviceClassName": "c", "selectors": [{"new": {}}]}}, DeviceRequest("c", selectors=("",))),
        ({"exactly": {"deviceClassName": "c", "tolerations": [{}]}}, DeviceRequest("c", tolerations=(Toleration(),))),
        ({"exactly": {}, "firstAvailable": []}, DeviceRequest("")),
    ],
)
def test_defaults_are_those_of_the_api(request_: dict[str, Any], expected: DeviceRequest) -> None:
    spec = parse_spec({"devices": {"requests": [{"name": "r", **request_}]}})
    assert spec.requests == (Request("r", (expected,)),)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_of_an_unknown_kind_has_no_alternatives(version: str) -> None:
    spec = parse_spec({"devices": {"requests": [{"name": "r", "new": {}}]}}, version)
    assert spec.requests == (Request("r", ()),)


def test_constraints_and_configuration_of_unknown_kinds_are_kept_as_unknown() -> None:
    spec = parse_spec({"devices": {"constraints": [{"new": 1}], "config": [{"new": {}}]}})
    assert spec.constraints == (ConstraintSpec(None),)
    assert spec.configs == (ClaimConfig(OpaqueConfig("", "")),)


def test_equal_requests_are_equal_in_whatever_order_capacities_come() -> None:
    def spec(*capacities: str) -> dict[str, Any]:
        capacity = {"requests": dict.fromkeys(capacities, "1")}
        return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "capacity": capacity}}]}}

    one, other = parse_spec(spec("a", "b")), parse_spec(spec("b", "a"))
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({"exactly": {"deviceClassName": 1}}, ".exactly.deviceClassName: 1 is not a string"),
        ({"exactly": {"count": "1"}}, '.exactly.count: "1" is not a whole number of 64 bits'),
        ({"exactly": {"count": 1.0}}, ".exactly.count: 1.0 is not a whole number of 64 bits"),
        ({"exactly": {"adminAccess": "x"}}, '.exactly.adminAccess: "x" is not true or false'),
        ({"exactly": {"selectors": [{"cel": "x"}]}}, '.exactly.selectors[0].cel: "x" is not an object'),
        (
            {"exactly": {"capacity": {"requests": {"memory": "1Gx"}}}},
            '.exactly.capacity.requests[memory]: "1Gx" is not a quantity',
        ),
        ({"firstAvailable": [{}]}, ".firstAvailable[0].name: is required"),
        ({"firstAvailable": {}}, ".firstAvailable: {} is not a list"),
        (
            {"exactly": {}, "firstAvailable": [{"name": "x"}]},
            ": exactly one of exactly and firstAvailable is allowed, but both are set",
        ),
    ],
)
def test_a_problem_names_path_and_value(request_: dict[str, Any], problem: str) -> None:
    assert problems_of([{"name": "r", **request_}]) == [f"spec.devices.requests[0]{problem}"]


@pytest.mark.parametrize("empty", [{"deviceClassName": ""}, {"allocationMode": "", "count": 0, "selectors": None}])
def test_v1beta1_has_no_exact_request_where_nothing_is_said_of_one(empty: dict[str, Any]) -> None:
    """A real API server of that version sends the class of every request, empty beside alternatives."""
    request = {"name": "r", **empty, "firstAvailable": [{"name": "x", "deviceClassName": "c"}]}
    (parsed,) = parse_spec({"devices": {"requests": [request]}}, VERSIONS[2]).requests
    assert [alternative.device_class for alternative in parsed.alternatives] == ["c"]


@pytest.mark.parametrize("field", EXACTLY)
def test_v1beta1_refuses_both_ways_at_once(field: str) -> None:
    request = {"name": "r", field: EXACTLY[field], "firstAvailable": [{"name": "x", "deviceClassName": "c"}]}
    with pytest.raises(InvalidObjectError, match=r"spec.devices.requests\[0\]: exactly one of"):
        parse_spec({"devices": {"requests": [request]}}, VERSIONS[2])


def test_the_request_of_these_tests_sets_every_field() -> None:
    (request,) = parse_spec({"devices": {"requests": [{"name": "r", "exactly": EXACTLY}]}}, VERSIONS[0]).requests
    (found,) = request.alternatives
    empty = DeviceRequest("")
    unset = [each.name for each in fields(found) if getattr(found, each.name) == getattr(empty, each.name)]
    assert unset == ["name", "mode"]


ALLOCATION: dict[str, Any] = {
    "devices": {
        "results": [
            {
                "request": "one",
                "driver": "gpu.example.com",
                "pool": "node-1",
                "device": "gpu-0",
                "adminAccess": False,
                "tolerations": [{"operator": "Equal", "key": "k", "value": "v"}],
                "shareID": "a",
                "consumedCapacity": {"memory": "1Gi"},
                "bindingConditions": ["ready"],
                "bindingFailureConditions": ["failed"],
                "skipNodeOperations": ["*"],
            },
            {"request": "two/big", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-1"},
        ],
        "config": [{"source": "FromClass", "requests": ["one"], "opaque": {"driver": "d", "parameters": {"x": 1}}}],
    },
    "nodeSelector": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}],
    },
    "allocationTimestamp": "2025-01-01T00:00:00Z",
}


def test_a_claim_is_read_with_its_status() -> None:
    metadata = {
        "name": "c",
        "namespace": "ns",
        "uid": "u-1",
        "deletionTimestamp": "2025-01-01T00:00:00Z",
        "annotations": {"a": "b"},
        "ownerReferences": [{"uid": "other"}, {"uid": "pod-uid", "name": "pod", "controller": True}],
    }
    status = {"allocation": ALLOCATION, "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-uid"}]}
    claim = parse_claim(a_claim(metadata=metadata, status=status))
    assert str(claim) == "ns/c"
    assert (claim.uid, claim.owner_uid, claim.deleting, claim.annotations) == ("u-1", "pod-uid", True, {"a": "b"})
    assert claim.owner_name == "pod"
    assert claim.reserved_for == (Consumer("pods", "p", "pod-uid"),)
    assert claim.allocation is not None
    first, second = claim.allocation.results
    assert first.device == DeviceId("gpu.example.com", "node-1", "gpu-0")
    assert (first.admin_access, first.share_id) == (False, "a")
    assert first.consumed_capacity == {"memory": Quantity.parse("1Gi")}
    assert (second.admin_access, second.consumed_capacity, second.binding_conditions) == (None, None, None)
    assert claim.allocation.configs == (AllocatedConfig("FromClass", OpaqueConfig("d", '{"x":1}'), ("one",)),)
    assert claim.allocation.timestamp == "2025-01-01T00:00:00Z"


@pytest.mark.parametrize("field", ["uid", "name"])
def test_a_claim_whose_owner_is_no_text_is_refused(field: str) -> None:
    """What is read of an owner later on would fail then: special claims that are left over tell the pod by it."""
    metadata = {"name": "c", "ownerReferences": [{"uid": "u", "name": "p", "controller": True, field: {"a": 1}}]}
    with pytest.raises(InvalidObjectError, match=rf"metadata.ownerReferences\[0\].{field}: .* is not a string"):
        parse_claim(a_claim(metadata=metadata))


def test_a_claim_without_status_has_no_allocation() -> None:
    claim = parse_claim(a_claim())
    assert (claim.allocation, claim.reserved_for, claim.owner_uid, claim.deleting) == (None, (), None, False)


def test_consumers_of_every_kind_are_read() -> None:
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "2"}
    entries = [{"resource": "pods", "name": "p", "uid": "1"}, group, {"name": "odd", "uid": "3", "apiGroup": None}]
    claim = parse_claim(a_claim(status={"allocation": ALLOCATION, "reservedFor": entries}))
    pod, pods, odd = claim.reserved_for
    assert (pod, odd) == (Consumer("pods", "p", "1"), Consumer("", "odd", "3"))
    assert pods.is_pod_group
    assert [claim.is_reserved_for(uid, "") for uid in ("1", "2", "3", "4")] == [True, True, True, False]
    assert [claim.is_reserved_for("4", group) for group in ("g", "p")] == [True, False]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"resource": "pods", "uid": "1"}, "name: is required"),
        ({"resource": "pods", "name": "p", "uid": ""}, "uid: is required"),
        ({"resource": 7, "name": "p", "uid": "1"}, "resource: 7 is not a string"),
        ({"resource": "pods", "name": "p", "uid": "1", "apiGroup": False}, "apiGroup: false is not a string"),
        ({"resource": "pods", "name": ["p"], "uid": "1"}, 'name: ["p"] is not a string'),
    ],
)
def test_a_consumer_with_a_problem_is_named(entry: dict[str, Any], problem: str) -> None:
    fine = {"resource": "pods", "name": "q", "uid": "2"}
    with pytest.raises(InvalidObjectError) as raised:
        parse_claim(a_claim(status={"allocation": ALLOCATION, "reservedFor": [fine, entry]}))
    assert [str(each) for each in raised.value.problems] == [f"status.reservedFor[1].{problem}"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("allocation", [ALLOCATION, {"devices": {}}])
def test_an_allocation_comes_back_as_it_was(version: str, allocation: dict[str, Any]) -> None:
    assert allocation_to_json(parse_allocation(allocation, version)) == allocation


def test_all_problems_of_an_allocation_are_named() -> None:
    bad = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "consumedCapacity": {"m": "x"}}]}}
    with pytest.raises(InvalidObjectError) as raised:
        parse_claim(a_claim(status={"allocation": bad, "reservedFor": [{"name": "p"}]}))
    assert [str(problem) for problem in raised.value.problems] == [
        "status.allocation.devices.results[0].device: is required",
        'status.allocation.devices.results[0].consumedCapacity[m]: "x" is not a quantity',
        "status.reservedFor[0].uid: is required",
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_template_is_read_in_all_versions(version: str) -> None:
    inner = {"metadata": {"labels": {"l": "1"}, "annotations": {"a": "2"}}, "spec": spec_for(version)}
    obj = {
        "apiVersion": version,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "ns"},
        "spec": inner,
    }
    template = parse_claim_template(obj)
    assert (template.namespace, template.name) == ("ns", "t")
    assert (template.labels, template.annotations) == ({"l": "1"}, {"a": "2"})
    assert template.spec == parse_spec(SPEC)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_class_is_read_in_all_versions(version: str) -> None:
    obj = {
        "apiVersion": version,
        "kind": "DeviceClass",
        "metadata": {"name": "gpu", "creationTimestamp": "2025-01-01T00:00:00Z"},
        "spec": {
            "selectors": [{"cel": {"expression": "true"}}],
            "config": [{"opaque": {"driver": "d", "parameters": {}}}],
            "extendedResourceName": "example.com/gpu",
        },
    }
    parsed = parse_device_class(obj)
    assert (parsed.name, parsed.selectors, parsed.created) == ("gpu", ("true",), "2025-01-01T00:00:00Z")
    assert parsed.configs == (OpaqueConfig("d", "{}"),)
    assert parsed.extended_resource_name == "example.com/gpu"


@pytest.mark.parametrize("version", [*VERSIONS, f"{GROUP}/v1alpha3"])
@pytest.mark.parametrize(
    ("selector", "names", "selects_none"),
    [
        ({"deviceSelector": {"driver": "d", "pool": "p", "device": "x"}}, ("d", "p", "x"), False),
        ({"deviceSelector": {}}, (None, None, None), False),
        ({}, (None, None, None), True),
    ],
)
def test_a_taint_rule_is_read_with_its_selector(
    version: str, selector: dict[str, Any], names: tuple[str | None, ...], selects_none: bool
) -> None:
    spec = {**selector, "taint": {"key": "k", "value": "v", "effect": "NoExecute"}}
    obj = {"apiVersion": version, "kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": spec}
    rule = parse_taint_rule(obj)
    assert rule.taint == DeviceTaint("k", "NoExecute", "v")
    assert (rule.driver, rule.pool, rule.device) == names
    assert rule.selects_none is selects_none


def test_a_taint_rule_is_not_read_as_wider_than_it_is() -> None:
    spec = {"deviceSelector": {"deviceClassName": "gpu"}, "taint": {"key": "k", "effect": "None"}}
    obj = {"apiVersion": f"{GROUP}/v1alpha3", "kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": spec}
    with pytest.raises(InvalidObjectError, match=r"spec.deviceSelector.deviceClassName: is not supported"):
        parse_taint_rule(obj)
