"""Random cases, answered by upstream itself and by us: ``python -m tests.conformance.fuzz KIND``.

Needs Go: the program around upstream's allocator and CEL environment is built from the modules that its go.mod names.
Prints a line for each case that differs, and exits 1 if there is one. ``--done FILE`` remembers the ranges of seeds
that have run, so that a run that was ended goes on where it was. ``--coverage`` says what no case reached.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.conformance import allocation, consumers, declarations, expressions, reached, selectors, worlds

Json = dict[str, Any]

SOURCE: Final = Path(__file__).parent / "upstream"
BINARY: Final = Path(__file__).parent / ".bin" / "upstream"
BLOCK: Final = 500
"""Cases that one process of upstream answers."""


@dataclass(frozen=True)
class Kind:
    """A kind of cases: how one is made from a seed, completed with upstream's answer, and run.

    Attributes:
        completed: a case with upstream's answer; None if upstream does not know itself.
        outcomes: what upstream answered, to see what the cases are worth.
    """

    made: Callable[[int], Json]
    completed: Callable[[Json, Any], Json | None]
    run: Callable[[Json], str | None]
    outcomes: Callable[[Json], Sequence[str]]


@dataclass(frozen=True)
class Report:
    """What became of a range of seeds.

    Attributes:
        skipped: cases that upstream answers differently each time, or that end it.
        different: cases with their differences.
    """

    seeds: range
    passed: int = 0
    skipped: int = 0
    different: tuple[tuple[Json, str], ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)

    def line(self) -> str:
        """The report as a line of the file of ranges that have run."""
        counts = f"{self.passed} passed, {len(self.different)} differ, {self.skipped} skipped"
        return f"{self.seeds.start}..{self.seeds.stop - 1}: {counts}"


def _with_runs(case: Json, runs: Any) -> Json | None:
    """Without the nodes on which upstream's search took too long."""
    if isinstance(runs, dict):
        return None
    return {**case, "runs": [run for run in runs if run["outcome"] != "timeout"]}


def _with_actual(case: Json, actual: Json) -> Json | None:
    """Some expressions yield what the order of a map makes of them, and some end upstream's checker."""
    return None if actual.get("varies") or "panic" in actual else {**case, "actual": actual}


def _outcome(case: Json) -> list[str]:
    actual = case["actual"]
    return ["compile error" if actual["compileError"] else "error" if actual["runtimeError"] else "value"]


KINDS: Final = {
    "allocations": Kind(
        worlds.random_case, _with_runs, allocation.run_case, lambda case: [run["outcome"] for run in case["runs"]]
    ),
    "consumers": Kind(
        consumers.random_case,
        lambda case, actual: {**case, "actual": actual},
        consumers.run_case,
        consumers.outcomes,
    ),
    "selectors": Kind(expressions.random_case, _with_actual, selectors.run_case, _outcome),
}


def main() -> int:
    """Compare; 1 if any answer is different."""
    options = _options()
    build()
    failures = _declared() if options.kind == "selectors" else []
    print(f"{options.kind}, seeds {options.seed} to {options.seed + options.cases - 1}")
    blocks = _blocks(options.seed, options.cases, options.done)
    if options.coverage:
        reports = reached.measured(options.kind, blocks, compare, answer)
    else:
        reports = _compared(options.kind, blocks, options.jobs)
    passed = skipped = 0
    outcomes: Counter[str] = Counter()
    kept: list[Json] = []
    for report in reports:
        for case, problem in report.different:
            print(f"{case['name']}: {problem}", flush=True)
            kept.append(case)
        if options.done is not None:
            with options.done.open("a", encoding="utf-8") as done:
                done.write(report.line() + "\n")
        passed, skipped = passed + report.passed, skipped + report.skipped
        outcomes.update(report.outcomes)
    if options.keep is not None:
        options.keep.write_text(json.dumps(kept), encoding="utf-8")
    print(", ".join(f"{outcome} {number}" for outcome, number in sorted(outcomes.items())))
    print(f"{passed} passed, {len(kept)} failed, {skipped} without one answer of upstream")
    return 1 if kept or failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--seed", type=int, default=0, help="of the first case; each case has the next one")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=1, help="processes that compare at the same time")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write cases that differ, in the form of the vectors")
    parser.add_argument(
        "--done", type=Path, metavar="FILE", help="skip the ranges of seeds in FILE, and add those that have run"
    )
    parser.add_argument("--coverage", action="store_true", help="say what no case reached (slow, one process)")
    return parser.parse_args()


def _blocks(seed: int, cases: int, done: Path | None) -> list[range]:
    """The ranges of seeds that are left."""
    lines = done.read_text(encoding="utf-8").splitlines() if done is not None and done.exists() else []
    ran = {line.partition(":")[0] for line in lines}
    blocks = (range(start, min(start + BLOCK, seed + cases)) for start in range(seed, seed + cases, BLOCK))
    return [block for block in blocks if f"{block.start}..{block.stop - 1}" not in ran]


def build() -> None:
    """Upstream as a program."""
    BINARY.parent.mkdir(exist_ok=True)
    subprocess.run(["go", "build", "-o", str(BINARY), "."], cwd=SOURCE, check=True)


def answer(kind: str, cases: Sequence[Json]) -> list[Any]:
    """Upstream's answers."""
    # A process is short and its heap small, so Go may collect garbage less often: it needs a third less time.
    environment = {**os.environ, "GOGC": "400"}
    done = subprocess.run(
        [str(BINARY), kind],
        input=json.dumps(cases),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
    )
    found: list[Any] = json.loads(done.stdout)
    return found


def _declared() -> list[str]:
    """What upstream and we declare differently, printed."""
    answers = answer("declarations", declarations.CASES)
    found = [
        f"{case['envType']}, {case['features']}: {difference}"
        for case, theirs in zip(declarations.CASES, answers, strict=True)
        for difference in declarations.differences(case, theirs)
    ]
    print(*found, f"declarations: {len(found)} differ", sep="\n")
    return found


def _compared(kind: str, blocks: Sequence[range], jobs: int) -> Iterator[Report]:
    if jobs == 1:
        yield from (compare(kind, block) for block in blocks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(compare, [kind] * len(blocks), blocks)


def compare(kind: str, seeds: range) -> Report:
    """Compare the cases of some seeds."""
    tools = KINDS[kind]
    cases = [tools.made(seed) for seed in seeds]
    completed = [tools.completed(*pair) for pair in zip(cases, answer(kind, cases), strict=True)]
    outcomes: Counter[str] = Counter()
    different: list[tuple[Json, str]] = []
    known = [case for case in completed if case is not None]
    for case in known:
        outcomes.update(tools.outcomes(case))
        problem = tools.run(case)
        if problem is not None:
            different.append((case, problem))
    return Report(seeds, len(known) - len(different), len(cases) - len(known), tuple(different), outcomes)


if __name__ == "__main__":
    sys.exit(main())
