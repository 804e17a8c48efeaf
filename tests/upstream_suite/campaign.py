"""Runs of the suite, and what is kept of them: what has run once is not run again unless it is asked for."""

import re
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import orjson

from tests.kit.controlplane.binaries import Binaries
from tests.kit.suites.binaries import SuiteBinaries
from tests.kit.suites.running import Run, Subject
from tests.kit.suites.words import WORDS
from tests.upstream_suite.known import why_incomparable
from tests.upstream_suite.results import PASSED, SKIPPED, UNFINISHED, Result, leaves, pattern, results

LOGS: Final = Path(__file__).parent / ".logs"
TRIES: Final = 3
"""A test that fails runs again, alone: these tests have deadlines, and a busy machine breaks them."""

_SECONDS: Final = 3000


@dataclass(frozen=True, slots=True)
class Campaign:
    """All runs on one version of Kubernetes.

    Attributes:
        suites: the test programs.
        control_plane: has etcd.
        environ: of the programs.
        again: whether also what has run already runs.
    """

    suites: SuiteBinaries
    control_plane: Binaries
    environ: Mapping[str, str]
    again: bool = False

    def run(self, package: str, subject: Subject, only: str = "") -> dict[str, Result]:
        """The results of a package's tests without sub-tests; those that fail get more tries, alone.

        Args:
            package: within test/integration/dra; empty for that package itself.
            subject: who allocates devices.
            only: the value of ``-test.run``; such a run is not kept.
        """
        file = self._file(package, subject)
        if file.exists() and not self.again and not only:
            found = read(file)
            missing = self._missing(package, found)
            for name in missing:  # the program had no time left for them
                found = joined(found, self._once(package, subject, pattern([name]), 1))
            if missing:
                _keep(file, found)
            return found
        _say(f"{self.suites.version} {package or 'dra'} {subject}: begins")
        began = time.monotonic()
        found = self._once(package, subject, only, 1)
        for number in range(2, TRIES + 1):
            for chosen in to_run_again(found, self.suites.version, only):
                found = joined(found, self._once(package, subject, chosen, number))
        _say(f"{self.suites.version} {package or 'dra'} {subject}: {summary(found)}, {time.monotonic() - began:.0f} s")
        if not only:
            _keep(file, found)
        return found

    def _missing(self, package: str, found: Mapping[str, Result]) -> list[str]:
        """The tests of a package that in-tree has a result of, that are not among some, and that can be compared."""
        file = self._file(package, "in-tree")
        names = read(file) if file.exists() else ()
        return [name for name in names if name not in found and not why_incomparable(name, self.suites.version)]

    def _once(self, package: str, subject: Subject, only: str, number: int) -> dict[str, Result]:
        name = re.sub(r"\W+", "-", only)[:80].strip("-")
        folder = self._folder(package, subject) / (f"{name}-{number}" if name else "all")
        path = f"test/integration/dra/{package}".rstrip("/")
        run = Run(self.suites, self.control_plane, path, subject, WORDS, folder)
        flags = ["-test.v=test2json", f"-test.timeout={_SECONDS}s", *([f"-test.run={only}"] if only else [])]
        run.finish(run.start(flags, self.environ), _SECONDS + 60)
        found = leaves(results(run.output.read_text(errors="replace")))
        return {each: Result(result.outcome, result.seconds, number) for each, result in found.items()}

    def _folder(self, package: str, subject: Subject) -> Path:
        return LOGS / self.suites.version / subject / (package or "dra")

    def _file(self, package: str, subject: Subject) -> Path:
        folder = self._folder(package, subject)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "results.json"


def failing(found: Mapping[str, Result], version: str) -> list[str]:
    """The tests that neither passed nor were skipped, without those that can't be compared."""
    return [
        name
        for name, result in found.items()
        if result.outcome not in {PASSED, SKIPPED} and not why_incomparable(name, version)
    ]


def to_run_again(found: Mapping[str, Result], version: str, only: str) -> list[str]:
    """What runs again, as values of ``-test.run``: each test that failed, alone.

    If the program ended before its tests did, as it does if the API server does not start in time, all run again.
    """
    if any(result.outcome == UNFINISHED for result in found.values()):
        return [only]
    return [pattern([name]) for name in failing(found, version)]


def joined(found: Mapping[str, Result], later: Mapping[str, Result]) -> dict[str, Result]:
    """The results of tests without sub-tests after a later run: what has passed stays."""
    passed = {name: result for name, result in found.items() if result.outcome == PASSED}
    return leaves({**found, **later, **passed})


def _keep(file: Path, found: Mapping[str, Result]) -> None:
    file.write_bytes(orjson.dumps({name: asdict(each) for name, each in found.items()}))


def read(file: Path) -> dict[str, Result]:
    """The kept results of a package."""
    return {name: Result(**each) for name, each in orjson.loads(file.read_bytes()).items()}


def summary(found: Mapping[str, Result]) -> str:
    """How many have each outcome."""
    outcomes = [result.outcome for result in found.values()]
    return ", ".join(f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes)) or "no tests"


def report(found: Mapping[str, Result], version: str) -> Iterable[str]:
    """A line for each test that has failed."""
    return (f"{result.outcome}: {name}" for name, result in found.items() if name in failing({name: result}, version))


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
