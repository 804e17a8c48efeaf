"""Figures of a process and of this machine: memory, speed, load, percentiles."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

MEGABYTE: Final = 1_000_000
LOOPS: Final = 5_000_000
"""Of a calibration."""


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


def calibration() -> float:
    """Seconds for a loop that does nothing: how fast this machine is now."""
    started = time.perf_counter()
    for _ in range(LOOPS):
        pass
    return time.perf_counter() - started


def machine() -> str:
    """How busy this machine is, and how fast."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    return f"load {load} on {os.cpu_count()} cores; {LOOPS:,} empty loops take {calibration():.2f} s"


def percentile(values: Sequence[float], percent: int) -> float:
    """The least value that this percentage of all values does not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]
