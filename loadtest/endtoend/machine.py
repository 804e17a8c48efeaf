"""On what machine something was measured, and how quick and busy it was just then."""

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from loadtest.endtoend.results import CALIBRATION_LOOPS, Machine, Mood
from tests.kit.controlplane.binaries import Binaries

_ROOT: Final = Path(__file__).parents[2]
_VERSION: Final = re.compile(r"\b(?:v|go)\d[\w.+-]*")


def described(binaries: Binaries) -> Machine:
    """This machine, and what runs on it. What can't be found out is empty."""
    return Machine(
        cores=os.cpu_count() or 0,
        processor=_line("/proc/cpuinfo", "model name") or platform.machine(),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        go=_version(("go", "version", binaries.command("kube-apiserver")[0])),
        kubernetes=_version((*binaries.command("kube-apiserver"), "--version")),
    )


def commit() -> str:
    """Of this repository; ``-dirty`` at its end if files differ from it."""
    return _printed(("git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"))


def mood(now: datetime) -> Mood:
    """Load, and the processor time of a fixed piece of work: it grows when a machine is throttled or shared."""
    load = os.getloadavg()[0]
    began = time.process_time()
    for _ in range(CALIBRATION_LOOPS):
        pass
    return Mood(at=now, load=round(load, 2), calibration=round(time.process_time() - began, 4))


def _version(command: Sequence[str]) -> str:
    found = _VERSION.findall(_printed(command))
    return found[-1] if found else ""


def _printed(command: Sequence[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _line(file: str, name: str) -> str:
    """The value of the first line of a name in a file of the system."""
    try:
        text = Path(file).read_text()
    except OSError:
        return ""
    found = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else ""
