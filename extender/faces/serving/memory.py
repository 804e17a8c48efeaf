"""The memory of this process: how much it may take, and what keeps garbage collection and the C library's heap small.

Python's garbage collector is kept from examining long-lived objects again and again. glibc gives each thread a heap of
its own. Once a large block has been freed, blocks of that size are put into a heap as well, and break it up. After
hostile requests 174 of 398 MB were free and could not be given back.
"""

import asyncio
import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, NoReturn

from extender.tools.offload import in_thread

SECONDS_BETWEEN_ALL: Final = 3600.0

_THRESHOLDS: Final = (700, 10, 1)
"""Of the collector's generations. A full collection stops every thread, and has at most about 23,000 new objects to
examine: 10 to 25 ms. With Python's 10 as the last number it has 70,000: 65 to 95 ms on the same machine."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within the context, nothing is collected; what was made in it is not examined later either.

    For work that makes a million objects and leaves no garbage in cycles: Python would examine them again and again
    while it lasts.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def sparing_survivors() -> Iterator[None]:
    """Within the context, a full collection examines only objects that are newer than the last full collection.

    The cache of a big cluster has a million objects, and almost none of them are in cycles. To examine them all stops
    every thread for a second. Python would do so each time that a quarter of the objects is new, and most of the time
    while the cache grows. Objects that survive a full collection are no garbage then. Few of them become garbage in a
    cycle later, and those wait for `collect_all_now_and_then`.
    """
    thresholds = gc.get_threshold()

    def called(phase: str, info: dict[str, int]) -> None:
        if (phase, info["generation"]) == ("stop", 2):
            gc.freeze()

    gc.callbacks.append(called)
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(called)
        gc.unfreeze()


async def collect_all_now_and_then() -> NoReturn:
    """Examine all objects once an hour, until cancelled.

    Python waits with a full collection until there are a quarter as many new objects as the last one has left. The
    second collection leaves few, so that the next one comes soon and is short.
    """
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_ALL)
        gc.unfreeze()
        gc.collect()
        gc.collect()


_LOOK_AT_START_SECONDS: Final = 0.1
_MOST_LOOKS_AT_START: Final = 600
"""A start that takes longer waits for something, and its tries leave garbage behind."""


async def undisturbed_start(is_ready: Callable[[], bool]) -> None:
    """Collect no garbage until the first lists are there; for a minute at most.

    Lists make a million objects, and no cycles. To examine each of them three times takes a fifth of the start.
    """
    with undisturbed():
        for _ in range(_MOST_LOOKS_AT_START):
            if is_ready():
                return
            await asyncio.sleep(_LOOK_AT_START_SECONDS)


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


_MAPPED_BYTES: Final = 512 * 1024
"""A block of this size or more is mapped alone, and given back as soon as it is freed. A body with 5,000 names is
smaller: to map and clear its pages each time would cost time."""

_SPARE_BYTES: Final = 16 * 1024 * 1024
"""A heap is cut if it has more free memory than this at its end."""

_HEAPS: Final = 2
"""The number of heaps for all threads. Python's lock lets one thread run at a time, so threads hardly wait here."""

_OPTIONS: Final = {-1: _SPARE_BYTES, -3: _MAPPED_BYTES, -8: _HEAPS}
"""M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX. Source: ``mallopt(3)``."""


_LOOK_SECONDS: Final = 1.0
"""Between two looks for free memory: a burst is given back in parts, because the heap is locked meanwhile."""

_WORTH_BYTES: Final = 8 * 1024 * 1024
"""Memory that has become free since the last time, from which on it is given back."""


class _Mallinfo(ctypes.Structure):
    """The result of ``mallinfo2(3)``: ten numbers, the ninth of which is the bytes that are free in all heaps."""

    _fields_ = [(f"field_{number}", ctypes.c_size_t) for number in range(10)]


@dataclass(slots=True)
class Heap:
    """The free memory of the C library's heaps.

    A heap is cut at its end only. What is free between blocks that are in use stays, until somebody asks for it.

    Attributes:
        free: returns how many bytes are free.
        trim: gives back the pages that are free.
    """

    free: Callable[[], int]
    trim: Callable[[], None]
    _known: int = 0

    def look(self) -> None:
        """Give back what is free, if much has become free since the last time."""
        free = self.free()
        if free > self._known + _WORTH_BYTES:
            self.trim()
            self._known = free  # these bytes are free as before, but take no memory
        self._known = min(self._known, free)


def heap_of_process() -> Heap | None:
    """The heaps of this process; None where the C library is not glibc 2.33 or later."""
    library = ctypes.CDLL(None)
    mallinfo, trim = getattr(library, "mallinfo2", None), getattr(library, "malloc_trim", None)
    if mallinfo is None or trim is None:
        return None
    mallinfo.restype = _Mallinfo
    return Heap(lambda: int(mallinfo().field_8), lambda: trim(0))


async def give_back_after_bursts(heap: Heap | None) -> NoReturn:
    """Give back memory that has become free, until cancelled. The loop is not stopped."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if heap is not None:
            await in_thread(heap.look)


def give_back_early() -> None:
    """Set this for the process, before it has threads. Where the C library is not glibc, nothing happens."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in _OPTIONS.items():
            mallopt(option, value)


async def mind_memory(heap: Heap | None) -> None:
    """`give_back_after_bursts` and `collect_all_now_and_then`, until cancelled."""
    await asyncio.gather(give_back_after_bursts(heap), collect_all_now_and_then())
