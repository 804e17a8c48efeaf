"""Pods per second on a real control plane, side by side: ``python -m loadtest.endtoend``.

Three subjects take turns on one control plane, all on one machine: kube-scheduler with its own plugin for claims,
dra-extender with the configuration that we ship, and an extender that decides nothing. What each has done is audited: a
run with anything wrong does not count, and ends in exit code 1. Progress goes to stderr, figures to stdout.
"""

import argparse
import asyncio
import os
import platform
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from loadtest.endtoend.figures import Run, processor_table, table, verdicts
from loadtest.endtoend.run import Bench, furnish
from loadtest.endtoend.subjects import CALLS_PER_SECOND, SUBJECTS
from loadtest.endtoend.workloads import WORKLOADS
from tests.cluster.harness.binaries import VERSION, find_binaries
from tests.cluster.harness.client import connect
from tests.cluster.harness.controlplane import Options, control_plane

_LOOPS: Final = 5_000_000

Runs = dict[str, list[Run]]
"""By the workload's name."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    about = "; ".join(f"{each.name}: {each.about}" for each in WORKLOADS.values())
    parser.add_argument("--nodes", type=int, nargs="+", default=[500], help="sizes of the clusters; default 500")
    parser.add_argument("--pods", type=int, default=1000, help="that are to get a node; default 1000")
    parser.add_argument("--repetitions", type=int, default=3, help="of each run; default 3")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), help=about)
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=list(SUBJECTS), help="default all")
    return parser.parse_args()


async def _measure(arguments: argparse.Namespace, nodes: int, progress: Progress) -> Runs:
    """All runs on a cluster of one size, with a control plane of its own."""
    limits = (f"--kube-api-qps={CALLS_PER_SECOND}", f"--kube-api-burst={CALLS_PER_SECOND}")
    with TemporaryDirectory(prefix="dra-extender-") as folder:
        logs = Path(folder)
        with control_plane(find_binaries(os.environ), logs, logs, Options(controller_flags=limits)) as plane:
            async with connect(plane.access()) as client:
                progress.console.print(f"{nodes:,} nodes are made")
                return await _take_turns(await furnish(plane, client, nodes), arguments, progress)


async def _take_turns(bench: Bench, arguments: argparse.Namespace, progress: Progress) -> Runs:
    """Subject after subject, each workload, again and again: what drifts meets all of them."""
    runs: Runs = {key: [] for key in arguments.workloads}
    for repetition in range(arguments.repetitions):
        for key in arguments.workloads:
            for name in arguments.subjects:
                workload, subject = WORKLOADS[key], SUBJECTS[name]
                if workload.hopeless and not subject.decides:
                    continue
                what = f"{key}, {name}, {repetition + 1} of {arguments.repetitions}"
                task = progress.add_task(what, total=arguments.pods)
                tell = partial(_tell, progress, task)
                run = await bench.run(workload, subject, arguments.pods, tell)
                progress.remove_task(task)
                progress.console.print(
                    f"{what}: {run.rate:.1f} pods/s, {run.processor * 1000:.1f} ms, load {run.load:.1f}",
                    *run.wrong,
                    sep="\n  ",
                )
                runs[key].append(run)
    return runs


def _tell(progress: Progress, task: TaskID, bound: int) -> None:
    progress.update(task, completed=bound)


def _calibrate() -> float:
    began = time.process_time()
    for _ in range(_LOOPS):
        pass
    return time.process_time() - began


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    before = _calibrate()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    found: dict[int, Runs] = {}
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for nodes in arguments.nodes:
            found[nodes] = asyncio.run(_measure(arguments, nodes, progress))
    console = Console()
    for nodes, runs in found.items():
        console.print(
            table(nodes, arguments.pods, runs), processor_table(runs), *verdicts(nodes, runs), sep="\n", highlight=False
        )
    loads = [run.load for runs in found.values() for each in runs.values() for run in each]
    console.print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, Kubernetes {VERSION}; "
        f"repetitions: {arguments.repetitions}; load before a run {min(loads):.1f} to {max(loads):.1f}; "
        f"calibration {before:.2f} s before, {_calibrate():.2f} s after, for {_LOOPS:,} empty loops"
    )
    wrong = [problem for runs in found.values() for each in runs.values() for run in each for problem in run.wrong]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
