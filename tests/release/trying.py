"""Installs each part of a release into a clean environment, and runs its first command."""

import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.kit.controlplane.binaries import (
    RELEASES,
    BinariesError,
    find_helm,
    find_krew,
    find_kubectl,
    find_renderer,
)
from tests.release.building import run

NEWEST: Final = RELEASES[max(RELEASES)].version

EXTRAS: Final = ("grpc", "node", "opentelemetry", "plot", "top")
"""What pages install from a clone."""


def tried(release: Path, folder: Path, source: Path, version: str) -> Iterator[str]:
    """Yield a line for each part that works.

    Args:
        release: folder of the release.
        folder: an empty one.
        source: the files of the commit: what it names is installed from there, as pages say it.
        version: of the release.

    Raises:
        ReleaseError: a command fails.
    """
    parts: dict[str, str | Path] = {
        "wheel": release / f"dra_extender-{version}-py3-none-any.whl",
        "sdist": release / f"dra_extender-{version}.tar.gz",
        "clone": f"{source}[{','.join(EXTRAS)}]",
    }
    for kind, what in parts.items():
        environment = folder / kind
        run(sys.executable, "-m", "venv", environment, cwd=folder)
        pip = (environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, f"--constraint={source / 'constraints.txt'}", what, cwd=folder)
        command = environment / "bin" / "dra-extender"
        yield f"{kind}: {run(command, 'version', cwd=folder).strip()}"
    yield f"plugin: {_plugin(release, folder)}"
    try:
        yield from _rendered(release, folder, version)
        yield f"krew: {_by_krew(release, folder)}"
    except BinariesError as error:
        yield f"chart, manifests and krew: not tried, because the programs cannot be built: {error}"


def _plugin(release: Path, folder: Path) -> str:
    unpacked = folder / "plugin"
    _unpack(release / "kubectl-dra.tar.gz", unpacked)
    return run(unpacked / "kubectl-dra", "--version", cwd=folder, environment=_with_python(folder)).strip()


def _by_krew(release: Path, folder: Path) -> str:
    """What `kubectl dra --version` prints, after krew has installed the plugin from the archive by the manifest."""
    home = folder / "krew"
    environment = _with_python(folder) | {"KREW_ROOT": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    archive = f"--archive={release / 'kubectl-dra.tar.gz'}"
    command = (find_krew(os.environ), "install", f"--manifest={release / 'dra.yaml'}", archive)
    run(*command, cwd=folder, environment=environment)
    return run(find_kubectl(os.environ), "dra", "--version", cwd=folder, environment=environment).strip()


def _with_python(folder: Path) -> dict[str, str]:
    """The environment, with the Python that has the wheel as that of the plugin."""
    return {**os.environ, "KUBECTL_DRA_PYTHON": str(folder / "wheel" / "bin" / "python")}


def _rendered(release: Path, folder: Path, version: str) -> Iterator[str]:
    chart = release / f"dra-extender-{version}.tgz"
    objects = run(find_helm(os.environ), "template", "x", chart, f"--kube-version={NEWEST}", cwd=folder)
    yield f"chart: {objects.count('kind: Deployment')} Deployment"
    name = f"dra-extender-{version}-manifests"
    _unpack(release / f"{name}.tar.gz", folder / "manifests")
    objects = run(find_renderer(os.environ), folder / "manifests" / name / "deploy", cwd=folder)
    yield f"manifests: {objects.count('kind: Deployment')} Deployment"


def _unpack(archive: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
