"""The memory that this process may take: by its cgroup, or by a share of the machine's memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

_UNLIMITED_SHARE: Final = 4
"""Without a limit, the process counts on a quarter of the machine's memory: others run there, too."""

_CONTROLLER: Final = "memory"
_KIBIBYTE: Final = 1024


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A number of bytes, and where it comes from, for people."""

    size: int
    source: str


def memory_limit(root: Path = Path("/")) -> MemoryLimit:
    """The memory that this process may take.

    The least limit of its cgroup and of those around it counts. Both versions of cgroups are read.

    Args:
        root: of the file system; tests have their own.
    """
    machine = _machine(root)
    limits = [(_number(file), file) for file in _files(root) if file.is_file()]
    found = [(size, file) for size, file in limits if size is not None and (not machine or size < machine)]
    if not found:
        return MemoryLimit(machine // _UNLIMITED_SHARE, "a quarter of the machine's memory")
    size, file = min(found)
    return MemoryLimit(size, str(file))


def _files(root: Path) -> Iterator[Path]:
    """The files that may have a limit for this process.

    In a container, ``/proc/self/cgroup`` may name a path that only the host has. The container's own cgroup is then at
    the place where the hierarchy is mounted, which is the last parent of every path.
    """
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            yield from _upward(mounted, path, "memory.max")
        elif _CONTROLLER in controllers.split(","):
            yield from _upward(mounted / _CONTROLLER, path, "memory.limit_in_bytes")


def _upward(mounted: Path, path: str, name: str) -> Iterator[Path]:
    """The files of a cgroup and of those around it."""
    inner = PurePosixPath(path.lstrip("/"))
    for each in (inner, *inner.parents):
        if ".." not in each.parts:
            yield mounted / each / name


def _machine(root: Path) -> int:
    """Bytes of the machine's memory; 0 if they are not told."""
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) * _KIBIBYTE
    return 0


def _number(file: Path) -> int | None:
    """The bytes in a file; None for "max"."""
    text = _text(file).strip()
    return int(text) if text.isdecimal() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
