"""Pods per second on a real control plane, side by side: ``python -m loadtest.endtoend``.

Three subjects take turns on one control plane, all on one machine: kube-scheduler with its own plugin for claims,
dra-extender with the configuration that we ship, and an extender that decides nothing. What each has done is audited:
a run with anything wrong does not count. Progress goes to stderr, figures to stdout, results to a folder, anew after
each run. Exit code 1: a threshold was missed or something was wrong; 2: bad input; 130: interrupted.

``python -m loadtest.endtoend report RESULTS.json ... --html FILE`` makes one page of several results.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from extender.tools.table import print_table
from loadtest.endtoend import machine
from loadtest.endtoend.campaign import Campaign
from loadtest.endtoend.files import FileError, read
from loadtest.endtoend.plan import Choice, PlanError, plan
from loadtest.endtoend.report import Report
from loadtest.endtoend.results import Results, Run
from loadtest.endtoend.run import opened
from loadtest.endtoend.screen import Screen
from loadtest.endtoend.thresholds import SHIPPED, Thresholds
from loadtest.endtoend.workload import FOLDER, ORDER, Workload, named
from tests.kit.controlplane.binaries import BinariesError, find_binaries

OK, MISSED, USAGE, INTERRUPTED = 0, 1, 2, 130
STANDARD: Final = ("claims", "none", "templates", "mixed", "churn", "crowded")
_OUT: Final = Path(__file__).parents[1] / "results"
_PROGRAM: Final = "python -m loadtest.endtoend"


class Keeper:
    """Results on disk, as they are after each run."""

    def __init__(self, path: Path, results: Results) -> None:
        self.path = path
        self.results = results
        self.results.write(path)

    def add(self, run: Run) -> None:
        """One more."""
        self.results = self.results.with_run(run)
        self.results.write(self.path)


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; the exit code."""
    try:
        if arguments[:1] == ["report"]:
            return _report(_report_parser().parse_args(arguments[1:]))
        return _measure(_parser().parse_args(arguments))
    except (FileError, PlanError, BinariesError) as error:
        sys.stderr.write(f"error: {error}\n")
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


def _measure(arguments: argparse.Namespace) -> int:
    """Do runs, show what came of them, and judge."""
    workloads, chosen = _workloads(arguments.workloads)
    thresholds = _thresholds(arguments.thresholds)
    turns = plan(workloads, chosen, Choice(arguments.nodes, arguments.pods, arguments.repetitions, arguments.subjects))
    binaries = find_binaries(os.environ)
    now = partial(datetime.now, UTC)
    results = Results(began=now(), commit=machine.commit(), machine=machine.described(binaries), workloads=workloads)
    out = arguments.out or _OUT / f"{results.began:%Y-%m-%dT%H-%M-%SZ}"
    keeper = Keeper(_new(out / "results.json"), results)
    place = partial(opened, binaries=binaries, logs=_folder(out / "logs"))
    with Screen(Console(stderr=True), sum(map(len, turns.values()))) as screen:

        def done(run: Run) -> None:
            keeper.add(run)
            screen.done(run)

        is_whole = to_the_end(Campaign(place, machine.mood, now, screen.begin, done).run(turns))
    report = Report.of([keeper.results], thresholds)
    _show(report, out / "report.html")
    if not is_whole:
        sys.stderr.write("interrupted: what was measured until then is kept\n")
        return INTERRUPTED
    return OK if report.is_good else MISSED


def _report(arguments: argparse.Namespace) -> int:
    """Show results that were kept, and judge them again."""
    results = [read(Results, path) for path in arguments.results]
    report = Report.of(results, _thresholds(arguments.thresholds))
    _show(report, arguments.html)
    return OK if report.is_good else MISSED


def to_the_end(work: Coroutine[Any, Any, None]) -> bool:
    """Do it; False if a signal came before its end, and all that it had started is stopped."""
    try:
        asyncio.run(_interruptible(work))
    except asyncio.CancelledError:
        return False
    return True


async def _interruptible(work: Coroutine[Any, Any, None]) -> None:
    """Do it until a signal comes. Also where SIGINT is ignored, as shells have what they run in the background do."""
    loop, task = asyncio.get_running_loop(), asyncio.create_task(work)
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, task.cancel)
    await task


def _show(report: Report, page: Path) -> None:
    """Tables for the console; the page, and the pictures beside it."""
    console = Console()
    for table in report.tables:
        print_table(table, sys.stdout)
        console.print()
    drawn = report.pictures()
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(report.page(drawn))
        for name, png in drawn.items():
            page.with_name(f"{page.stem}-{name}.png").write_bytes(png)
    except OSError as error:
        raise FileError([f"{page}: {error.strerror}"]) from None
    sys.stderr.write(f"{page}\n")
    for finding in report.findings:
        sys.stderr.write(f"{finding}\n")


def _workloads(given: Iterable[str]) -> tuple[dict[str, Workload], list[str]]:
    """Workloads by their names, with those that they are compared with; and the names of those that were asked for."""
    found: dict[str, Workload] = {}
    for each in given:
        given_name, several = named(each)
        for name, workload in several.by_transport(given_name).items():
            if found.setdefault(name, workload) != workload:
                raise FileError([f'{each}: there is another workload "{name}"'])
    chosen = list(found)
    for name in chosen:
        base = found[name].undisturbed
        if base and base not in found:
            found[base] = named(base)[1]
    return found, chosen


def _thresholds(path: Path | None) -> Thresholds:
    return read(Thresholds, path) if path else Thresholds()


def _new(path: Path) -> Path:
    """A file that is not there yet, in a folder that is."""
    if path.exists():
        raise FileError([f"{path}: there are results already; --out names another folder"])
    return _folder(path.parent) / path.name


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError([f"{path}: {error.strerror}"]) from None
    return path


def _whole(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number from {least}")
        return int(text)

    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shipped = ", ".join(sorted(path.stem for path in FOLDER.glob("*.yaml")))
    workloads = f"files, or names of these: {shipped}; default: all but short"
    parser.add_argument("--workloads", nargs="+", default=STANDARD, help=workloads)
    parser.add_argument("--nodes", type=_whole(1), nargs="+", help="sizes of the clusters, for all workloads")
    parser.add_argument("--pods", type=_whole(2), help="that are to get a node, for all workloads")
    parser.add_argument("--repetitions", type=_whole(1), help="of each run, for all workloads")
    parser.add_argument("--subjects", nargs="+", choices=ORDER, default=ORDER, help="of those that a workload has")
    parser.add_argument("--out", type=Path, help="folder for results.json, report.html and logs; default: a new one")
    _add_thresholds(parser)
    return parser


def _report_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"{_PROGRAM} report", description="One page of several results.")
    parser.add_argument("results", type=Path, nargs="+", help="files that the load test has written")
    parser.add_argument("--html", type=Path, required=True, help="the page; pictures go beside it as well")
    _add_thresholds(parser)
    return parser


def _add_thresholds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--thresholds", type=Path, default=SHIPPED, help="file; default: loadtest/thresholds.yaml")
    parser.add_argument("--no-thresholds", dest="thresholds", action="store_const", const=None, help="none at all")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
