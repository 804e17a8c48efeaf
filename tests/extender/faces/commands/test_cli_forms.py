"""The command line as people type it: order of arguments, standard input, help, completion."""

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from extender.faces.commands.main import app
from extender.faces.commands.options import spread
from extender.faces.commands.output import FOUND_PROBLEMS, OK, USAGE
from tests.kit.clusters import GPU, Object, claim, local_slice, node, pod
from tests.kit.places import ROOT

RUNNER = CliRunner()
OBJECTS = (GPU, node("a"), local_slice("a"), claim("c"), pod("p", "c"), pod("plain"))
COMMANDS = sorted(getattr(get_command(app), "commands", ()))
GROUPS = {"config": ("print", "check")}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A cluster in two files."""
    paths = [tmp_path / "one.yaml", tmp_path / "two.yaml"]
    for path, objects in zip(paths, (OBJECTS[:3], OBJECTS[3:]), strict=True):
        path.write_text(yaml.safe_dump_all(objects))
    return [str(path) for path in paths]


async def run(*arguments: str, given: str = "", **environment: str) -> tuple[int | None, str, str]:
    """The command in a process of its own: status, output, messages."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extender", *arguments),
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nowhere", **environment},
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    output, messages = await process.communicate(given.encode())
    return process.returncode, output.decode(), messages.decode()


ORDERS = (
    ["explain", "ns/p", "-m", "ONE", "TWO"],
    ["explain", "-m", "ONE", "TWO", "ns/p"],
    ["explain", "-m", "ONE", "-m", "TWO", "ns/p"],
    ["explain", "-m", "ONE", "TWO", "--node", "a", "ns/p"],
    ["explain", "--node", "a", "-m", "ONE", "TWO", "ns/p"],
    ["explain", "-m", "ONE", "TWO", "ns/p", "-o", "text"],
)


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_a_pod_may_stand_before_or_after_the_manifests(order: list[str], files: list[str]) -> None:
    arguments = [{"ONE": files[0], "TWO": files[1]}.get(each, each) for each in order]
    result = RUNNER.invoke(app, spread(arguments, "--manifests", "-m"))
    assert (result.exit_code, result.stderr) == (OK, "")
    assert result.stdout.startswith("pod ns/p fits on")


MISTAKES: dict[str, tuple[list[str], int, str]] = {
    "no pod": (["-m", "ONE", "TWO"], USAGE, "which pod? The command needs [NAMESPACE/]POD"),
    "one value": (["-m", "ONE"], USAGE, "which pod? The command needs [NAMESPACE/]POD"),
    "no such pod": (["ns/pp", "-m", "ONE", "TWO"], USAGE, "pod ns/pp does not exist; did you mean ns/p?"),
    "another namespace": (["p", "-m", "ONE", "TWO"], USAGE, "pod default/p does not exist; did you mean ns/p?"),
    "no name": (["ns/", "-m", "ONE", "TWO"], USAGE, "ns/: expected POD or NAMESPACE/POD"),
}


@pytest.mark.parametrize(("arguments", "status", "told"), MISTAKES.values(), ids=MISTAKES)
def test_explain_says_what_is_wrong_with_the_pod(
    arguments: list[str], status: int, told: str, files: list[str]
) -> None:
    given = [{"ONE": files[0], "TWO": files[1]}.get(each, each) for each in arguments]
    result = RUNNER.invoke(app, spread(["explain", *given], "-m"))
    assert (result.exit_code, result.stdout, result.stderr) == (status, "", f"error: {told}\n")


def test_a_pod_without_devices_is_no_unknown_pod(files: list[str]) -> None:
    result = RUNNER.invoke(app, spread(["explain", "ns/plain", "-m", *files], "-m"))
    assert (result.exit_code, result.stdout.partition(":")[0]) == (OK, "pod ns/plain needs no devices")


@pytest.mark.parametrize(
    "command", [["validate"], ["simulate"], ["simulate", "-m"], ["audit"], ["explain", "ns/p", "-m"]]
)
async def test_a_dash_is_standard_input(command: list[str]) -> None:
    status, output, messages = await run(*command, "-", given=yaml.safe_dump_all(OBJECTS))
    assert (status, messages) == (OK, "note: 2 of 2 pods placed\n" if "simulate" in command else "")
    assert output


async def test_explain_prints_no_log_lines() -> None:
    """Not even if a controller is refused: the claim of the template needs a label on the namespace."""
    asks: Object = claim("x")
    asks["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "t", "namespace": "ns"}}
    template |= {"apiVersion": "resource.k8s.io/v1", "spec": {"spec": asks["spec"]}}
    wants = pod("watch")
    wants["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    given = yaml.safe_dump_all([*OBJECTS, template, wants])
    status, output, messages = await run("explain", "ns/watch", "-m", "-", given=given)
    assert status == FOUND_PROBLEMS
    assert "controller" not in output + messages
    assert [line.partition(":")[0] for line in messages.splitlines()] == ["warning"]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "version"])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_each_command_has_help_with_examples(name: str, option: str) -> None:
    for path in [[name, inner] for inner in GROUPS.get(name, ())] or [[name]]:
        result = RUNNER.invoke(app, [*path, option])
        assert result.exit_code == OK
        examples = result.stdout.partition("Examples:")[2]
        assert f"dra-extender {' '.join(path)}" in " ".join(examples.split()), result.stdout


def examples() -> list[str]:
    found = []
    for name in COMMANDS:
        for path in [[name, inner] for inner in GROUPS.get(name, ())] or [[name]]:
            text = RUNNER.invoke(app, [*path, "-h"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"}).stdout
            found += re.findall(r"^ *(dra-extender .*config/example.*)$", text.partition("Examples:")[2], re.MULTILINE)
    return [each.strip() for each in found if "serve" not in each]


@pytest.mark.parametrize("example", examples())
def test_examples_over_the_example_cluster_can_be_run(
    example: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)  # an example writes a picture
    result = RUNNER.invoke(app, spread(example.split()[1:], "--manifests", "-m"))
    assert result.exit_code in {OK, FOUND_PROBLEMS}, result.stderr
    assert result.stdout


COMPLETED: dict[str, dict[str, str]] = {
    "bash": {"COMP_WORDS": "dra-extender sim", "COMP_CWORD": "1"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "dra-extender sim"},
    "fish": {"_TYPER_COMPLETE_ARGS": "dra-extender sim", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


@pytest.mark.parametrize(("shell", "environment"), COMPLETED.items(), ids=COMPLETED)
async def test_shells_complete_commands(shell: str, environment: dict[str, str]) -> None:
    _, output, _ = await run(_DRA_EXTENDER_COMPLETE=f"complete_{shell}", **environment)
    assert "simulate" in output
    assert "serve" not in output


@pytest.mark.parametrize(("level", "is_printed"), [("info", False), ("debug", True)])
async def test_the_log_is_printed_only_if_the_settings_ask_for_all_of_it(
    files: list[str], level: str, is_printed: bool
) -> None:
    code = (
        "import structlog\nfrom extender.faces.commands.main import app\n"
        f"try:\n    app(['simulate', *{files}])\n"
        "except SystemExit:\n    structlog.get_logger().error('fault', exc_info=KeyError())"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code), cwd=ROOT, env={"DRA_EXTENDER__LOG__LEVEL": level}, stdout=PIPE, stderr=PIPE
    )
    output, messages = await process.communicate()
    assert output.startswith(b"POD")
    assert (b"KeyError" in messages) is is_printed
