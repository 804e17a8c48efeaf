"""The command line: what goes to which stream, in which form, with which exit code."""

import io
import logging
import re
import sys
from pathlib import Path

import orjson
import pytest
import yaml
from typer.testing import CliRunner

from extender import __version__
from extender.cli.main import app
from extender.cli.messages import FOUND_PROBLEMS, OK, USAGE
from extender.cli.options import spread
from extender.config.sources import load
from tests.kit.clusters import DRIVER, GPU, Object, claim, device_class, local_slice, node, pinned, pod

RUNNER = CliRunner()
NO_LABEL = (
    "ResourceClaim ns/watch: spec.devices.requests[0].exactly.adminAccess: needs the label "
    'resource.kubernetes.io/admin-access: "true" on the namespace ns, which is not among the manifests'
)


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return written(
        tmp_path / "cluster.yaml",
        GPU,
        node("a"),
        local_slice("a"),
        claim("c"),
        claim("d"),
        pod("p", "c"),
        pod("q", "d"),
    )


def written(path: Path, *objects: Object) -> Path:
    path.write_text(yaml.safe_dump_all(objects))
    return path


def test_help_tells_commands_and_exit_codes() -> None:
    result = RUNNER.invoke(app, ["--help"])
    text = " ".join(re.sub(r"[│╭╰─╮╯]", " ", result.output).split())
    assert result.exit_code == OK
    assert all(command in text for command in ("serve", "validate", "simulate", "config", "version"))
    assert "Exit codes: 0 success; 1 the manifests have errors" in text


@pytest.mark.parametrize("asked", ["version", "--version"])
def test_version_is_printed(asked: str) -> None:
    assert RUNNER.invoke(app, [asked]).stdout == f"dra-extender {__version__}\n"


