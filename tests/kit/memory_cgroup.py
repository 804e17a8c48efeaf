"""A cgroup with a limit of memory, for one program: version 1 or 2, below the cgroup of whoever starts it."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")


class NoCgroupError(Exception):
    """This machine lets us make no cgroup with a limit of memory, and why."""


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    """A cgroup.

    Attributes:
        folder: of its files.
        version: 1 or 2.
    """

    folder: Path
    version: int

    @property
    def enter(self) -> Sequence[str]:
        """The words before a command that runs in the cgroup from its start."""
        return "sh", "-c", f'echo $$ > "{self.folder}/cgroup.procs" && exec "$@"', "sh"

    @property
    def killed(self) -> int:
        """How many processes of it the kernel has ended for want of memory."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        lines = (line.split() for line in (self.folder / name).read_text().splitlines())
        return next((int(line[1]) for line in lines if line[0] == "oom_kill"), 0)

    @property
    def refused(self) -> int:
        """How often it was at its limit, so that the kernel had to take memory back."""
        if self.version == 1:
            return int((self.folder / "memory.failcnt").read_text())
        lines = (line.split() for line in (self.folder / "memory.events").read_text().splitlines())
        return next((int(line[1]) for line in lines if line[0] == "max"), 0)


@contextlib.contextmanager
def memory_cgroup(limit: int) -> Iterator[MemoryCgroup]:
    """A cgroup with so many bytes, swap included; it is removed in the end.

    Raises:
        NoCgroupError: there can be none.
    """
    found = _made()
    name = "memory.limit_in_bytes" if found.version == 1 else "memory.max"
    try:
        (found.folder / name).write_text(str(limit))
        swap = found.folder / ("memory.memsw.limit_in_bytes" if found.version == 1 else "memory.swap.max")
        if swap.exists():
            swap.write_text(str(limit) if found.version == 1 else "0")
        yield found
    finally:
        with contextlib.suppress(OSError):
            found.folder.rmdir()


def _made() -> MemoryCgroup:
    problems = []
    for line in _OWN.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in {"", "memory"}:
            continue
        version = 1 if controllers else 2
        parent = (_ROOT / "memory" if controllers else _ROOT) / path.lstrip("/")
        folder = parent / f"dra-extender-{os.getpid()}"
        try:
            if version == 2:
                _offer_memory(parent)
            folder.mkdir()
        except OSError as error:
            problems.append(f"version {version}: {error}")
        else:
            return MemoryCgroup(folder, version)
    raise NoCgroupError("; ".join(problems) or "no hierarchy of cgroups has memory")


def _offer_memory(parent: Path) -> None:
    """Let cgroups below one have limits of memory."""
    if "memory" not in (parent / "cgroup.controllers").read_text().split():
        raise OSError(f"{parent} has no controller of memory")
    control = parent / "cgroup.subtree_control"
    if "memory" not in control.read_text().split():
        control.write_text("+memory")
