"""Files that somebody names: only files are read, and not without end."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extender.faces.commands.main import app
from extender.faces.commands.output import FOUND_PROBLEMS, USAGE
from extender.tools.files import UnreadableError, read_text


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _endless(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


MAKERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe that nobody writes to": (os.mkfifo, "it is a pipe, not a file"),
    "zeros without end": (lambda path: path.symlink_to("/dev/zero"), "it is a device, not a file"),
    "a folder": (Path.mkdir, "Is a directory"),
    "a socket": (_socket, "No such device or address"),
    "a file without end": (_endless, "it is longer than 33554432 bytes"),
    "a file that is no text": (lambda path: path.write_bytes(b"\xff"), "it is not text in UTF-8"),
    "nothing": (lambda path: path, "No such file or directory"),
}


@pytest.fixture(params=[*MAKERS.values()], ids=[*MAKERS])
def unreadable(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    make, why = request.param
    path = tmp_path / "f"
    make(path)
    return path, f"cannot be read: {why}"


def test_what_is_no_text_file_is_told(unreadable: tuple[Path, str]) -> None:
    path, why = unreadable
    with pytest.raises(UnreadableError) as error:
        read_text(path)
    assert str(error.value) == why


def test_settings_are_read_from_files_only(unreadable: tuple[Path, str]) -> None:
    path, why = unreadable
    result = CliRunner().invoke(app, ["config", "check", "--config", str(path)])
    assert (result.exit_code, result.stderr) == (USAGE, f"error: {path}: {why}\n")


def test_a_file_of_node_templates_that_cannot_be_read_is_named(unreadable: tuple[Path, str]) -> None:
    path, why = unreadable
    environment = {"DRA_EXTENDER__AUTOSCALER__NODE_TEMPLATES": str(path)}
    result = CliRunner().invoke(app, ["config", "check"], env=environment)
    assert (result.exit_code, result.stderr) == (FOUND_PROBLEMS, f"error: autoscaler.nodeTemplates: {path}: {why}\n")


def test_a_kubeconfig_that_cannot_be_read_is_named(unreadable: tuple[Path, str]) -> None:
    path, why = unreadable
    result = CliRunner().invoke(app, ["audit", "--kubeconfig", str(path)])
    expected = f"{path}: {why}" if path.exists() else f"{path}: no such file"
    assert (result.exit_code, result.stderr) == (USAGE, f"error: {expected}\n")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a: é", encoding="utf-8-sig")
    assert read_text(path) == "a: é"
