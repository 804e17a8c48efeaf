"""Manifests: what is used, skipped, and named with what is wrong."""

import json
import os
from pathlib import Path

import pytest

from extender.lab.manifests import LOADED, MOST_MIB, duplicates, load, unauthorized
from tests.extender.lab.scenes import CLAIM, CLASS, loaded, problems, report, written

VERSIONS = tuple(f"resource.k8s.io/{version}" for version in ("v1", "v1beta2", "v1beta1"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_documents_become_objects(folder: Path) -> None:
    found = loaded(folder, f"{CLASS}---{CLAIM}")
    gpu, claim = found.objects
    assert (gpu.kind, gpu.namespace, gpu.name, gpu.document) == ("DeviceClass", "", "gpu", 1)
    assert (str(claim), claim.document, claim.source) == ("ResourceClaim default/one", 2, folder / "a.yaml")
    assert claim.data["metadata"] == {"name": "one", "namespace": "default"}
    assert found.files[0].used == {"DeviceClass": 1, "ResourceClaim": 1}
    assert found.problems == ()


def test_other_kinds_are_counted_and_skipped(folder: Path) -> None:
    text = """
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: d}
        ---
        apiVersion: v1
        kind: Service
        ---
        # nothing but a comment
        ---
        apiVersion: example.com/v1
        kind: ResourceClaim
        ---
        replicas: 3
    """
    found = report(folder, text)
    assert found.skipped == {"Deployment": 1, "Service": 1, "ResourceClaim": 1, "(no kind)": 1}
    assert (found.used, found.problems) == ({}, ())


def test_items_of_a_list_become_objects(folder: Path) -> None:
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {}}}
    full = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim}
    typed = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimList", "items": [claim, claim]}
    plain = {"apiVersion": "v1", "kind": "List", "items": [full, {"apiVersion": "v1", "kind": "Service"}, 5]}
    found = loaded(folder, f"{json.dumps(typed)}\n---\n{json.dumps(plain)}")
    assert found.files[0].used == {"ResourceClaim": 3}
    assert found.files[0].skipped == {"Service": 1}
    assert [(each.name, each.document) for each in found.objects] == [("c", 1), ("c", 1), ("c", 2)]
    assert found.problems == (f"{folder / 'a.yaml'}: document 2 is not an object",)


def test_items_do_not_make_a_list(folder: Path) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nitems: [1]"
    assert report(folder, text).skipped == {"ConfigMap": 1}


def test_an_object_with_problems_is_not_used(folder: Path) -> None:
    text = CLAIM.replace("1.5", "80Gx").replace("name: gpu", "name: GPU") + f"---{CLASS}"
    found = loaded(folder, text)
    assert found.files[0].used == {"DeviceClass": 1}
    at = "ResourceClaim one: spec.devices.requests[0]"
    assert [str(problem) for problem in found.files[0].problems] == [
        f'{at}.exactly.capacity.requests[memory]: "80Gx" is not a quantity',
        f'{at}.name: "GPU" is not a DNS label: lower case letters, digits and -',
    ]
    assert {problem.document for problem in found.files[0].problems} == {1}
    assert found.problems[0].startswith(f"{folder / 'a.yaml'}: ResourceClaim one: ")


