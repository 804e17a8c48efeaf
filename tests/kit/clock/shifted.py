"""A command line whose program has a clock of the day of its own (Linux, gcc)."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kit.waiting import WaitError

_SOURCE: Final = Path(__file__).with_name("shift.c")


@dataclass(frozen=True, slots=True)
class ShiftedClock:
    """What the programs of a command see of the time.

    Attributes:
        folder: for the library and the file with the shift.
    """

    folder: Path

    def __post_init__(self) -> None:
        gcc = shutil.which("gcc")
        if gcc is None:
            raise WaitError("gcc is not there, by which the library is made that shifts a clock")
        subprocess.run([gcc, "-shared", "-fPIC", "-O2", "-o", str(self._library), str(_SOURCE)], check=True)
        self.set(0)

    @property
    def _library(self) -> Path:
        return self.folder / "shift.so"

    @property
    def _file(self) -> Path:
        return self.folder / "shift"

    def set(self, seconds: int) -> None:
        """The clock is ahead by this number of seconds from now on."""
        new = self.folder / "shift.new"
        new.write_text(str(seconds))
        new.replace(self._file)

    def seen_by(self, command: Sequence[str]) -> tuple[str, ...]:
        """A command whose program sees this clock."""
        return ("env", f"LD_PRELOAD={self._library}", f"SHIFTED_BY={self._file}", *command)
