"""Cgroups (v1) of the sandbox's own, below those of whoever starts it: limits of the caller hold for the sandbox."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")
_REMOVE_SECONDS: Final = 20.0
_INTERVAL: Final = 0.05


class CgroupsError(Exception):
    """The machine has not the cgroups that a node needs, and why."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One hierarchy of cgroups, and this process's place in it.

    Attributes:
        controllers: as the kernel names them, such as ``cpu`` or ``name=systemd``.
        path: of this process's cgroup, from the hierarchy's root.
    """

    controllers: str
    path: str

    @property
    def mountpoint(self) -> Path:
        """Where it is mounted."""
        return ROOT / self.controllers.removeprefix("name=")

    @property
    def mount_options(self) -> str:
        """By which it is mounted once more."""
        return f"none,{self.controllers}" if self.controllers.startswith("name=") else self.controllers

    @property
    def folder(self) -> Path:
        """Of this process's cgroup."""
        return self.mountpoint / self.path.lstrip("/")


def own_hierarchies() -> list[Hierarchy]:
    """The hierarchies of cgroup v1 that this process is in.

    Raises:
        CgroupsError: there are none, or they are mounted elsewhere.
    """
    lines = (line.split(":", 2) for line in _OWN.read_text().splitlines())
    found = [Hierarchy(controllers, path) for _, controllers, path in lines if controllers]
    if not found:
        raise CgroupsError("the node needs cgroup v1, and this machine has only cgroup v2")
    for each in found:
        if not each.folder.is_dir():
            raise CgroupsError(f"the cgroup hierarchy {each.controllers} is not mounted at {each.mountpoint}")
    return found


def make(folders: list[Path]) -> None:
    """Make cgroups, each below this process's own one.

    Raises:
        OSError: the kernel refuses one; those before it are there.
    """
    for folder in folders:
        folder.mkdir()
        if (folder / "cpuset.cpus").exists():
            # A new cgroup of this controller has neither CPUs nor memory, unless its parent passes them on.
            for setting in ("cpuset.mems", "cpuset.cpus"):
                (folder / setting).write_text((folder.parent / setting).read_text())
            (folder / "cgroup.clone_children").write_text("1")


def join(folders: list[Path]) -> None:
    """Move this process into cgroups."""
    for folder in folders:
        (folder / "cgroup.procs").write_text(str(os.getpid()))


def remove(folders: list[Path]) -> list[Path]:
    """End all processes in cgroups, and remove the cgroups with all below them.

    Returns:
        Those that are still there after a time: empty if all is well.
    """
    until = time.monotonic() + _REMOVE_SECONDS
    while (left := [folder for folder in folders if folder.exists()]) and time.monotonic() < until:
        for folder in left:
            for inner in _from_the_leaves(folder):
                _empty(inner)
        time.sleep(_INTERVAL)
    return left


def _from_the_leaves(folder: Path) -> Iterator[Path]:
    for root, _, _ in os.walk(folder, topdown=False):
        yield Path(root)


def _empty(folder: Path) -> None:
    """Kill who is in a cgroup, and remove it; whoever has not ended yet makes that fail until the next time."""
    try:
        for pid in (folder / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        folder.rmdir()
    except OSError:
        return
