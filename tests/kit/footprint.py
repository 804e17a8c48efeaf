"""What a process takes of the machine's memory."""

import gc
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

MEGABYTE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Footprint:
    """Of a process at one time.

    Attributes:
        resident: bytes in memory.
        objects: that Python's collector knows of.
    """

    resident: int
    objects: int


def footprint() -> Footprint:
    """Of this process now, garbage aside, as far as the collector finds it."""
    gc.collect()
    return Footprint(resident(), len(gc.get_objects()) + gc.get_freeze_count())


def resident(pid: int | str = "self") -> int:
    """Bytes of a process that are in memory now."""
    return _status(pid, "VmRSS")


def resident_peak(pid: int | str = "self") -> int:
    """The most bytes of a process that were in memory so far."""
    return _status(pid, "VmHWM")


def _status(pid: int | str, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def alone(module: str, *arguments: str) -> Any:  # JSON
    """What a module prints as JSON when it runs in a process of its own."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, check=True)
    return orjson.loads(done.stdout)
