"""Fields that objects of Kubernetes have: unknown ones and wrong types are named, with what was probably meant."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.validation import pod_problems, schema_problems
from allocator.tools import hint, nearest
from tests.conformance.schema import KINDS, TABLE

TABLES: Final[Mapping[str, Any]] = json.loads(TABLE.read_text())
TYPES: Final[Mapping[str, Mapping[str, str]]] = TABLES["types"]
VALUES: Final[Mapping[str, object]] = {
    "any": {"a": [1]},
    "bool": True,
    "int-or-string": "25%",
    "int32": -(2**31),
    "int64": 2**63 - 1,
    "object": {},
    "quantity": "1.5Gi",
    "string": "x",
    "time": "2025-01-31T12:00:00Z",
}
"""A value of each scalar type."""


def told(version: str, kind: str, **fields: object) -> list[str]:
    return [str(problem) for problem in schema_problems({"apiVersion": version, "kind": kind, **fields})]


def request(version: str, fields: object) -> list[str]:
    """What is wrong with the only request of a claim."""
    spec = {"devices": {"requests": [fields]}}
    at = "spec.devices.requests[0]"
    return [each.replace(at, "REQUEST") for each in told(f"resource.k8s.io/{version}", "ResourceClaim", spec=spec)]


@pytest.mark.parametrize(
    ("version", "fields", "problem"),
    [
        ("v1", {"exactly": {"cout": 4}}, "REQUEST.exactly.cout: unknown field; did you mean count?"),
        ("v1", {"exactly": {"Count": 4}}, "REQUEST.exactly.Count: unknown field; did you mean count?"),
        ("v1", {"exactly": {"zebra": 4}}, "REQUEST.exactly.zebra: unknown field"),
        ("v1", {"exactly": {"zebra": None}}, "REQUEST.exactly.zebra: unknown field"),
        # in the wrong place: not deep enough, too deep
        ("v1", {"count": 4}, "REQUEST.count: unknown field; did you mean REQUEST.exactly.count?"),
        (
            "v1",
            {"exactly": {"firstAvailable": []}},
            "REQUEST.exactly.firstAvailable: unknown field; did you mean REQUEST.firstAvailable?",
        ),
        (
            "v1",
            {"exactly": {"constraints": []}},
            "REQUEST.exactly.constraints: unknown field; did you mean spec.devices.constraints?",
        ),
        # of another API version
        (
            "v1beta1",
            {"exactly": {}},
            "REQUEST.exactly: unknown field; resource.k8s.io/v1, resource.k8s.io/v1beta2 have it",
        ),
        # of a wrong type
        ("v1", {"exactly": []}, "REQUEST.exactly: [] is not an object"),
        ("v1", {"exactly": {"count": "4"}}, 'REQUEST.exactly.count: "4" is not a whole number of 64 bits'),
        ("v1", {"exactly": {"adminAccess": 1}}, "REQUEST.exactly.adminAccess: 1 is not true or false"),
        ("v1", {"exactly": {"selectors": {}}}, "REQUEST.exactly.selectors: {} is not a list"),
        ("v1", {"firstAvailable": [{"name": 5}]}, "REQUEST.firstAvailable[0].name: 5 is not a string"),
        (
            "v1",
            {"exactly": {"capacity": {"requests": {"memory": "1Gx"}}}},
            'REQUEST.exactly.capacity.requests[memory]: "1Gx" is not a quantity',
        ),
    ],
)
def test_what_is_wrong_with_a_request(version: str, fields: object, problem: str) -> None:
    assert request(version, fields) == [problem]


def test_v1beta1_has_the_fields_of_a_device_in_basic() -> None:
    spec = {"devices": [{"name": "gpu-0", "basic": {"capacity": {}}}]}
    assert told("resource.k8s.io/v1beta1", "ResourceSlice", spec=spec) == []
    assert told("resource.k8s.io/v1", "ResourceSlice", spec=spec) == [
        "spec.devices[0].basic: unknown field; resource.k8s.io/v1beta1 has it"
    ]
    flat = {"devices": [{"name": "gpu-0", "capacity": {}}]}
    assert told("resource.k8s.io/v1beta1", "ResourceSlice", spec=flat) == [
        "spec.devices[0].capacity: unknown field; did you mean spec.devices[0].basic.capacity?"
    ]


def test_a_class_that_would_take_every_device() -> None:
    spec = {"selector": [{"cel": {"expression": "false"}}]}
    found = told("resource.k8s.io/v1", "DeviceClass", spec=spec)
    assert found == ["spec.selector: unknown field; did you mean selectors?"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"containers": {}}, "spec.containers: {} is not a list"),
        (
            {"containers": [{"nodeSelector": {}}]},
            "spec.containers[0].nodeSelector: unknown field; did you mean spec.nodeSelector?",
        ),
        ({"resourceClaim": []}, "spec.resourceClaim: unknown field; did you mean resourceClaims?"),
        ({"nodeSelector": {"gpu": True}}, "spec.nodeSelector[gpu]: true is not a string"),
        ({"priority": 2**31}, "spec.priority: 2147483648 is not a whole number of 32 bits"),
        (
            {"containers": [{"resources": {"limits": {"cpu": [1]}}}]},
            "spec.containers[0].resources.limits[cpu]: [1] is not a quantity",
        ),
        (
            {"tolerations": [{"key": "a", "operater": "Exists"}]},
            "spec.tolerations[0].operater: unknown field; did you mean operator?",
        ),
    ],
)
def test_what_is_wrong_with_a_pod(spec: object, problem: str) -> None:
    assert told("v1", "Pod", spec=spec) == [problem]
    template = {"spec": {"template": {"spec": spec}}}
    assert told("apps/v1", "Deployment", **template) == [problem.replace("spec.", "spec.template.spec.")]


@pytest.mark.parametrize("kind", ["ConfigMap", "PodTemplate", "Service", "ReplicationController"])
def test_other_kinds_of_kubernetes_are_not_taken_for_misspellings(kind: str) -> None:
    assert schema_problems({"apiVersion": "v1", "kind": kind, "zebra": 1}) == ()


@pytest.mark.parametrize("kind", ["Pod", None, 5])
def test_other_kinds_and_versions_are_not_judged(kind: object) -> None:
    assert schema_problems({"apiVersion": "example.com/v1", "kind": kind, "zebra": 1}) == ()


@pytest.mark.parametrize(
    ("version", "kind", "problem"),
    [
        (
            "resource.k8s.io/v1beta1",
            "DeviceTaintRule",
            'apiVersion: "resource.k8s.io/v1beta1" has no DeviceTaintRule; {0}/v1, {0}/v1alpha3, {0}/v1beta2 have it',
        ),
        ("apps/v1beta2", "Deployment", 'apiVersion: "apps/v1beta2" has no Deployment; apps/v1 has it'),
        ("v2", "Pod", 'apiVersion: "v2" has no Pod; v1 has it'),
        ("resource.k8s.io/v1", "DeviceClas", "kind: unknown kind; did you mean DeviceClass?"),
        ("resource.k8s.io/v1", "Zebra", "kind: unknown kind"),
        ("v1", "node", "kind: unknown kind; did you mean Node?"),
        ("v1", "Deploymnt", "kind: unknown kind; did you mean Deployment?"),
        ("v1", "Deployment", 'apiVersion: "v1" has no Deployment; apps/v1 has it'),
        ("batch/v1", "Node", 'apiVersion: "batch/v1" has no Node; v1 has it'),
        ("resources.k8s.io/v1", "DeviceClass", 'apiVersion: unknown group "resources.k8s.io"; did you mean {0}/v1?'),
    ],
)
def test_a_kind_that_no_api_server_knows(version: str, kind: str, problem: str) -> None:
    assert told(version, kind) == [problem.format("resource.k8s.io")]


def test_all_kinds_of_the_current_releases_are_in_the_table() -> None:
    missing = {f"{version} {kind}" for version, kinds in KINDS.items() for kind in kinds} - TABLES["kinds"].keys()
    assert missing == {
        "resource.k8s.io/v1beta1 DeviceTaintRule",
        *(f"resource.k8s.io/{version} ResourcePoolStatusRequest" for version in ("v1", "v1beta1", "v1beta2")),
        *(
            f"resource.k8s.io/v1alpha3 {kind}"
            for kind in ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
        ),
    }


def values(type_: str, depth: int) -> st.SearchStrategy[Any]:
    """JSON of a type; null at a depth."""
    if type_ in VALUES:
        return st.just(VALUES[type_])
    if depth == 0:
        return st.none()
    if type_.startswith("["):
        return st.lists(values(type_[1:-1], depth - 1), max_size=2)
    if type_.startswith("{"):
        return st.dictionaries(st.sampled_from(["a", "b.c/d"]), values(type_[1:-1], depth - 1), max_size=2)
    names = st.lists(st.sampled_from(sorted(TYPES[type_])), max_size=4, unique=True)
    return names.flatmap(
        lambda chosen: st.fixed_dictionaries({name: values(TYPES[type_][name], depth - 1) for name in chosen})
    )


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """Any kind of the table, with some of its fields."""
    kind = draw(st.sampled_from(sorted(TABLES["kinds"])))
    version, _, name = kind.partition(" ")
    return {**draw(values(TABLES["kinds"][kind], 8)), "apiVersion": version, "kind": name}


def places(value: object, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """All objects in a JSON value that are neither maps nor free JSON, with their paths."""
    if isinstance(value, list):
        return [place for index, item in enumerate(value) for place in places(item, f"{path}[{index}]")]
    if not isinstance(value, dict) or value.keys() <= {"a", "b.c/d"}:
        return []
    inner = (places(item, f"{path}.{key}" if path else key) for key, item in value.items())
    return [(path, value), *(place for each in inner for place in each)]


@given(objects())
def test_an_object_of_known_fields_has_no_problem(obj: dict[str, Any]) -> None:
    assert schema_problems(obj) == ()


@given(objects(), st.data())
def test_one_unknown_field_is_one_problem_at_its_path(obj: dict[str, Any], data: st.DataObject) -> None:
    path, place = data.draw(st.sampled_from(places(obj)))
    place["unheardOf"] = data.draw(st.sampled_from([None, 1, {}]))
    (problem,) = schema_problems(obj)
    assert problem.path == (f"{path}.unheardOf" if path else "unheardOf")
    assert problem.message.startswith("unknown field")


# What an API server refuses in pods and in the templates of workloads, as far as it is about devices.


CLAIMS = [{"name": "gpu", "resourceClaimName": "a"}]


def container(**resources: object) -> dict[str, Any]:
    return {"name": "main", "resources": resources}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"resourceClaims": CLAIMS, "containers": [container(claims=[{"name": "gpuu"}])]},
            'containers[0].resources.claims[0].name: "gpuu" is not in the pod\'s resourceClaims; did you mean gpu?',
        ),
        (
            {"initContainers": [container(claims=[{"name": "nic"}])]},
            'initContainers[0].resources.claims[0].name: "nic" is not in the pod\'s resourceClaims',
        ),
        ({"resourceClaims": CLAIMS * 2}, 'resourceClaims[1]: "gpu" is there twice'),
        (
            {"containers": [container(limits={"gpu": 1})]},
            (
                "containers[0].resources.limits[gpu]: unknown resource; extended resources have a domain: "
                "the devices of a ResourceClass of this name are dra-extender.dev/gpu"
            ),
        ),
    ],
)
def test_a_pod_that_an_api_server_refuses(spec: object, problem: str) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": spec}}}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": job["spec"]}}}
    assert [str(each) for each in pod_problems(pod)] == [f"spec.{problem}"]
    assert [str(each) for each in pod_problems(job)] == [f"spec.template.spec.{problem}"]
    assert [str(each) for each in pod_problems(cron)] == [f"spec.jobTemplate.spec.template.spec.{problem}"]


def test_what_a_pod_may_say() -> None:
    resources = container(
        claims=[{"name": "gpu", "request": "one"}, {"name": "gpu", "request": "two"}],
        limits={"cpu": 1, "memory": "1Gi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": 1},
    )
    spec = {"resourceClaims": CLAIMS, "containers": [resources], "initContainers": [{"name": "plain"}]}
    assert pod_problems({"apiVersion": "v1", "kind": "Pod", "spec": spec}) == ()


@pytest.mark.parametrize("kind", ["Node", "Service"])
def test_objects_without_pods_have_no_problem_here(kind: str) -> None:
    assert pod_problems({"apiVersion": "v1", "kind": kind, "spec": {"containers": 5}}) == ()


# Suggestions for words that are longer than any name: there are none, so that a megabyte costs nothing.


@pytest.mark.parametrize(("length", "is_suggested"), [(253, True), (1024, True), (1025, False), (1_000_000, False)])
def test_a_word_that_is_longer_than_any_name_has_no_suggestion(length: int, is_suggested: bool) -> None:
    known = ["n" * length + "x"]
    assert bool(nearest("n" * length, known)) is is_suggested
    assert bool(hint("n" * length, known)) is is_suggested