def test_selectors_are_checked_by_what_is_handed_in(folder: Path) -> None:
    path = written(folder, "a.yaml", CLASS)
    found = load([path], lambda expression: f"{len(expression)} characters are too many")
    assert [str(problem) for problem in found.files[0].problems] == [
        "DeviceClass gpu: spec.selectors[0].cel.expression: 34 characters are too many"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Pod\nmetadata: {name: p}", "Pod p: apiVersion: is required: Pod is of v1"),
        ("apiVersion: v1", "document 1: kind: is required"),
        ("apiVersion: v1\nkind: ''", "document 1: kind: is required"),
        ("apiVersion: v1\nkind: 5", "document 1: kind: 5 is not a string"),
        ("apiVersion: v1\nkind: 5\nmetadata: {name: p}", "p: kind: 5 is not a string"),
        ("apiVersion: [v1]\nkind: Pod\nmetadata: {name: p}", 'Pod p: apiVersion: ["v1"] is not a string: Pod is of v1'),
        ("apiVersion: v1\nkind: Pod", "Pod of document 1: metadata.name: is required"),
        ("apiVersion: v1\nkind: Pod\nmetadata: x", 'Pod of document 1: metadata: "x" is not an object'),
        (
            "apiVersion: v1\nkind: Node\nmetadata: {name: [n]}",
            'Node of document 1: metadata.name: ["n"] is not a string',
        ),
        ("- a\n- b", "document 1 is not an object"),
        (
            "a:\n\tb: 1",
            "line 2: found character that cannot start any token; YAML is indented with spaces, not with tabs",
        ),
        (
            "a:\n\N{NO-BREAK SPACE} b: 1\n c: 2",
            (
                "line 3: mapping values are not allowed in this context; YAML is indented with spaces, "
                "not with no-break spaces"
            ),
        ),
        (
            "kind: Pod\nmetadata: {name: a}\n\nkind: Pod\nmetadata: {name: b}",
            'line 4: the key "kind" is there twice; a line --- separates two objects',
        ),
        ("a: {kind: 1, kind: 2}", 'line 1: the key "kind" is there twice'),
        ("a: [1", "line 1: did not find expected ',' or ']'"),
        ("a: 1\nb: {{ .Values.b }}", "line 2: a template, not YAML, it seems: a key is not a string"),
        (
            "apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceClaim\nmetadata: {name: c}",
            "ResourceClaim c: apiVersion: is resource.k8s.io/v1 today; dra-extender convert writes it",
        ),
        (
            "apiVersion: resource.k8s.io/v2\nkind: ResourceClaim\nmetadata: {name: c}",
            'ResourceClaim c: apiVersion: "resource.k8s.io/v2" is not one of ' + ", ".join(VERSIONS),
        ),
    ],
)
def test_what_is_wrong_with_a_document(folder: Path, text: str, problem: str) -> None:
    assert problems(folder, text)[0] == problem


def test_one_bad_document_does_not_hide_the_others(folder: Path) -> None:
    found = report(folder, f"a: [1\n---{CLASS}---\nb: 'x\n---{CLAIM}")
    assert found.used == {"DeviceClass": 1, "ResourceClaim": 1}
    assert [problem.document for problem in found.problems] == [1, 3]


def test_generated_names_are_made_here(folder: Path) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {generateName: worker-}\n"
    assert [each.name for each in loaded(folder, f"{pod}---\n{pod}").objects] == ["worker-00001", "worker-00002"]


def test_a_json_file_is_read_as_json(folder: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    assert report(folder, json.dumps(node), "a.json").used == {"Node": 1}
    assert problems(folder, '{"a": 1,\n2}', "a.json")[0].startswith("line 2: ")
    assert problems(folder, "[" * 100_000, "a.json") == ["line 1: nested deeper than 200"]


@pytest.mark.parametrize(
    ("value", "path"),
    [("18446744073709551616", "a"), ('[1, {"b": 18446744073709551616}]', "a[1].b"), (r'"\ud800"', "a")],
)
def test_what_no_api_server_could_be_sent_is_named_by_its_field(folder: Path, value: str, path: str) -> None:
    config = f'[{{"opaque": {{"driver": "example.com", "parameters": {{"a": {value}}}}}}}]'
    top = '"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}'
    (problem,) = problems(folder, f'{{{top}, "spec": {{"config": {config}}}}}', "a.json")
    assert problem.startswith(f"DeviceClass c: spec.config[0].opaque.parameters.{path}: can't be sent as JSON: ")


@pytest.mark.parametrize("kind", LOADED)
def test_a_creation_timestamp_that_is_no_time_is_refused_by_field(folder: Path, kind: str) -> None:
    version = LOADED[kind].api_versions()[0]
    text = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x, creationTimestamp: 2020-13-99}}"
    wrong = f'{kind} x: metadata.creationTimestamp: "2020-13-99" is not a time such as 2025-01-31T12:00:00Z'
    assert wrong in problems(folder, text)


def test_a_value_of_the_wrong_type_is_told_once(folder: Path) -> None:
    text = CLASS.replace("name: gpu", "name: gpu\n  labels: {x: 1}").replace(
        'expression: device.driver == "gpu.example.com"', "expression: 7"
    )
    text += "  config: [{opaque: {driver: 5, parameters: {}}}]"
    assert problems(folder, text) == [
        "DeviceClass gpu: spec.selectors[0].cel.expression: 7 is not a string",
        "DeviceClass gpu: spec.config[0].opaque.driver: 5 is not a string",
        "DeviceClass gpu: metadata.labels[x]: 1 is not a string",
    ]


