"""Builds what is released, from the files of a commit."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.release.archives import checksums, pack
from tests.release.version import version_of

NO_MANIFESTS: Final = {"chart", "krew"}
"""The folders of deploy/ that are released in another form."""


class ReleaseError(Exception):
    """Why there is no release."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What builds a release.

    Attributes:
        python: has the packages of requirements.txt beside this module.
        epoch: the time of the commit, in seconds: files of archives have it.
        uri: where the archive of the plugin is published.
    """

    python: Path
    epoch: int
    uri: str

    def run(self, *command: str | Path, cwd: Path) -> None:
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(self.epoch), "PYTHONDONTWRITEBYTECODE": "1"}
        run(*command, cwd=cwd, environment=environment)


def run(*command: str | Path, cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints.

    Raises:
        ReleaseError: it fails.
    """
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def tools_in(folder: Path, *, epoch: int, uri: str) -> Tools:
    """A virtual environment with the tools, by hash."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    lock = Path(__file__).with_name("requirements.txt")
    run(*pip, "--require-hashes", "--only-binary=:all:", f"--requirement={lock}", cwd=folder)
    return Tools(python, epoch, uri)


def build(source: Path, target: Path, tools: Tools) -> None:
    """Write all files of a release into a folder, with their checksums.

    Args:
        source: the files of the commit.
        target: an empty folder.
        tools: that build it.

    Raises:
        ReleaseError: a part cannot be built.
    """
    version = version_of(source)
    tools.run(tools.python, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", target, cwd=source)
    deploy = source / "deploy"
    chart = target / f"dra-extender-{version}.tgz"
    files = [each.name for each in (deploy / "chart").iterdir()]
    pack(chart, deploy / "chart", files, prefix="dra-extender", epoch=tools.epoch)
    own = [f"deploy/{path.name}" for path in deploy.glob("*.yaml")]
    folders = sorted(path.name for path in deploy.iterdir() if path.is_dir() and path.name not in NO_MANIFESTS)
    names = [*own, *(f"deploy/{folder}" for folder in folders), "config", "LICENSE"]
    manifests = f"dra-extender-{version}-manifests"
    pack(target / f"{manifests}.tar.gz", source, names, prefix=manifests, epoch=tools.epoch)
    tools.run("make", "-s", "krew", f"DIST={target}", f"KREW_URI={tools.uri}", cwd=source)
    write_sbom(source, target / f"dra-extender-{version}.cdx.json", tools)
    (target / "SHA256SUMS").write_text(checksums(target))


def write_sbom(source: Path, target: Path, tools: Tools) -> None:
    """Write what the image installs, with hashes, as CycloneDX."""
    options = ("--output-reproducible", "--output-format=JSON", f"--output-file={target}")
    project = f"--pyproject={source / 'pyproject.toml'}"
    lock = source / "deploy" / "requirements.txt"
    tools.run(tools.python, "-m", "cyclonedx_py", "requirements", project, *options, lock, cwd=source)
