"""Runs of Kubernetes' own test programs, with the plugin or with an extender in its place."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, assert_never

import orjson
import yaml

from allocator.model.features import GATES
from tests.kit.controlplane.binaries import Binaries
from tests.kit.places import CONFIG, ROOT
from tests.kit.suites.binaries import SuiteBinaries
from tests.kit.suites.words import Word

Subject = Literal["in-tree", "dra-extender"]

SUBJECTS: Final[tuple[Subject, ...]] = ("in-tree", "dra-extender")

_SUBJECT: Final = "DRA_SUITE_SUBJECT"
"""The variable by which the file in overlay/ finds what it needs."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a test program.

    Attributes:
        suites: the programs.
        control_plane: has etcd.
        package: whose program runs, such as ``test/integration/dra/all``.
        subject: who allocates devices.
        words: put in place of the extender's.
        folder: for the output and all logs.
    """

    suites: SuiteBinaries
    control_plane: Binaries
    package: str
    subject: Subject
    words: Sequence[Word]
    folder: Path

    @property
    def output(self) -> Path:
        """What the program has printed."""
        return self.folder / "output.log"

    @property
    def etcd(self) -> int:
        """The process id of the etcd that runs, or ran last; 0 before that."""
        return _process_id(self.folder / "etcd.pid")

    @property
    def extender(self) -> int:
        """The process id of the extender that runs, or ran last; 0 before that."""
        files = sorted(self.folder.glob("*-*.pid"), key=lambda file: file.stat().st_mtime)
        return _process_id(files[-1]) if files else 0

    def start(self, flags: Sequence[str], environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        """Start the program, in a process group of its own."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.output.open("wb") as output:
            return subprocess.Popen(
                (str(self.suites.program(self.package)), *flags),
                cwd=self.suites.source / self.package,
                env=self._environment(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self, process: "subprocess.Popen[bytes]", seconds: float) -> bool:
        """Wait for the end, and end what the program has started and left behind; whether it ended in time."""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        finally:
            _end_group(process.pid)
            process.wait()
        return True

    def _environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        etcd = tools / "etcd"
        command = " ".join(self.control_plane.command("etcd"))
        # After exec, the program has the process id of the shell.
        etcd.write_text(f'#!/bin/sh\necho $$ > {self.folder}/etcd.pid\nexec {command} --unsafe-no-fsync "$@"\n')
        etcd.chmod(0o755)
        own = {
            "PATH": f"{tools}{os.pathsep}{environ.get('PATH', '')}",
            # The programs know paths within the cache of modules only (-trimpath).
            "TEST_SRCDIR": str(self.suites.modules),
            "TEST_WORKSPACE": ".",
        }
        match self.subject:
            case "in-tree":
                return {**environ, **own}
            case "dra-extender":
                file = self.folder / "subject.json"
                file.write_bytes(orjson.dumps(subject_file(self.folder, self.words)))
                return {**environ, **own, _SUBJECT: str(file)}
            case _:
                assert_never(self.subject)


def subject_file(logs: Path, words: Sequence[Word]) -> dict[str, object]:
    """What the file in overlay/ reads: how the extender is started, and how the scheduler calls it."""
    shipped = yaml.safe_load((CONFIG / "scheduler.yaml").read_text())
    return {
        "command": [sys.executable, "-m", "extender", "serve"],
        "folder": str(ROOT),
        "logs": str(logs),
        "extender": shipped["extenders"][0],
        "percentageOfNodesToScore": shipped["profiles"][0]["percentageOfNodesToScore"],
        "gates": list(GATES),
        "words": [asdict(word) for word in words],
    }


def _process_id(file: Path) -> int:
    text = file.read_text().strip() if file.exists() else ""
    return int(text) if text else 0


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGTERM)
    except ProcessLookupError:
        return
