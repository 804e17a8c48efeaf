"""Where the programs of the node come from: all are built from Go modules.

Run as a program, it builds what is missing, with the control plane, and says so: ``python -m tests.kit.node.binaries``.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kit.controlplane.binaries import BUILD_SECONDS, Binaries, BinariesError, find_binaries

CACHE: Final = Path(__file__).parent / ".bin"
VERSION: Final = "v1.36.3"
"""Of the kubelet, as in programs/go.mod."""

_COMPILERS: Final = {"go": "the node is built with Go 1.26 or later", "gcc": "parts of runc are in C"}
_MAJOR, _MINOR, _ = VERSION.removeprefix("v").split(".")
_STAMPS: Final = {"gitVersion": VERSION, "gitMajor": _MAJOR, "gitMinor": _MINOR}
_LINKED: Final = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in _STAMPS.items())


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module, with programs that are built together.

    Attributes:
        folder: beside this file.
        packages: what is built, as go build is told.
        flags: of go build, besides those that all modules have.
        linked: flags of the linker.
    """

    folder: str
    packages: tuple[str, ...]
    flags: tuple[str, ...] = ()
    linked: str = ""

    @property
    def source(self) -> Path:
        """Where the module is."""
        return Path(__file__).parent / self.folder

    @property
    def arguments(self) -> tuple[str, ...]:
        """What go build is told, but for where the programs go."""
        return ("-mod=readonly", "-trimpath", "-buildvcs=false", *self.flags, "-ldflags", f"-s -w {self.linked}")

    @property
    def fingerprint(self) -> str:
        """Of everything that decides what is built."""
        digest = hashlib.sha256(" ".join((*self.arguments, *self.packages)).encode())
        for path in sorted(path for path in self.source.rglob("*") if path.suffix in {".go", ".mod", ".sum"}):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]


MODULES: Final = (
    Module("programs", ("./kubelet", "./driver", "./probe", "./unfiltered"), linked=_LINKED),
    # containerd without the file systems that the node does not use: two of them need C libraries.
    Module("runtime", ("tool",), flags=("-tags", "no_aufs no_btrfs no_devmapper no_zfs")),
)


@dataclass(frozen=True, slots=True)
class NodeBinaries:
    """What runs on the node, and beside it.

    Attributes:
        control_plane: the components of `make test-cluster`.
        programs: folder with kubelet, driver, probe and unfiltered, and with all of the container runtime.
    """

    control_plane: Binaries
    programs: Path


def find_node_binaries(environ: Mapping[str, str], cache: Path = CACHE) -> NodeBinaries:
    """The built programs, built now if they have not been yet.

    Args:
        environ: PATH says where go and gcc are; go reads more of it.
        cache: folder for what is built.

    Raises:
        BinariesError: there is no Go or no C compiler, or a build failed.
    """
    return NodeBinaries(find_binaries(environ), _built(environ, cache))


def _built(environ: Mapping[str, str], cache: Path) -> Path:
    """One folder for the programs of all modules: runc's wrapper looks for runc beside itself."""
    target = cache / "-".join(("node", *(module.fingerprint for module in MODULES)))
    if target.exists():
        return target
    for program, why in _COMPILERS.items():
        if shutil.which(program, path=environ.get("PATH")) is None:
            raise BinariesError(f"PATH has no {program}: {why}")
    unfinished = cache / f"unfinished-{os.getpid()}"
    unfinished.mkdir(parents=True)
    try:
        for module in MODULES:
            _build(module, unfinished, environ)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(unfinished)
        raise BinariesError(f"building the node's programs: {error}") from error
    for outdated in cache.glob("node-*"):
        shutil.rmtree(outdated)
    unfinished.rename(target)
    return target


def _build(module: Module, target: Path, environ: Mapping[str, str]) -> None:
    command = ("go", "build", *module.arguments, "-o", f"{target}/", *module.packages)
    subprocess.run(command, cwd=module.source, env=dict(environ), check=True, timeout=BUILD_SECONDS)


def main() -> None:
    """Have the binaries, and say where they are."""
    started = time.monotonic()
    sys.stderr.write("node: looking for the binaries; a first build takes minutes\n")
    try:
        found = find_node_binaries(os.environ)
    except BinariesError as error:
        sys.exit(f"error: {error}")
    sys.stderr.write(f"node: {found.programs} ({time.monotonic() - started:.1f} s)\n")


if __name__ == "__main__":
    main()
