"""A CCI driver in a process of its own: it gives what is asked for, and writes down what it is asked.

``python -m tests.kit.node.cci_driver FOLDER FILE``: FOLDER is that of the sockets, FILE gets one line for each call.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from extender.node.cci import Ask, End, Grant, Start, serve
from tests.kit.node.containerd import listens
from tests.kit.process import Process

NAME: Final = "recording.example.com"


class Recording:
    """Gives the lowest CPUs."""

    name = NAME

    def __init__(self, file: Path) -> None:
        self._file = file

    def admit(self, ask: Ask) -> Grant:
        cpus = sorted(ask.numbers)[: ask.cores]
        self._write("CCIAdmit", available=sorted(ask.numbers), container=ask.container, pod=ask.pod, gives=cpus)
        return Grant(frozenset(cpus))

    def add(self, start: Start) -> None:
        self._write(
            "CCIAddContainerResource", cgroup=start.cgroup, container_id=start.container_id, container=start.container
        )

    def remove(self, end: End) -> None:
        self._write("CCIRemoveContainerResource", claim=str(end.claim), container_id=end.container_id)

    def _write(self, method: str, **what: Any) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps({"method": method, **what}) + "\n")


def recording_driver(folder: Path, file: Path, log: Path) -> Process:
    """The driver, not started yet."""
    command = (sys.executable, "-m", "tests.kit.node.cci_driver", str(folder), str(file))
    return Process("cci-driver", command, listens(folder / f"{NAME}.sock"), log)


def heard(file: Path) -> list[dict[str, Any]]:
    """What the driver was asked."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


if __name__ == "__main__":
    serve(Recording(Path(sys.argv[2])), Path(sys.argv[1]))
