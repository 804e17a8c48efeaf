"""Random cases, answered by upstream itself and by us: ``python -m tests.conformance.fuzz allocations|selectors``.

Needs Go: the program around upstream's allocator and CEL environment is built from the modules that its go.mod names.
Prints a line for each case that differs, and exits 1 if there is one.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.conformance import allocation, expressions, selectors, worlds

Json = dict[str, Any]

SOURCE: Final = Path(__file__).parent / "upstream"
BINARY: Final = Path(__file__).parent / ".bin" / "upstream"
_AT_ONCE: Final = 500


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


def _with_runs(case: Json, runs: list[Json]) -> Json:
    """Without the nodes on which upstream's search took too long."""
    return {**case, "runs": [run for run in runs if run["outcome"] != "timeout"]}


def _with_actual(case: Json, actual: Json) -> Json | None:
    """Some expressions yield what the order of a map makes of them."""
    return None if actual.get("varies") else {**case, "actual": actual}


def _outcome(case: Json) -> list[str]:
    actual = case["actual"]
    return ["compile error" if actual["compileError"] else "error" if actual["runtimeError"] else "value"]


KINDS: Final = {
    "allocations": Kind(
        worlds.random_case, _with_runs, allocation.run_case, lambda case: [run["outcome"] for run in case["runs"]]
    ),
    "selectors": Kind(expressions.random_case, _with_actual, selectors.run_case, _outcome),
}


def main() -> int:
    """Compare; 1 if any answer is different."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--seed", type=int, default=0, help="of the first case; each case has the next one")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write cases that differ, in the form of the vectors")
    options = parser.parse_args()
    build()
    outcomes: Counter[str] = Counter()
    different: list[Json] = []
    passed = 0
    for case in answered(options.kind, range(options.seed, options.seed + options.cases)):
        outcomes.update(KINDS[options.kind].outcomes(case))
        problem = KINDS[options.kind].run(case)
        if problem is None:
            passed += 1
        else:
            different.append(case)
            print(f"{case['name']}: {problem}")
    if options.keep is not None:
        options.keep.write_text(json.dumps(different))
    print(", ".join(f"{outcome} {number}" for outcome, number in sorted(outcomes.items())))
    print(f"{passed} passed, {len(different)} failed")
    return 1 if different else 0


def build() -> None:
    """Upstream as a program."""
    BINARY.parent.mkdir(exist_ok=True)
    subprocess.run(["go", "build", "-o", str(BINARY), "."], cwd=SOURCE, check=True)


def answered(kind: str, seeds: range) -> Iterator[Json]:
    """The cases of some seeds with what upstream answers."""
    for start in range(0, len(seeds), _AT_ONCE):
        cases = [KINDS[kind].made(seed) for seed in seeds[start : start + _AT_ONCE]]
        done = subprocess.run([str(BINARY), kind], input=json.dumps(cases), capture_output=True, text=True, check=True)
        for case, answer in zip(cases, json.loads(done.stdout), strict=True):
            completed = KINDS[kind].completed(case, answer)
            if completed is not None:
                yield completed


if __name__ == "__main__":
    sys.exit(main())
