"""Random cases, answered by upstream's own allocator and by ours: `python -m tests.conformance.fuzz`.

Needs Go: the program around upstream's allocator is built once, from the Go modules that its go.mod names.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.conformance.allocation import run_case
from tests.conformance.worlds import random_case

Json = dict[str, Any]

SOURCE: Final = Path(__file__).parent / "upstream"
BINARY: Final = Path(__file__).parent / ".bin" / "upstream"
_AT_ONCE: Final = 200


def main() -> int:
    """Compare; 1 if any answer is different."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; each case has the next one")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write cases that differ, in the form of the vectors")
    options = parser.parse_args()
    build()
    outcomes: Counter[str] = Counter()
    different: list[Json] = []
    for first in range(options.seed, options.seed + options.cases, _AT_ONCE):
        for case in answered(range(first, min(first + _AT_ONCE, options.seed + options.cases))):
            outcomes.update(run["outcome"] for run in case["runs"])
            problem = run_case(case) if case["runs"] else None
            if problem is not None:
                different.append(case)
                print(f"{case['name']}: {problem}")
    if options.keep is not None:
        options.keep.write_text(json.dumps(different))
    print(", ".join(f"{outcome} {number}" for outcome, number in sorted(outcomes.items())))
    print(f"{options.cases - len(different)} passed, {len(different)} failed")
    return 1 if different else 0


def build() -> None:
    """Upstream's allocator as a program."""
    BINARY.parent.mkdir(exist_ok=True)
    subprocess.run(["go", "build", "-o", str(BINARY), "."], cwd=SOURCE, check=True)


def answered(seeds: range) -> list[Json]:
    """The cases of some seeds with what upstream answers; nodes on which its search took too long are left out."""
    cases = [random_case(seed) for seed in seeds]
    done = subprocess.run([str(BINARY)], input=json.dumps(cases), capture_output=True, text=True, check=True)
    answers: list[list[Json]] = json.loads(done.stdout)
    return [
        {**case, "runs": [run for run in runs if run["outcome"] != "timeout"]}
        for case, runs in zip(cases, answers, strict=True)
    ]


if __name__ == "__main__":
    sys.exit(main())