@pytest.mark.parametrize(
    ("typed", "meant", "problem"),
    [
        ("selectors:", "selector:", "spec.selector: unknown field; did you mean selectors?"),
        ("expression:", "Expression:", "spec.selectors[0].cel.Expression: unknown field; did you mean expression?"),
        ("spec:", "Spec:", "Spec: unknown field; did you mean spec?"),
        ("name: gpu", "name: gpu\n  label: {}", "metadata.label: unknown field; did you mean labels?"),
    ],
)
def test_an_unknown_field_keeps_an_object_out(folder: Path, typed: str, meant: str, problem: str) -> None:
    found = loaded(folder, CLASS.replace(typed, meant))
    assert found.objects == ()
    assert next(str(each) for each in found.files[0].problems) == f"DeviceClass gpu: {problem}"


def test_fields_of_any_kind_that_is_used_are_checked(folder: Path) -> None:
    for kind, resource in LOADED.items():
        text = f"apiVersion: {resource.api_versions()[0]}\nkind: {kind}\nmetadata: {{name: x}}\nzebra: 1\n"
        assert f"{kind} x: zebra: unknown field" in problems(folder, text)


@pytest.mark.parametrize(
    ("version", "kind", "spec", "problem"),
    [
        (
            "apps/v1",
            "Deployment",
            {"template": {"spec": {"container": []}}},
            "spec.template.spec.container: unknown field; did you mean containers?",
        ),
        ("apps/v1beta2", "Deployment", {}, 'apiVersion: "apps/v1beta2" has no Deployment; apps/v1 has it'),
        ("resource.k8s.io/v1", "DeviceClas", {}, "kind: unknown kind; did you mean DeviceClass?"),
    ],
)
def test_a_kind_that_is_not_used_may_be_wrong_too(
    folder: Path, version: str, kind: str, spec: object, problem: str
) -> None:
    obj = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    assert problems(folder, json.dumps(obj)) == [f"{kind} x: {problem}"]


def test_a_key_that_is_there_twice_is_told_with_its_line(folder: Path) -> None:
    twice = '{"kind": "Pod",\n"metadata": {"name": "a",\n"name": "b"}}'
    for name in ("a.json", "a.yaml"):
        assert problems(folder, twice, name) == ['line 3: the key "name" is there twice']


def namespace(name: str, label: str) -> str:
    metadata = f"{{name: {name}, labels: {{resource.kubernetes.io/admin-access: '{label}'}}}}"
    return f"apiVersion: v1\nkind: Namespace\nmetadata: {metadata}\n"


