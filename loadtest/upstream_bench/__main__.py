"""Runs scheduler_perf in pairs, in-tree and dra-extender: ``python -m loadtest.upstream_bench``."""

import argparse
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loadtest.endtoend.machine import commit
from loadtest.upstream_bench.pairs import Turns, keep, kept, order
from loadtest.upstream_bench.table import as_json, as_table
from loadtest.upstream_bench.turn import Turn, TurnError, measure
from loadtest.upstream_bench.workloads import Workload, selected, workloads
from tests.kit.controlplane.binaries import Binaries, BinariesError
from tests.kit.suites.binaries import NEWEST, SuiteBinaries, find_etcd, find_suites
from tests.kit.suites.running import SUBJECTS, Subject

_FOLDER: Final = Path(__file__).parents[1] / "results" / "upstream"


@dataclass(frozen=True, slots=True)
class Campaign:
    """What a run measures, and where it keeps it.

    Attributes:
        suites: the test programs.
        control_plane: has etcd.
        folder: of results; a turn that is kept there is not measured again.
        pairs: of each workload.
        limit: seconds for a turn.
    """

    suites: SuiteBinaries
    control_plane: Binaries
    folder: Path
    pairs: int
    limit: float

    def measure(self, chosen: Sequence[Workload]) -> list[str]:
        """Measure what is missing, pair by pair of each workload; what has failed."""
        failed: list[str] = []
        for workload in chosen:
            for pair in range(self.pairs):
                for subject in order(pair):
                    failed += self._turn(workload, subject, pair)
            self.write(chosen)
        return failed

    def found(self, chosen: Sequence[Workload]) -> dict[str, Turns]:
        """The kept turns."""
        return {each.title: {subject: self._kept(each, subject) for subject in SUBJECTS} for each in chosen}

    def write(self, chosen: Sequence[Workload]) -> None:
        """Write both tables."""
        found = {title: turns for title, turns in self.found(chosen).items() if any(turns.values())}
        (self.folder / "results.json").write_bytes(as_json(found))
        where = f"Kubernetes {self.suites.version}, dra-extender {commit()}, Python {platform.python_version()}"
        (self.folder / "results.md").write_text(as_table(found, f"{where}, {os.cpu_count()} cores."))

    def _turn(self, workload: Workload, subject: Subject, pair: int) -> list[str]:
        file = self._place(workload, subject) / f"{pair}.json"
        if file.exists():
            return []
        file.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        try:
            turn = measure(
                self.suites, self.control_plane, workload, subject, file.with_suffix(""), os.environ, self.limit
            )
        except TurnError as error:
            _say(str(error))
            return [f"{workload.title}, {subject}"]
        keep(file, turn)
        seconds = time.monotonic() - began
        rate = f"{turn.rate:.0f} pods/s, {turn.pods} pods in {turn.seconds:.1f} s"
        _say(f"{workload.title}, {subject}: {rate}; {seconds:.0f} s in all")
        return []

    def _kept(self, workload: Workload, subject: Subject) -> list[Turn]:
        return [kept(file) for file in sorted(self._place(workload, subject).glob("*.json"))]

    def _place(self, workload: Workload, subject: Subject) -> Path:
        return self.folder / workload.title.replace("/", "_") / subject


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line names; 1 if a turn has failed."""
    given = _parser().parse_args(arguments)
    environ: Mapping[str, str] = {**os.environ, "KUBERNETES": os.environ.get("KUBERNETES") or NEWEST}
    try:
        source = find_suites(environ, ()).source
        every = list(workloads(source))
        chosen = selected(every, given.workloads, given.labels)
        if given.list:
            print("\n".join(f"{each.title}  ({', '.join(sorted(each.labels)) or 'no label'})" for each in chosen))
            return 0
        suites = find_suites(environ, tuple(dict.fromkeys(each.package for each in chosen)))
        control_plane = find_etcd(environ)
    except (BinariesError, ValueError) as error:
        sys.exit(f"error: {error}")
    if given.build:
        return 0
    folder = given.folder / suites.version
    folder.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(suites, control_plane, folder, given.pairs, given.limit)
    failed = campaign.measure(chosen)
    campaign.write(chosen)
    print((folder / "results.md").read_text())
    for each in failed:
        print(f"failed: {each}")
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest.upstream_bench", description=__doc__)
    parser.add_argument("--workloads", nargs="*", default=[], help="patterns, as SchedulingWithResourceClaim/*200nodes")
    parser.add_argument(
        "--labels", nargs="*", default=["performance", "integration-test"], help="of workloads, without patterns"
    )
    parser.add_argument("--pairs", type=int, default=3, help="of each workload")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for a turn")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="of results; delete it to measure anew")
    parser.add_argument("--list", action="store_true", help="print the workloads, and measure nothing")
    parser.add_argument("--build", action="store_true", help="only build")
    return parser


if __name__ == "__main__":
    sys.exit(main())
