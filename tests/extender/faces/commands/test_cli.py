"""The command line: what goes to which stream, in which form, with which exit code."""

import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import orjson
import pytest
import yaml

from extender.config.sources import load
from extender.faces.commands.main import app
from extender.faces.commands.options import spread
from extender.faces.commands.output import FOUND_PROBLEMS, OK, USAGE
from extender.tools.version import __version__
from tests.extender.faces.commands.scenes import BROKEN, RUNNER, small_cluster, written
from tests.kit.clusters import DRIVER, Object, device_class, local_slice, node, pod
from tests.kit.places import ROOT


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return small_cluster(tmp_path / "cluster.yaml")


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
    RUNNER.invoke(app, ["simulate", str(manifests)], env={"DRA_EXTENDER__LOG__LEVEL": "debug"})
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


def test_validate_warns_of_a_file_without_objects(tmp_path: Path) -> None:
    for text in ("", "# a comment\n", "---\n---\n"):
        file = tmp_path / "cluster.yaml"
        file.write_text(text)
        result = RUNNER.invoke(app, ["validate", str(file)])
        assert (result.exit_code, result.stderr) == (OK, f"warning: {file}: no objects\n")


def test_validate_warns_of_a_pool_that_no_claim_can_use(tmp_path: Path) -> None:
    slices = local_slice("a")
    slices["spec"]["pool"]["resourceSliceCount"] = 2
    result = RUNNER.invoke(app, ["validate", str(written(tmp_path / "slice.yaml", slices))])
    told = f"warning: no device of pool {DRIVER}/a can be used: 1 of 2 slices are there\n"
    assert (result.exit_code, result.stderr) == (OK, told)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_validate_warns_of_node_resources_in_a_form_that_is_not_counted(tmp_path: Path, version: str) -> None:
    mappings = {"nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cpu", "allocationMultiplier": "1"}}}
    published = local_slice("a", 2, **(mappings if version == "v1" else {"basic": mappings}))
    file = written(tmp_path / "slice.yaml", {**published, "apiVersion": f"resource.k8s.io/{version}"})
    where = f"spec.devices[0]{'' if version == 'v1' else '.basic'}.nodeAllocatableResourceMappings (and 1 more)"
    what = "is the form of Kubernetes 1.36, and not counted; 1.37 has nodeAllocatableResources instead"
    result = RUNNER.invoke(app, ["validate", str(file)])
    assert (result.exit_code, result.stderr) == (OK, f"warning: {file}: ResourceSlice slice-a: {where}: {what}\n")


def test_validate_warns_of_an_annotation_that_is_not_read(tmp_path: Path) -> None:
    annotations = {"dra-extender.dev/polcy": "pack", "dra-extender.dev/policy": "pack", "example.com/polcy": "x"}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    file = written(tmp_path / "job.yaml", job)
    where = "spec.template.metadata.annotations[dra-extender.dev/polcy]"
    told = f"warning: {file}: Job j: {where}: unknown annotation; did you mean dra-extender.dev/policy?\n"
    assert RUNNER.invoke(app, ["validate", str(file)]).stderr == told


def test_validate_warns_of_an_unknown_policy(tmp_path: Path) -> None:
    asking = pod("p")
    asking["metadata"]["annotations"] = {"dra-extender.dev/policy": "best_fit"}
    file = written(tmp_path / "pod.yaml", asking)
    where = "metadata.annotations[dra-extender.dev/policy]"
    told = f'warning: {file}: Pod p: {where}: unknown policy "best_fit"; did you mean best-fit?\n'
    result = RUNNER.invoke(app, ["validate", str(file)])
    assert (result.exit_code, result.stderr.replace("ns/", "")) == (OK, told)


@pytest.mark.parametrize(("obj", "what"), [(node("Node_1"), "Node Node_1"), (pod("p_1"), "Pod p_1")])
def test_validate_refuses_names_that_no_api_server_takes(tmp_path: Path, obj: Object, what: str) -> None:
    file = written(tmp_path / "object.yaml", obj)
    result = RUNNER.invoke(app, ["validate", str(file)])
    name = what.split()[1]
    wrong = f'"{name}" is not a DNS subdomain: lower case letters, digits, - and .'
    assert (result.exit_code, result.stderr) == (FOUND_PROBLEMS, f"error: {file}: {what}: metadata.name: {wrong}\n")


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
        (["validate", "a\0b"], "a\\x00b: cannot be read: its path has a null character"),
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