def admin(kind: str, where: str, version: str = "v1") -> str:
    request = {"name": "r", "deviceClassName": "gpu", "adminAccess": True}
    if version != "v1beta1":
        request = {"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}
    spec: object = {"devices": {"requests": [request]}}
    spec = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
    metadata = {"name": "watch", "namespace": where}
    return json.dumps({"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    ("kind", "version", "field"),
    [
        ("ResourceClaim", "v1", "spec.devices.requests[0].exactly.adminAccess"),
        ("ResourceClaim", "v1beta1", "spec.devices.requests[0].adminAccess"),
        ("ResourceClaimTemplate", "v1", "spec.spec.devices.requests[0].exactly.adminAccess"),
    ],
)
def test_admin_access_needs_a_label_on_the_namespace(folder: Path, kind: str, version: str, field: str) -> None:
    spaces = [namespace("open", "true"), namespace("shut", "false")]
    asking = [admin(kind, where, version) for where in ("open", "shut", "elsewhere")]
    found = loaded(folder, "\n---\n".join([*spaces, *asking]))
    assert found.problems == ()
    label = 'needs the label resource.kubernetes.io/admin-access: "true" on the namespace'
    assert tuple(map(str, unauthorized(found.objects))) == (
        f"{folder / 'a.yaml'}: {kind} shut/watch: {field}: {label} shut",
        f"{folder / 'a.yaml'}: {kind} elsewhere/watch: {field}: {label} elsewhere, which is not among the manifests",
    )


def test_what_is_allocated_already_has_been_let_in_somewhere(folder: Path) -> None:
    allocated = json.loads(admin("ResourceClaim", "elsewhere"))
    result = {"request": "r", "driver": "x", "pool": "p", "device": "d", "adminAccess": True}
    allocated["status"] = {"allocation": {"devices": {"results": [result]}}}
    found = loaded(folder, json.dumps(allocated))
    assert (found.problems, unauthorized(found.objects)) == ((), ())


def test_duplicates_name_both_files(folder: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        written(folder, name, f"{CLASS}---{CLAIM}")
    found = load([folder])
    assert found.problems == ()
    assert tuple(map(str, duplicates(found.objects))) == (
        f"DeviceClass gpu is in {folder / 'a.yaml'} and again in {folder / 'b.yaml'}",
        f"ResourceClaim default/one is in {folder / 'a.yaml'} and again in {folder / 'b.yaml'}",
    )
    assert duplicates(load([folder / "a.yaml"]).objects) == ()


# Files and folders with manifests: which are read, and which are named as unreadable.


REAL = Path(__file__).parents[4] / "shared" / "manifests"


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/tty", "pipe"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "pipe":
        os.mkfifo(path)
    (only,) = load([path]).files
    assert [str(problem) for problem in only.problems] == ["cannot be read: not a regular file"]
    assert not only.is_readable


def test_what_the_process_was_given_open_may_be_a_pipe() -> None:
    reading, writing = os.pipe()
    os.write(writing, CLASS.encode())
    os.close(writing)
    try:
        loaded = load([Path(f"/dev/fd/{reading}")])
    finally:
        os.close(reading)
    assert [each.name for each in loaded.objects] == ["gpu"]


def test_a_file_that_would_fill_the_memory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate((MOST_MIB << 20) + 1)
    (only,) = load([path]).files
    assert [str(problem) for problem in only.problems] == ["cannot be read: larger than 256 MiB"]


def test_folders_are_read_by_name_and_to_the_bottom(tmp_path: Path) -> None:
    for name in ("b/z.yml", "b/c/y.json", "a.yaml", ".hidden/x.yaml", "notes.txt"):
        written(tmp_path, name, "")
    files = [each.path.relative_to(tmp_path).as_posix() for each in load([tmp_path]).files]
    assert files == ["a.yaml", "b/c/y.json", "b/z.yml"]


def test_a_named_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    assert report(tmp_path, CLASS, "class.txt").used == {"DeviceClass": 1}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe4")
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbf" + CLASS.encode())
    paths = [tmp_path / name for name in ("missing.yaml", "empty", "latin.yaml", "bom.yaml")]
    assert [[str(problem) for problem in each.problems] for each in load(paths).files] == [
        ["no such file or folder"],
        ["no manifests in this folder"],
        ["is not text in UTF-8"],
        [],
    ]


def test_files_that_can_not_be_read_are_apart_from_those_with_mistakes(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe4")
    names = ("missing.yaml", "empty", "latin.yaml", "x" * 300, "a\0b")
    found = load([tmp_path / name for name in names])
    assert [each.is_readable for each in found.files] == [False, False, True, False, False]
    assert found.unreadable[2] == f"{tmp_path / ('x' * 300)}: cannot be read: File name too long"
    assert len(found.problems) == len(found.unreadable) + 1


TRULY_WRONG = {
    # the same key twice
    "dra-driver-memory/hack/ci/install_unpriv.tmpl.yaml",
    # versions that no current API server has
    "dra-driver-nvidia-gpu/demo/specs/mig+mps/sharing-demo-claims-1.yaml",
    "dra-driver-nvidia-gpu/demo/specs/mig+mps/sharing-demo-claims.yaml",
    "dra-driver-nvidia-gpu/demo/specs/quickstart/v1beta1/gpu-test-vfiopci.yaml",
    "dra-driver-nvidia-gpu/demo/specs/selectors/claims.yaml",
    # pods with claims as they were before 1.31
    "dra-driver-nvidia-gpu/demo/specs/mig+mps/sharing-demo-job-1.yaml",
    "dra-driver-nvidia-gpu/demo/specs/mig+mps/sharing-demo-job.yaml",
    "dra-driver-nvidia-gpu/demo/specs/selectors/pods.yaml",
    # no apiVersion, or `apiversion`
    "dra-example-driver/demo/examples/device-taints-tolerations/device-taint-pod-noschedule/4-pod-not-scheduled.yaml",
    "intel-resource-drivers-for-kubernetes/deployments/gpu/examples/pod-inline-aligned-gpus.yaml",
    # a template: the name of a pod has __INDEX__ in it
    "dra-driver-nvidia-gpu/tests/bats/specs/pods-shared-gpu.yaml",
    # a consumer without uid
    "dranet/examples/aws_eks_examples/gpu-efa/resource-claim.yaml",
}


@pytest.mark.skipif(not REAL.is_dir(), reason="manifests of real drivers are not here")
def test_manifests_of_real_drivers() -> None:
    """All are read; wrong are those known to be, and the API's own samples, which set every field there is."""
    files = {each.path.relative_to(REAL).as_posix(): each for each in load([REAL]).files}
    assert len(files) == len(list(REAL.rglob("*.yaml")))
    assert all(each.used or each.skipped or each.problems for each in files.values())
    samples = {name for name in files if name.startswith("api/testdata/")}
    assert {name for name, each in files.items() if each.problems} - samples == TRULY_WRONG
