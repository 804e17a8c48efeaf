"""Commands as processes: streams that are closed, full, not read, or in an encoding that lacks characters."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import pytest

from extender.faces.commands.output import FOUND_PROBLEMS, OK, USAGE

ROOT = Path(__file__).parents[4]
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