# Commands as processes: streams that are closed, full, not read, or in an encoding that lacks characters.


EXAMPLE = str(ROOT / "config" / "example")
COMMANDS = {
    "version": ["version"],
    "help": ["--help"],
    "validate": ["validate", EXAMPLE],
    "validate as JSON": ["validate", EXAMPLE, "--output", "json"],
    "simulate": ["simulate", EXAMPLE],
    "audit": ["audit", EXAMPLE],
    "explain": ["explain", "demo/burn-in", "--manifests", EXAMPLE],
    "config print": ["config", "print"],
    "config check": ["config", "check"],
}


def shell(
    redirections: str, *arguments: str, environment: Mapping[str, str] | None = None, stdout: IO[bytes] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """A command with redirections as a shell has them."""
    script = f'exec "$@" {redirections}'
    everything = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    everything.pop("PYTHONUNBUFFERED", None)
    return subprocess.run(  # noqa: S603  # our own command
        ["/bin/sh", "-c", script, "sh", sys.executable, "-m", "extender", *arguments],
        stdout=stdout or subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=everything,
        timeout=120,
        check=False,
    )


CASES = {
    **{f"{name}, full": (each, ">/dev/full", "No space left on device") for name, each in COMMANDS.items()},
    **{f"{name}, closed": (COMMANDS[name], ">&-", "Bad file descriptor") for name in ("version", "help", "simulate")},
}


@pytest.mark.parametrize(("arguments", "redirection", "reason"), CASES.values(), ids=CASES)
def test_output_that_cannot_be_written_is_an_error(arguments: list[str], redirection: str, reason: str) -> None:
    done = shell(redirection, *arguments)
    lines = [line for line in done.stderr.decode().splitlines() if not line.startswith("warning: ")]
    assert (done.returncode, lines) == (USAGE, [f"error: standard output cannot be written: {reason}"])


@pytest.mark.parametrize("name", ["version", "help", "validate as JSON", "simulate", "explain"])
def test_a_reader_that_has_what_it_wanted_is_nothing_to_complain_of(name: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as gone:  # noqa: PTH123  # a descriptor
        done = shell("", *COMMANDS[name], stdout=gone)
    lines = [line for line in done.stderr.decode().splitlines() if not line.startswith("warning: ")]
    assert (done.returncode, lines) == (USAGE, [])


@pytest.mark.parametrize("redirection", ["2>&- <&-", "2>/dev/full"])
@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["simulate", EXAMPLE], OK), (["validate", "/nowhere"], USAGE), (["no-such-command"], USAGE)],
    ids=["simulate", "validate", "no-such-command"],
)
def test_messages_that_cannot_be_written_change_no_status(redirection: str, arguments: list[str], status: int) -> None:
    done = shell(redirection, *arguments)
    assert (done.returncode, done.stderr) == (status, b"")


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}], ids=str)
def test_names_that_an_encoding_lacks_are_written_as_escapes(tmp_path: Path, environment: Mapping[str, str]) -> None:
    path = tmp_path / "é.yaml"
    path.write_text("{apiVersion: v1, kind: Node, metadata: {name: a}}")
    done = shell("", "validate", str(path), environment=environment)
    assert done.returncode == OK
    assert done.stdout.decode().splitlines()[1].split()[0] in {str(path), str(path).replace("é", "\\xe9")}
    as_json = shell("", "validate", str(path), "--output", "json", environment=environment)
    assert json.loads(as_json.stdout)[0]["file"] == str(path)


def test_results_come_before_messages_where_both_go_to_one_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("{apiVersion: v1, kind: Node}")
    done = shell("2>&1", "validate", str(path))
    assert done.returncode == FOUND_PROBLEMS
    assert [line.split()[0] for line in done.stdout.decode().splitlines()] == ["FILE", str(path), "error:"]
