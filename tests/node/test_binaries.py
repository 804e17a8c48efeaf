"""The programs of the node are built here, and what that needs is named."""

import os
from pathlib import Path

import pytest

from tests.kit.controlplane.binaries import BinariesError, find_binaries
from tests.kit.node.binaries import find_node_binaries


@pytest.fixture
def compilers(tmp_path: Path) -> Path:
    """A folder for stand-ins of compilers."""
    find_binaries(os.environ)
    folder = tmp_path / "compilers"
    folder.mkdir()
    return folder


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_without_a_compiler_it_is_named(tmp_path: Path, compilers: Path) -> None:
    with pytest.raises(BinariesError, match=r"PATH has no go: the node is built with Go 1.26"):
        find_node_binaries({"PATH": str(compilers)}, tmp_path / "cache")
    put(compilers, "go", "exit 0")
    with pytest.raises(BinariesError, match="PATH has no gcc: parts of runc are in C"):
        find_node_binaries({"PATH": str(compilers)}, tmp_path / "cache")


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, compilers: Path) -> None:
    put(compilers, "go", "exit 3")
    put(compilers, "gcc", "exit 0")
    with pytest.raises(BinariesError, match="exit status 3"):
        find_node_binaries({"PATH": str(compilers)}, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
