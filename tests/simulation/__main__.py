"""Plays histories, each from its seed, and prints what has not held, and what was covered.

``python -m tests.simulation --seeds 1000 --first 4000`` plays the histories 4000 to 4999 on all processors.
``--show 4711`` plays one, and prints its plan, what has not held, and what the service has logged. ``--mutants`` breaks
the service on purpose, in one way after the other, and prints how many histories it takes until that is seen.

The exit code is 1 if something has not held. A history depends on nothing but its seed and the revision.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Final

from tests.simulation.coverage import covered, report
from tests.simulation.history import Outcome, play, play_seed
from tests.simulation.mutants import MUTANTS, found_by
from tests.simulation.plan import Plan, plan_of
from tests.simulation.shrink import shrunk

_HASHES: Final = "PYTHONHASHSEED"
_SHRINKING: Final = 150
"""Tries to make a history smaller."""

_SHOWN: Final = 3
"""Violations that are made small and printed; of others, only the seeds are."""


def main() -> int:
    """Play what the arguments say; returns the exit code."""
    if os.environ.get(_HASHES) != "0":  # sets have an order of their own otherwise
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], {**os.environ, _HASHES: "0"}
        )
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--show", type=int, help="one seed")
    parser.add_argument("--mutants", action="store_true", help="break the service on purpose")
    given = parser.parse_args()
    if given.show is not None:
        return _show(plan_of(given.show))
    seeds = range(given.first, given.first + given.seeds)
    return _mutants(seeds, given.jobs) if given.mutants else _all(seeds, given.jobs)


def _show(plan: Plan) -> int:
    print(plan)
    outcome = play(plan)
    print("\n".join(outcome.logged))
    print(_told(outcome))
    return int(outcome.violation is not None)


def _all(seeds: range, jobs: int) -> int:
    began, cpu = time.perf_counter(), 0.0
    counted: Counter[str] = Counter()
    seconds, bound, broken = 0.0, 0, list[Outcome]()
    for outcome in _played(seeds, jobs):
        seconds, bound, cpu = seconds + outcome.seconds, bound + outcome.bound, cpu + outcome.cpu
        counted += outcome.counted
        if outcome.violation is not None:
            broken.append(outcome)
            print(_told(outcome), flush=True)
    for outcome in broken[:_SHOWN]:
        print(f"\n{_smallest(outcome)}")
    print(report(covered(map(plan_of, seeds))))
    print("checked: " + ", ".join(f"{law}: {times}" for law, times in sorted(counted.items())))
    hours, minutes, took = seconds / 3600, cpu / 60, time.perf_counter() - began
    print(
        f"histories {seeds.start} to {seeds.stop - 1}: {len(broken)} broken; {bound} pods bound; {hours:.1f} virtual"
        f" hours in {took:.0f} s, {hours / minutes:.1f} in a minute of one processor"
    )
    return int(bool(broken))


def _played(seeds: range, jobs: int) -> Iterator[Outcome]:
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(play_seed, seeds)


def _smallest(outcome: Outcome) -> str:
    """The plan of a broken history without what it does not need."""
    law = outcome.violation.law if outcome.violation else ""

    def breaks(plan: Plan) -> bool:
        found = play(plan).violation
        return found is not None and found.law == law

    small = shrunk(outcome.plan, breaks, _SHRINKING)
    return f"{small}\n{_told(play(small))}"


def _told(outcome: Outcome) -> str:
    seed = f"history {outcome.plan.seed}"
    return f"{seed}: {outcome.violation}" if outcome.violation else f"{seed}: all holds, {outcome.bound} pods bound"


def _mutants(seeds: range, jobs: int) -> int:
    """Break the service in each way, and tell which history shows it first."""
    missed = 0
    for name in MUTANTS:
        number = found_by(name, seeds, jobs)
        missed += number is None
        print(f"{name}: {'not found' if number is None else f'found by history {number}'}", flush=True)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