def test_logs_go_to_what_is_standard_error_when_they_are_written(
    manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RUNNER.invoke(app, ["simulate", str(manifests)])
    now = io.StringIO()
    monkeypatch.setattr(sys, "stderr", now)
    logging.getLogger("later").warning("still here")
    assert "still here" in now.getvalue()


# --- validate -----------------------------------------------------------------------------------------------


def test_validate_prints_a_line_for_each_file(manifests: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other.yaml", {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}})
    result = RUNNER.invoke(app, ["validate", str(manifests), str(other)])
    used = "1 DeviceClass, 1 Node, 2 Pod, 2 ResourceClaim, 1 ResourceSlice"
    assert result.exit_code == OK
    assert [line.split("   ") for line in re.sub(r" {3,}", "   ", result.stdout).splitlines()] == [
        ["FILE", "USED", "SKIPPED", "ERRORS"],
        [str(manifests), used, "-", "0"],
        [str(other), "-", "1 Service", "0"],
    ]
    assert result.stderr == ""


BROKEN = local_slice("b", capacity={"memory": {"value": "80Gx"}})


def test_validate_names_what_is_wrong_on_stderr_and_exits_1(manifests: Path, tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.yaml", BROKEN)
    result = RUNNER.invoke(app, ["validate", str(manifests), str(bad)])
    assert result.exit_code == FOUND_PROBLEMS
    assert result.stderr == (
        f'error: {bad}: ResourceSlice slice-b: spec.devices[0].capacity[memory].value: "80Gx" is not a quantity\n'
    )


def test_validate_checks_expressions(tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.yaml", device_class(selectors=["device.drivr == 'x'"]))
    result = RUNNER.invoke(app, ["validate", str(bad)])
    assert result.exit_code == FOUND_PROBLEMS
    assert f"error: {bad}: DeviceClass gpu: spec.selectors[0].cel.expression: 1:7: " in result.stderr


def test_validate_prints_json_if_asked(manifests: Path) -> None:
    result = RUNNER.invoke(app, ["validate", str(manifests), "--output", "json"])
    used = {"DeviceClass": 1, "Node": 1, "ResourceSlice": 1, "ResourceClaim": 2, "Pod": 2}
    assert orjson.loads(result.stdout) == [{"file": str(manifests), "used": used, "skipped": {}, "errors": []}]


def test_validate_warns_of_objects_that_are_there_twice(tmp_path: Path) -> None:
    files = [written(tmp_path / name, node("a")) for name in ("1.yaml", "2.yaml")]
    result = RUNNER.invoke(app, ["validate", *map(str, files)])
    assert result.exit_code == OK
    assert result.stderr == f"warning: not for one cluster: Node a is in {files[0]} and again in {files[1]}\n"


# --- simulate -----------------------------------------------------------------------------------------------


def test_simulate_prints_where_pods_go_or_why_not(manifests: Path) -> None:
    result = RUNNER.invoke(app, ["simulate", "--manifests", str(manifests)])
    assert result.exit_code == OK, result.stderr
    assert result.stdout.splitlines() == [
        "POD    NODE   DEVICES OR REASON",
        f"ns/p   a      {DRIVER}/a/gpu-0",
        "ns/q   -      1 no free device for request gpu",
    ]


def test_simulate_prints_json_if_asked(manifests: Path) -> None:
    result = RUNNER.invoke(app, ["simulate", str(manifests), "-o", "json"])
    device = {"claim": "c", "request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}
    assert orjson.loads(result.stdout) == [
        {"pod": "ns/p", "node": "a", "devices": [device], "reason": None},
        {"pod": "ns/q", "node": None, "devices": [], "reason": "1 no free device for request gpu"},
    ]


@pytest.fixture
def watching(manifests: Path, tmp_path: Path) -> list[str]:
    """Manifests with a claim that no API server would take: its namespace has no label."""
    asks = claim("watch")
    asks["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    (tmp_path / "watch.json").write_text(orjson.dumps(asks).decode())
    return [str(manifests), str(tmp_path / "watch.json")]


def test_simulate_explains_a_pod_at_its_turn(tmp_path: Path) -> None:
    pods = [pod(name, name, created=f"2026-01-0{number}T00:00:00Z") for number, name in enumerate("pq", 1)]
    path = written(tmp_path / "cluster.yaml", GPU, node("a"), local_slice("a"), claim("p"), claim("q"), *pods)
    first = RUNNER.invoke(app, ["simulate", str(path), "--explain", "ns/p"])
    assert (first.exit_code, first.stdout.splitlines()[0]) == (OK, "pod ns/p fits on 1 of 1 node: a")
    second = RUNNER.invoke(app, ["simulate", str(path), "--explain", "ns/q", "-o", "json"])
    assert (second.exit_code, orjson.loads(second.stdout)["verdict"]) == (FOUND_PROBLEMS, "fits nowhere")
    assert "claim ns/p (pod ns/p)" in second.stdout
    unknown = RUNNER.invoke(app, ["simulate", str(path), "--explain", "ns/r"])
    assert (unknown.exit_code, unknown.stderr) == (USAGE, "error: pod ns/r does not exist\n")


def test_simulate_and_serve_refuse_admin_access_without_the_namespaces_label(watching: list[str]) -> None:
    for command in (["simulate", *watching], ["serve", "-m", *watching]):
        result = RUNNER.invoke(app, spread(command, "-m"))
        assert result.exit_code == FOUND_PROBLEMS
        assert result.stderr == f"error: {watching[1]}: {NO_LABEL}\n"


def test_validate_and_explain_warn_of_a_namespace_without_the_admin_label(watching: list[str]) -> None:
    for command in (["validate", *watching], ["explain", "ns/p", "-m", *watching]):
        result = RUNNER.invoke(app, spread(command, "-m"))
        assert f"warning: {watching[1]}: {NO_LABEL}\n" in result.stderr


def test_explain_names_an_object_with_errors_and_explains_the_pod_without_it(manifests: Path, tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.yaml", BROKEN)
    result = RUNNER.invoke(app, ["explain", "ns/p", "-m", str(manifests), "-m", str(bad)])
    assert result.exit_code == FOUND_PROBLEMS
    assert result.stderr == "".join(f"error: {line}\n" for line in problems_of(bad))
    assert result.stdout.startswith("pod ns/p fits on 1 of 1 node: a\n")
    missing = RUNNER.invoke(app, ["explain", "ns/r", "-m", str(manifests), "-m", str(bad)])
    assert (missing.exit_code, missing.stdout) == (USAGE, "")
    assert missing.stderr.endswith("error: pod ns/r does not exist\n")


def problems_of(path: Path) -> list[str]:
    """What is wrong with a file, as validate says."""
    said = RUNNER.invoke(app, ["validate", str(path)]).stderr
    return [line.removeprefix("error: ") for line in said.splitlines()]


def test_simulate_serves_pods_that_have_a_node_at_their_turn(tmp_path: Path) -> None:
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    pods = [
        pod("p", "p", created=late),
        pinned("q", "q", on="a", created=early),
        pinned("r", "r", on="a", created=late),
    ]
    claims = [claim(name) for name in "pqr"]
    path = written(tmp_path / "cluster.yaml", GPU, node("a"), local_slice("a", 2), *claims, *pods)
    result = RUNNER.invoke(app, ["simulate", str(path), "--fail-on-pending"])
    assert result.exit_code == FOUND_PROBLEMS
    assert result.stdout.splitlines()[1:] == [
        f"ns/q   a      {DRIVER}/a/gpu-0",
        f"ns/p   a      {DRIVER}/a/gpu-1",
        "ns/r   -      spec.nodeName is a; node a: no free device for request gpu",
    ]


def test_simulate_says_which_pods_run_without_devices_for_their_extended_resources(tmp_path: Path) -> None:
    gpu = device_class(extended="example.com/gpu")
    asking = [pinned("p", on="a", resources={"example.com/gpu": "1"}), pod("q", resources={"example.com/gpu": "1"})]
    path = written(tmp_path / "cluster.yaml", gpu, node("a"), local_slice("a"), *asking)
    p, q = orjson.loads(RUNNER.invoke(app, ["simulate", str(path), "-o", "json"]).stdout)
    assert (p["node"], q["node"]) == (None, "a")
    assert p["reason"].startswith("the pod has node a, and kubelet starts it without example.com/gpu: ")
    wide = RUNNER.invoke(app, ["simulate", str(path), "-o", "wide"]).stdout
    assert "example.com/gpu of container c" in wide


def test_simulate_says_what_it_does_not_look_at(manifests: Path, tmp_path: Path) -> None:
    (tmp_path / "cpu.json").write_text(orjson.dumps(pod("busy", "c", resources={"cpu": "1"})).decode())
    result = RUNNER.invoke(app, ["simulate", str(manifests), str(tmp_path / "cpu.json")])
    assert (result.exit_code, result.stderr) == (OK, "warning: ignored: requests of CPU and memory\n")


def test_simulate_names_an_object_with_errors_and_goes_on_without_it(manifests: Path, tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.yaml", BROKEN)
    result = RUNNER.invoke(app, ["simulate", "--manifests", str(manifests), "--manifests", str(bad)])
    assert result.exit_code == FOUND_PROBLEMS
    assert "80Gx" in result.stderr
    assert f"ns/p   a      {DRIVER}/a/gpu-0" in result.stdout


def test_simulate_uses_the_first_of_two_equal_objects(manifests: Path, tmp_path: Path) -> None:
    again = written(tmp_path / "again.yaml", local_slice("a", 5))
    result = RUNNER.invoke(app, ["simulate", str(manifests), str(again)])
    assert (result.exit_code, result.stderr) == (
        FOUND_PROBLEMS,
        f"error: ResourceSlice slice-a is in {manifests} and again in {again}\n",
    )
    assert "ns/q   -      1 no free device for request gpu" in result.stdout


@pytest.mark.parametrize(("arguments", "status"), [([], OK), (["--fail-on-pending"], FOUND_PROBLEMS)])
def test_simulate_fails_on_pending_pods_if_asked(manifests: Path, arguments: list[str], status: int) -> None:
    assert RUNNER.invoke(app, ["simulate", str(manifests), *arguments]).exit_code == status


NOTHING_TO_DO: dict[str, tuple[list[Object], str]] = {
    "no pods": ([GPU], "the manifests have no pods"),
    "all bound": ([node("a"), pod("p", on="a"), pod("q", on="a")], "of the pods, 2 are bound"),
    "bound and finished": (
        [node("a"), pod("p", on="a"), {**pod("q"), "status": {"phase": "Failed"}}],
        "of the pods, 1 is bound and 1 is finished or being deleted",
    ),
}


@pytest.mark.parametrize(("objects", "why"), NOTHING_TO_DO.values(), ids=NOTHING_TO_DO)
def test_simulate_says_when_there_is_nothing_to_do(objects: list[Object], why: str, tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["simulate", str(written(tmp_path / "x.yaml", *objects)), "--fail-on-pending"])
    assert (result.exit_code, result.stdout) == (OK, "")
    assert result.stderr == f"note: there is nothing to schedule: {why}\n"


def test_simulate_says_what_it_skips(manifests: Path, tmp_path: Path) -> None:
    services = [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{number}"}} for number in range(12)]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"suspend": True}}
    others = written(tmp_path / "others.yaml", *services, job)
    result = RUNNER.invoke(app, ["simulate", str(manifests), str(others)])
    assert (result.exit_code, result.stderr.splitlines()) == (
        OK,
        [
            "warning: skipped: Job j: it is suspended",
            "note: skipped: Service s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 and 2 more",
        ],
    )


FORMS: dict[str, list[str]] = {
    "name": ["ns/p", "ns/q"],
    "wide": [
        "POD    NODE   CLAIM   REQUEST   DEVICE                    REASON",
        f"ns/p   a      c       gpu       {DRIVER}/a/gpu-0   -",
        "ns/q   -      -       -         -                         1 no free device for request gpu",
    ],
}


@pytest.mark.parametrize(("form", "lines"), FORMS.items(), ids=FORMS)
def test_simulate_prints_other_forms(manifests: Path, form: str, lines: list[str]) -> None:
    assert RUNNER.invoke(app, ["simulate", str(manifests), "-o", form]).stdout.splitlines() == lines


@pytest.mark.parametrize("command", [["validate"], ["simulate"], ["audit"], ["explain", "ns/p", "-m"]])
def test_yaml_says_the_same_as_json(manifests: Path, command: list[str]) -> None:
    as_json, as_yaml = (RUNNER.invoke(app, [*command, str(manifests), "-o", form]) for form in ("json", "yaml"))
    assert as_json.exit_code == as_yaml.exit_code == OK
    assert yaml.safe_load(as_yaml.stdout) == orjson.loads(as_json.stdout)


# --- config -------------------------------------------------------------------------------------------------


def test_config_print_is_a_file_with_the_settings_in_force(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("server: {port: 1}")
    result = RUNNER.invoke(app, ["config", "print", "--config", str(file)], env={"DRA_EXTENDER__SERVER__HOST": "::1"})
    assert load(result.stdout) == load("server: {port: 1, host: '::1'}")


def test_config_check_says_whether_the_settings_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("server: {prot: 1}")
    good, bad = RUNNER.invoke(app, ["config", "check"]), RUNNER.invoke(app, ["config", "check", "-c", str(file)])
    assert (good.exit_code, good.stdout) == (OK, "the settings are valid\n")
    assert (bad.exit_code, bad.stderr) == (
        FOUND_PROBLEMS,
        f'error: {file}: server.prot: unknown key, did you mean "port"?\n',
    )


def test_node_templates_that_can_not_be_used_are_told(manifests: Path, tmp_path: Path) -> None:
    file = tmp_path / "templates.yaml"
    entry = {"labels": {"a": "b"}, "slices": [{"driver": DRIVER, "devices": [{"name": "gpu-0"}]}]}
    file.write_text(yaml.safe_dump({"nodeTemplates": [{**entry, "name": "x"}, {**entry, "name": "y"}]}))
    environment = {"DRA_EXTENDER__AUTOSCALER__NODE_TEMPLATES": str(file)}
    check = RUNNER.invoke(app, ["config", "check"], env=environment)
    serve = RUNNER.invoke(app, ["serve", "--manifests", str(manifests)], env=environment)
    assert (check.exit_code, serve.exit_code) == (FOUND_PROBLEMS, USAGE)
    assert check.stderr == serve.stderr
    assert check.stderr.startswith(f"error: {file}: templates x and y contradict each other")
    environment = {"DRA_EXTENDER__AUTOSCALER__NODE_TEMPLATES": str(tmp_path / "missing.yaml")}
    missing = RUNNER.invoke(app, ["config", "check"], env=environment)
    assert (
        missing.stderr
        == f"error: autoscaler.nodeTemplates: {tmp_path / 'missing.yaml'}: cannot be read: No such file or directory\n"
    )


# --- what can't be done --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve"], "no API server to connect to: no --kubeconfig, KUBECONFIG is not set, this is no pod, and"),
        (["serve", "--kubeconfig", "/nowhere"], "/nowhere: "),
        (["serve", "-m", "x", "--context", "y"], "--manifests names a cluster in memory, --kubeconfig"),
        (["serve", "-m", "/nowhere"], "/nowhere: no such file or folder"),
        (["serve", "--port", "-1"], "flags: server.port: expected 0 or more, not -1"),
        (["simulate"], "simulate needs PATH... or --manifests PATH..."),
        (["simulate", "/nowhere"], "/nowhere: no such file or folder"),
        (["simulate", "/", "--policy", "best"], 'flags: scheduling.policy: unknown policy "best"'),
        (["validate", "/nowhere"], "/nowhere: no such file or folder"),
        (["validate", "x" * 300], f"{'x' * 300}: cannot be read: File name too long"),
        (["validate", "a\0b"], "a\\x00b: cannot be read: embedded null byte"),
        (["simulate", "/proc/self/mem"], "/proc/self/mem: cannot be read: Input/output error"),
        (["config", "check", "-c", "/proc/self/mem"], "/proc/self/mem: cannot be read: Input/output error"),
        (["config", "print", "-c", "/nowhere"], "/nowhere: cannot be read: No such file or directory"),
        (["config", "check", "-c", "/nowhere"], "/nowhere: cannot be read: No such file or directory"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told_on_stderr_with_status_2(arguments: list[str], message: str) -> None:
    nowhere = {"KUBECONFIG": None, "KUBERNETES_SERVICE_HOST": None, "HOME": "/nowhere"}
    result = RUNNER.invoke(app, arguments, env=nowhere)
    assert (result.exit_code, result.stdout) == (USAGE, "")
    assert result.stderr.startswith(f"error: {message}")


def test_a_host_that_there_is_not_is_refused(manifests: Path) -> None:
    result = RUNNER.invoke(app, ["serve", "-m", str(manifests), "--host", "a_b"])
    assert (result.exit_code, result.stderr) == (USAGE, "error: cannot listen on a_b:8888: Name or service not known\n")


def test_a_folder_without_manifests_can_not_be_used(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["validate", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (USAGE, f"error: {tmp_path}: no manifests in this folder\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", ""],
        ["simulate", ""],
        ["audit", ""],
        ["serve", "-m", ""],
        ["serve", "--kubeconfig", ""],
        ["explain", "p", "-m", ""],
        ["config", "check", "-c", ""],
    ],
)
def test_an_empty_path_is_not_the_working_directory(arguments: list[str]) -> None:
    result = RUNNER.invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (USAGE, "")
    assert "a path is empty" in result.stderr


@pytest.mark.parametrize("arguments", [["nonsense"], ["serve", "--prot", "1"], ["validate"], ["simulate", "-o", "xml"]])
def test_a_wrong_command_line_has_status_2(arguments: list[str]) -> None:
    assert RUNNER.invoke(app, arguments).exit_code == USAGE


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        (["-m", "a"], ["-m", "a"]),
        (["-m", "a", "b", "c"], ["-m", "a", "-m", "b", "-m", "c"]),
        (["-m", "a", "b", "--port", "1", "-m", "c"], ["-m", "a", "-m", "b", "--port", "1", "-m", "c"]),
        (["--manifests=a", "b"], ["--manifests=a", "--manifests", "b"]),
        (["validate", "a", "b"], ["validate", "a", "b"]),
        (["--port", "1", "a"], ["--port", "1", "a"]),
    ],
)
def test_an_option_takes_several_values(given: list[str], expected: list[str]) -> None:
    assert spread(given, "--manifests", "-m") == expected
