"""Processor time of processes, by Linux' account."""

import os
from collections.abc import Mapping
from pathlib import Path


def used(processes: Mapping[str, int], root: Path = Path("/proc")) -> dict[str, float]:
    """Seconds of all cores so far, in user and in system mode.

    Args:
        processes: their ids, by name.
        root: where the system tells about processes.

    Raises:
        OSError: a process is gone.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    return {name: sum(_ticks(root / str(pid) / "stat")) / ticks for name, pid in processes.items()}


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What was used in between."""
    return {name: round(after[name] - before[name], 3) for name in before}


def _ticks(stat: Path) -> tuple[int, int]:
    # A program's name, in parentheses, may have spaces.
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[11]), int(fields[12])
