"""The plugin for krew: the archive and the manifest that `make krew` writes, and the starter in the archive."""

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.tools.version import __version__
from tests.kit.places import ROOT

STARTER = ROOT / "deploy" / "krew" / "kubectl-dra"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    subprocess.run(["make", "-s", "krew", f"DIST={tmp_path}", "KREW_URI=https://example.com/x"], cwd=ROOT, check=True)
    return tmp_path


def test_the_manifest_is_of_this_version_and_of_the_archive(dist: Path) -> None:
    archive = dist / "kubectl-dra.tar.gz"
    manifest: dict[str, Any] = yaml.safe_load((dist / "dra.yaml").read_text())
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Plugin", "dra")
    assert manifest["spec"]["version"] == f"v{__version__}"
    (platform,) = manifest["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"] == "https://example.com/x"
    with tarfile.open(archive) as files:
        assert {each["from"] for each in platform["files"]} == set(files.getnames())
        assert files.getmember(platform["bin"]).mode & 0o111


def started(python: str, *arguments: str) -> tuple[int, str, str]:
    environment = {**os.environ, "KUBECTL_DRA_PYTHON": python, "PYTHONPATH": str(ROOT)}
    found = subprocess.run([STARTER, *arguments], env=environment, cwd="/", capture_output=True, text=True, check=False)
    return found.returncode, found.stdout, found.stderr


def test_the_starter_runs_the_plugin() -> None:
    assert started(sys.executable, "--version") == (0, f"kubectl-dra {__version__}\n", "")


def test_without_the_package_the_starter_says_how_to_install_it() -> None:
    code, output, messages = started("/bin/false")
    assert (code, output) == (2, "")
    assert "/bin/false has no package dra-extender: run /bin/false -m pip install '.[top]' in a clone" in messages
