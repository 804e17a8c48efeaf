"""One turn: a workload of scheduler_perf, measured with one subject."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from loadtest.upstream_bench.profile import ProfileError, read_profile
from loadtest.upstream_bench.sampling import Series, sampled
from loadtest.upstream_bench.workloads import Workload
from tests.kit.controlplane.binaries import Binaries
from tests.kit.suites.binaries import SuiteBinaries
from tests.kit.suites.running import Run, Subject

EXTENDER: Final = "extender"
ETCD: Final = "etcd"

_THROUGHPUT: Final = "SchedulingThroughput"


class TurnError(Exception):
    """A turn has no figures, and why."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn has measured.

    Attributes:
        seconds: that scheduler_perf measured.
        pods: that got a node meanwhile; 0 if the workload has none.
        rate: pods a second, as scheduler_perf tells it: the mean over its samples, one a second. What is over before it
            took two is pods by seconds.
        processor: seconds of processor time meanwhile, by part.
        load: of the machine before the turn: the mean over a minute.
    """

    seconds: float
    pods: int
    rate: float
    processor: Mapping[str, float]
    load: float = 0.0


def measure(
    suites: SuiteBinaries,
    control_plane: Binaries,
    workload: Workload,
    subject: Subject,
    folder: Path,
    environ: Mapping[str, str],
    limit: float,
) -> Turn:
    """Run a workload once.

    Args:
        suites: the test programs.
        control_plane: has etcd.
        workload: that runs.
        subject: who allocates devices.
        folder: for logs and results; what is there goes.
        environ: of the programs.
        limit: seconds after which the turn ends without figures.

    Raises:
        TurnError: the workload failed, or took longer.
    """
    shutil.rmtree(folder, ignore_errors=True)
    load = os.getloadavg()[0]
    run = Run(suites, control_plane, workload.package, subject, (), folder)
    data = folder / "data"
    process = run.start(_flags(workload, data, limit), environ)

    with sampled(lambda: _beside(run)) as series:
        in_time = run.finish(process, limit + 60)
    if not in_time or process.returncode != 0:
        raise TurnError(f"{workload.title}, {subject}: it failed or took too long; see {run.output}")
    return replace(turn(data, dict(series), workload.pods), load=round(load, 2))


def turn(data: Path, series: Mapping[str, Series], pods: int) -> Turn:
    """The figures of a turn.

    Args:
        data: folder with what scheduler_perf wrote.
        series: processor time of the processes beside it.
        pods: of the workload; 0 if pods come all the time, so that their rate says how many there were.

    Raises:
        TurnError: something is missing there.
    """
    profiles, items = list(data.glob("*-cpu.prof")), list(data.glob("*.json"))
    if len(profiles) != 1 or len(items) != 1:
        raise TurnError(f"{data} should have one profile and one file of results")
    try:
        profile = read_profile(profiles[0].read_bytes())
    except ProfileError as error:
        raise TurnError(f"{profiles[0]}: {error}") from error
    end = profile.began + profile.seconds
    besides = {name: each.between(profile.began, end) for name, each in series.items()}
    rate = next((_rate(each) for each in json.loads(items[0].read_text())["dataItems"] if _is_rate(each)), 0.0)
    return Turn(
        profile.seconds,
        pods or round(rate * profile.seconds),
        rate or pods / profile.seconds,
        {**profile.parts, **besides},
    )


def _beside(run: Run) -> dict[str, int]:
    """The processes that run beside the test process now."""
    return {name: pid for name, pid in ((ETCD, run.etcd), (EXTENDER, run.extender)) if pid}


def _flags(workload: Workload, data: Path, limit: float) -> tuple[str, ...]:
    parts = ("BenchmarkPerfScheduling", workload.case, workload.name)
    return (
        "-test.run=^$",
        f"-test.bench={'/'.join(f'^{part}$' for part in parts)}",
        "-test.benchtime=1ns",
        f"-test.timeout={limit:.0f}s",
        "-perf-scheduling-label-filter=",
        "-perf-cpuprofile",
        f"-data-items-dir={data}",
    )


def _is_rate(item: Mapping[str, Any]) -> bool:
    return bool(item["labels"].get("Metric") == _THROUGHPUT)


def _rate(item: Mapping[str, Any]) -> float:
    return float(item["data"]["Average"])
