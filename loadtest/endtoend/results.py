"""What was measured: values that a JSON file keeps."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from loadtest.endtoend.files import Record
from loadtest.endtoend.workload import SubjectName, Workload

CALIBRATION_LOOPS: Final = 5_000_000

Seconds = Annotated[float, Field(ge=0)]


class Machine(Record):
    """What everything ran on; texts are empty where that is not known.

    Attributes:
        processor: its model.
        go: that has built the control plane.
        kubernetes: version of the control plane.
    """

    cores: int
    processor: str
    memory_gib: float
    system: str
    python: str
    go: str
    kubernetes: str


class Mood(Record):
    """How the machine was at a moment.

    Attributes:
        load: average over the last minute, as ``uptime`` has it.
        calibration: processor time of `CALIBRATION_LOOPS` empty loops.
    """

    at: datetime
    load: float
    calibration: Seconds


class Run(Record):
    """What came of one run.

    Attributes:
        workload: its name.
        pods: that were to get a node.
        repetition: from 1.
        before: the machine's mood.
        bound_at: seconds from the moment at which the subject was started, of each pod that got a node; ascending.
        processor: seconds of all cores, from when the subject was ready to the last pod, by process.
        findings: pods that got no node, devices that two claims have, and the like; why the run was given up.
    """

    workload: str
    nodes: int
    pods: int
    subject: SubjectName
    repetition: int
    before: Mood
    bound_at: tuple[float, ...] = ()
    processor: dict[str, float] = Field(default_factory=dict)
    findings: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Pods per second from the first that got a node to the last; 0 if there are not two."""
        spent = self.bound_at[-1] - self.bound_at[0] if self.bound_at else 0.0
        return (len(self.bound_at) - 1) / spent if spent else 0.0


class Results(Record):
    """Runs of one start of the load test.

    Attributes:
        commit: of the project; ``-dirty`` at its end if files differed from it.
        workloads: as they were read, by their names.
        runs: in the order in which they ended.
    """

    began: datetime
    commit: str
    machine: Machine
    workloads: dict[str, Workload]
    runs: tuple[Run, ...] = ()

    def with_run(self, run: Run) -> "Results":
        """One more."""
        return self.model_copy(update={"runs": (*self.runs, run)})

    def write(self, path: Path) -> None:
        """Keep them in a file; what was there before is there until all is written."""
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(self.model_dump_json(by_alias=True))
        unfinished.replace(path)
