"""Runs files of cases: ``python -m tests.conformance FILE...``.

A file is a JSON array of cases. What kind a case is, its fields tell. Prints per file how many passed, failed and
were skipped, and a line for each failure; exits 1 on a failure, 2 on a file that is no array of known cases.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.conformance import allocation, language, selectors
from tests.conformance.outcome import Skipped

Json = dict[str, Any]
Runner = Callable[[Json], str | None]

_KINDS: tuple[tuple[frozenset[str], Runner], ...] = (
    (frozenset({"claims", "resourceSlices", "runs"}), allocation.run_case),
    (frozenset({"expression", "device", "actual"}), selectors.run_case),
    (frozenset({"expression", "expected"}), language.run_case),
)
"""The fields that tell a kind, most telling first."""


def runner_of(case: Json) -> Runner:
    """What runs such a case.

    Raises:
        ValueError: none of the known kinds.
    """
    for fields, runner in _KINDS:
        if fields <= case.keys():
            return runner
    raise ValueError(f"no known kind of case has just the fields {', '.join(sorted(case))}")


def run_file(path: Path) -> tuple[int, int, int]:
    """Run all cases of a file and print what happened; gives how many passed, failed and were skipped."""
    passed, failures, skipped = 0, [], []
    for number, case in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        name = "/".join(str(case[part]) for part in ("suite", "name", "section") if part in case) or f"#{number}"
        try:
            reason = runner_of(case)(case)
        except Skipped as why:
            skipped.append(f"{name}: {why}")
            continue
        if reason is None:
            passed += 1
        else:
            failures.append(f"{name}: {reason}")
    sys.stdout.write(f"{path.name}: {passed} passed, {len(failures)} failed, {len(skipped)} skipped\n")
    for line in failures:
        sys.stdout.write(f"  FAILED {line}\n")
    for line in skipped:
        sys.stdout.write(f"  skipped {line}\n")
    return passed, len(failures), len(skipped)


def main(arguments: Sequence[str]) -> int:
    """Run the files that are named; gives the exit status."""
    if not arguments:
        sys.stderr.write("usage: python -m tests.conformance FILE...\n")
        return 2
    failed = 0
    for argument in arguments:
        try:
            failed += run_file(Path(argument))[1]
        except (OSError, ValueError, TypeError, AttributeError) as error:
            sys.stderr.write(f"{argument}: {error}\n")
            return 2
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
